package anthropic

import (
	"encoding/json"
	"strings"

	"github.com/rathcluster/rath/internal/models/exchange"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// wire is the member of [llm.Message.Opaque] that this package writes.
const wire = "anthropic"

// event is an event of a stream, or a whole answer.
type event struct {
	Type         exchange.Word   `json:"type"`
	Object       exchange.Word   `json:"object"`
	Error        json.RawMessage `json:"error"`
	Message      json.RawMessage `json:"message"` // of an error: a text
	Index        exchange.Count  `json:"index"`
	ContentBlock json.RawMessage `json:"content_block"`
	Delta        *delta          `json:"delta"`
	Usage        *usage          `json:"usage"`
}

// said is an answer; a stream starts with an empty one.
type said struct {
	Model      exchange.Word     `json:"model"`
	Content    []json.RawMessage `json:"content"`
	StopReason exchange.Word     `json:"stop_reason"`
	Usage      *usage            `json:"usage"`
}

type delta struct {
	Type        exchange.Word   `json:"type"`
	Text        json.RawMessage `json:"text"`
	Thinking    json.RawMessage `json:"thinking"`
	Signature   json.RawMessage `json:"signature"`
	PartialJSON json.RawMessage `json:"partial_json"`
	StopReason  exchange.Word   `json:"stop_reason"`
}

type usage struct {
	Input   *exchange.Tokens `json:"input_tokens"`
	Output  *exchange.Tokens `json:"output_tokens"`
	Read    *exchange.Tokens `json:"cache_read_input_tokens"`
	Written *exchange.Tokens `json:"cache_creation_input_tokens"`
}

// tally has the server's newest counts. Its input excludes the tokens read from and
// written to the cache.
type tally struct{ input, output, read, written exchange.Tokens }

func (t *tally) take(u *usage) {
	if u == nil {
		return
	}
	for to, n := range map[*exchange.Tokens]*exchange.Tokens{&t.input: u.Input, &t.output: u.Output, &t.read: u.Read, &t.written: u.Written} {
		if n != nil {
			*to = *n
		}
	}
}

// counts returns the counts; none if one of them is impossible.
func (t *tally) counts() session.Usage {
	if min(t.input, t.output, t.read, t.written) == exchange.Absurd || t.input+t.read+t.written == 0 {
		return session.Usage{}
	}
	return session.Usage{
		Input: int64(t.input + t.read + t.written), Output: int64(t.output), CacheRead: int64(t.read), CacheWrite: int64(t.written),
	}
}

// answer assembles an answer and passes its pieces on.
type answer struct {
	e *exchange.Endpoint
	exchange.Passed
	model string

	blocks          []*content // in the order of their starts
	text, reasoning strings.Builder
	calls           int
	tally           tally
}

var _ exchange.Decoder = (*answer)(nil)

// State implements [exchange.Decoder].
func (a *answer) State() exchange.State {
	return exchange.State{Begun: a.Begun, Whole: a.Whole(), Text: a.text.Len(), Size: a.Size, Used: a.tally.counts()}
}

// Add handles an event. It skips events of unknown types, as the protocol requires.
func (a *answer) Add(raw []byte) error {
	var ev event
	if err := json.Unmarshal(raw, &ev); err != nil {
		return a.e.Malformed("an event is not the JSON of a message")
	}
	if exchange.IsSet(ev.Error) || ev.Type == "error" || ev.Object == "error" {
		return a.e.Failure(raw)
	}
	var err error
	switch ev.Type {
	case "message_start":
		var m said
		if json.Unmarshal(ev.Message, &m) == nil {
			a.begin(&m)
		}
	case "message": // the whole answer
		err = a.whole(raw)
	case "content_block_start":
		err = a.start(int64(ev.Index), ev.ContentBlock, false)
	case "content_block_delta":
		if ev.Delta != nil {
			err = a.grow(int64(ev.Index), ev.Delta)
		}
	case "message_delta":
		a.tally.take(ev.Usage)
		if ev.Delta != nil {
			err = a.Ended(a.e, string(ev.Delta.StopReason))
		}
	case "message_stop":
		a.Done()
	}
	if err == nil && a.Size > a.e.MaxResponse() {
		err = a.e.Malformed("the answer is larger than %d bytes", a.e.MaxResponse())
	}
	return err
}

func (a *answer) begin(m *said) {
	if m.Model != "" {
		a.model = llm.Clip(string(m.Model), llm.MaxNameLen)
	}
	a.tally.take(m.Usage)
}

func (a *answer) whole(raw []byte) error {
	var m said
	if err := json.Unmarshal(raw, &m); err != nil {
		return a.e.Malformed("the answer is not the JSON of a message")
	}
	a.begin(&m)
	for i, b := range m.Content {
		if err := a.start(int64(i), b, true); err != nil {
			return err
		}
	}
	return a.Ended(a.e, string(m.StopReason))
}

// Response implements [exchange.Decoder].
func (a *answer) Response() *llm.Response {
	r := &llm.Response{Finish: a.Finish, Word: a.Word, Usage: a.tally.counts(), Model: a.model}
	r.Uncounted = r.Usage.Tokens() == 0
	ids := exchange.IDs{}
	var pieces []exchange.Piece
	formed := false
	for _, b := range a.blocks {
		a.flush(b)
		formed = formed || b.form
		switch {
		case b.kind == kindCall:
			id := ids.Take(b.id, len(r.Calls))
			r.Calls = append(r.Calls, session.ToolCall{ID: id, Name: b.name, Args: b.body.String()})
			pieces = append(pieces, exchange.Piece{Call: id})
		case b.kind == kindText && b.body.Len() > 0:
			pieces = append(pieces, exchange.Piece{Text: b.body.Len()})
		case b.kind == kindThinking || b.kind == kindHidden:
			pieces = append(pieces, exchange.Piece{Raw: b.verbatim()})
		}
	}
	r.Text, r.Reasoning = a.text.String(), a.reasoning.String()
	r.Opaque = a.e.Seal(wire, pieces)
	switch {
	case len(r.Calls) > 0 && r.Finish == llm.FinishStop:
		r.Finish = llm.FinishTools
	case len(r.Calls) == 0 && r.Finish == llm.FinishTools && formed:
		r.Finish = llm.FinishStop // the call was the answer
	}
	return r
}
