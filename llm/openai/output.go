package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	api "github.com/sashabaranov/go-openai"

	"github.com/rathcluster/rath/internal/models/exchange"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// responseEvent is an event of the Responses protocol, or a whole answer.
type responseEvent struct {
	Type         exchange.Word   `json:"type"`
	Object       exchange.Word   `json:"object"`
	Error        json.RawMessage `json:"error"`
	Response     json.RawMessage `json:"response"`
	OutputIndex  exchange.Count  `json:"output_index"`
	SummaryIndex exchange.Count  `json:"summary_index"`
	Item         json.RawMessage `json:"item"`
	Delta        json.RawMessage `json:"delta"`
	Arguments    json.RawMessage `json:"arguments"`
}

// response is an answer, complete or partial.
type response struct {
	Status     exchange.Word     `json:"status"`
	Model      exchange.Word     `json:"model"`
	Error      json.RawMessage   `json:"error"`
	Output     []json.RawMessage `json:"output"`
	Usage      json.RawMessage   `json:"usage"`
	Incomplete struct {
		Reason exchange.Word `json:"reason"`
	} `json:"incomplete_details"`
}

// item is a part of an answer.
type item struct {
	Type      exchange.Word   `json:"type"`
	CallID    exchange.Word   `json:"call_id"`
	Name      exchange.Word   `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Content   []struct {
		Text    json.RawMessage `json:"text"`
		Refusal json.RawMessage `json:"refusal"`
	} `json:"content"`
	Summary   json.RawMessage `json:"summary"`
	Encrypted json.RawMessage `json:"encrypted_content"`
}

const (
	itemMessage   = "message"
	itemReasoning = "reasoning"
	itemCall      = "function_call"
)

// outputItem is an unfinished item.
type outputItem struct {
	index    int64
	kind     string
	id, name string
	call     int // its number among the calls
	body     strings.Builder
	join     exchange.Joiner
	raw      json.RawMessage // of reasoning that is sent back
}

// output assembles an answer of the Responses protocol and passes its pieces on.
type output struct {
	e *exchange.Endpoint
	exchange.Passed
	model           string
	items           []*outputItem
	text, reasoning strings.Builder
	calls           int
	refused         bool
	usage           session.Usage
}

var _ exchange.Decoder = (*output)(nil)

// State implements [exchange.Decoder].
func (o *output) State() exchange.State {
	return exchange.State{Begun: o.Begun, Whole: o.Whole(), Text: o.text.Len(), Size: o.Size, Used: o.usage}
}

// Add handles an event. It skips events of unknown types, and those that repeat the
// pieces.
func (o *output) Add(raw []byte) error {
	var ev responseEvent
	if err := json.Unmarshal(raw, &ev); err != nil {
		return o.e.Malformed("an event is not the JSON of a response")
	}
	if exchange.IsSet(ev.Error) || ev.Type == "error" || ev.Object == "error" {
		return o.e.Failure(raw)
	}
	var err error
	switch at := int64(ev.OutputIndex); api.ResponseStreamEventType(ev.Type) {
	case api.ResponseStreamEventCreated, api.ResponseStreamEventInProgress:
		var r response
		_ = json.Unmarshal(ev.Response, &r)
		o.note(&r)
	case api.ResponseStreamEventOutputItemAdded:
		_, err = o.item(at, ev.Item)
	case api.ResponseStreamEventOutputItemDone:
		err = o.done(at, ev.Item)
	case api.ResponseStreamEventOutputTextDelta:
		err = o.add(at, itemMessage, ev.Delta)
	case api.ResponseStreamEventRefusalDelta:
		o.refused = true
		err = o.add(at, itemMessage, ev.Delta)
	case api.ResponseStreamEventReasoningSummaryTextDelta, api.ResponseStreamEventReasoningTextDelta:
		err = o.add(at, itemReasoning, ev.Delta)
	case api.ResponseStreamEventReasoningSummaryPartAdded:
		if ev.SummaryIndex > 0 {
			err = o.add(at, itemReasoning, json.RawMessage(`"\n\n"`))
		}
	case api.ResponseStreamEventFunctionArgumentsDelta:
		err = o.add(at, itemCall, ev.Delta)
	case api.ResponseStreamEventFunctionArgumentsDone:
		if c := o.find(at); c != nil && c.kind == itemCall && c.body.Len() == 0 {
			err = o.add(at, itemCall, ev.Arguments)
		}
	case api.ResponseStreamEventCompleted:
		err = o.end(ev.Response, api.ResponseStatusCompleted)
	case api.ResponseStreamEventIncomplete:
		err = o.end(ev.Response, api.ResponseStatusIncomplete)
	case api.ResponseStreamEventFailed:
		err = o.end(ev.Response, api.ResponseStatusFailed)
	case "":
		if ev.Object == "response" {
			err = o.end(raw, "")
		}
	}
	if err == nil && o.Size > o.e.MaxResponse() {
		err = o.e.Malformed("the answer is larger than %d bytes", o.e.MaxResponse())
	}
	return err
}

func (o *output) note(r *response) {
	if r.Model != "" {
		o.model = llm.Clip(string(r.Model), llm.MaxNameLen)
	}
	var u usage
	_ = json.Unmarshal(r.Usage, &u) // no answer is lost for want of its price
	if c := u.counts(); c != (session.Usage{}) {
		o.usage = c
	}
}

// end handles the final answer, and adds the items that have not arrived before. status
// is the status of its event, for an answer without one.
func (o *output) end(raw json.RawMessage, status api.ResponseStatus) error {
	var r response
	if json.Unmarshal(raw, &r) != nil {
		return o.e.Malformed("the answer is not the JSON of a response")
	}
	o.note(&r)
	var end exchange.End
	switch status = cmp.Or(api.ResponseStatus(r.Status), status); {
	case status == api.ResponseStatusIncomplete:
		end.Finish = llm.FinishLength
		switch r.Incomplete.Reason {
		case "", "max_output_tokens", "max_tokens":
		case "content_filter":
			end.Finish = llm.FinishFilter
		default:
			end.Word = o.e.Word(string(r.Incomplete.Reason))
		}
	case exchange.IsSet(r.Error):
		return o.e.Failure(raw)
	case slices.Contains(broken, status):
		return o.e.BrokenOff(string(status))
	case status == api.ResponseStatusCompleted:
		end.Finish = llm.FinishStop
	default: // of an answer that was completed
		end.Finish, end.Word = llm.FinishStop, o.e.Word(string(status))
	}
	for i, one := range r.Output {
		if o.find(int64(i)) != nil {
			continue
		}
		if err := o.done(int64(i), one); err != nil {
			return err
		}
	}
	o.Begun, o.End = true, end
	o.Done() // the event is the protocol's own end
	return nil
}

// broken are the statuses of an incomplete answer.
var broken = []api.ResponseStatus{"", api.ResponseStatusFailed, api.ResponseStatusCancelling, api.ResponseStatusCancelled, api.ResponseStatusQueued, api.ResponseStatusInProgress}

func (o *output) find(index int64) *outputItem {
	for i := len(o.items) - 1; i >= 0; i-- {
		if o.items[i].index == index {
			return o.items[i]
		}
	}
	return nil
}

// maxItems bounds the items of an answer.
const maxItems = 4096

func (o *output) begin(index int64, kind string) (*outputItem, error) {
	if len(o.items) == maxItems {
		return nil, o.e.Malformed("the answer has more than %d items", maxItems)
	}
	if n := len(o.items); n > 0 && o.items[n-1].kind != itemCall {
		o.flush(o.items[n-1]) // consecutive texts
	}
	c := &outputItem{index: index, kind: kind}
	o.items = append(o.items, c)
	return c, nil
}

// item returns an item, and starts it if it is new.
func (o *output) item(index int64, raw json.RawMessage) (*item, error) {
	it := &item{}
	if json.Unmarshal(raw, it) != nil {
		return nil, o.e.Malformed("an item is not the JSON of one")
	}
	if o.find(index) != nil {
		return it, nil
	}
	c, err := o.begin(index, string(it.Type))
	if err != nil || c.kind != itemCall {
		return it, err
	}
	if o.calls == exchange.MaxCalls {
		return nil, o.e.Malformed("the answer has more than %d tool calls", exchange.MaxCalls)
	}
	c.call = o.calls
	o.calls++
	c.id, c.name = llm.Clip(string(it.CallID), llm.MaxNameLen), llm.Clip(string(it.Name), llm.MaxNameLen)
	o.Emit(llm.Delta{Call: &session.ToolCall{ID: c.id, Name: c.name}, Index: c.call})
	return it, nil
}

// done handles a finished item: it adds the parts that did not arrive in pieces.
func (o *output) done(index int64, raw json.RawMessage) error {
	it, err := o.item(index, raw)
	if err != nil {
		return err
	}
	c := o.find(index)
	if c.kind == itemReasoning && exchange.IsSet(it.Encrypted) {
		o.Size += len(raw) - len(c.raw)
		c.raw = bytes.Clone(raw)
	}
	if c.body.Len() > 0 {
		return nil
	}
	switch c.kind {
	case itemCall:
		return o.add(index, itemCall, it.Arguments)
	case itemReasoning:
		return o.add(index, itemReasoning, it.Summary)
	case itemMessage:
		for _, part := range it.Content {
			o.refused = o.refused || exchange.IsSet(part.Refusal)
			for _, text := range []json.RawMessage{part.Text, part.Refusal} {
				if err := o.add(index, itemMessage, text); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// add adds to the item of an index; some servers omit the start of an item.
func (o *output) add(index int64, kind string, raw json.RawMessage) error {
	c := o.find(index)
	if c == nil && kind == itemCall {
		return o.e.Malformed("arguments of a call that did not begin")
	}
	if c == nil {
		var err error
		if c, err = o.begin(index, kind); err != nil {
			return err
		}
	}
	if c.kind != kind {
		return nil
	}
	o.Begun = true
	if t := c.join.Add(raw); t != "" {
		o.put(c, t)
	}
	return nil
}

func (o *output) put(c *outputItem, t string) {
	c.body.WriteString(t)
	switch c.kind {
	case itemCall:
		o.Emit(llm.Delta{Call: &session.ToolCall{Args: t}, Index: c.call})
	case itemReasoning:
		o.reasoning.WriteString(t)
		o.Emit(llm.Delta{Reasoning: t})
	default:
		o.text.WriteString(t)
		o.Emit(llm.Delta{Text: t})
	}
}

// flush passes on the text that an item held back, at the end of the item.
func (o *output) flush(c *outputItem) {
	if t := c.join.Flush(); t != "" {
		o.put(c, t)
	}
}

// Response implements [exchange.Decoder].
func (o *output) Response() *llm.Response {
	r := &llm.Response{Finish: o.Finish, Word: o.Word, Usage: o.usage, Uncounted: o.usage.Tokens() == 0, Model: o.model}
	slices.SortStableFunc(o.items, func(a, b *outputItem) int { return cmp.Compare(a.index, b.index) })
	ids := exchange.IDs{}
	var pieces []exchange.Piece
	for _, c := range o.items {
		o.flush(c)
		switch {
		case c.kind == itemCall:
			id := ids.Take(c.id, len(r.Calls))
			r.Calls = append(r.Calls, session.ToolCall{ID: id, Name: c.name, Args: c.body.String()})
			pieces = append(pieces, exchange.Piece{Call: id})
		case c.kind == itemMessage && c.body.Len() > 0:
			pieces = append(pieces, exchange.Piece{Text: c.body.Len()})
		case c.kind == itemReasoning && c.raw != nil:
			pieces = append(pieces, exchange.Piece{Raw: c.raw})
		}
	}
	r.Text, r.Reasoning = o.text.String(), o.reasoning.String()
	r.Opaque = o.e.Seal(KindResponses, pieces)
	switch {
	case o.refused:
		r.Finish = llm.FinishRefused
	case len(r.Calls) > 0 && r.Finish == llm.FinishStop:
		r.Finish = llm.FinishTools
	}
	return r
}
