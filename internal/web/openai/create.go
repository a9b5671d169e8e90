package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/web/problem"
	"github.com/rathcluster/rath/internal/web/turn"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// responseRequest is a request for a response. Fields that are not here change nothing.
type responseRequest struct {
	Model        string            `json:"model"`
	Input        json.RawMessage   `json:"input"`
	Instructions string            `json:"instructions"`
	Previous     string            `json:"previous_response_id"`
	Conversation json.RawMessage   `json:"conversation"`
	Background   bool              `json:"background"`
	Stream       bool              `json:"stream"`
	Metadata     map[string]string `json:"metadata"`
	refusedFields
}

// inputItem is an item of a request's input.
type inputItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	RequestID string          `json:"approval_request_id"`
	Approve   bool            `json:"approve"`
	Reason    string          `json:"reason"`
}

// createResponse serves the creation of a response.
func (d *Door) createResponse(ctx context.Context, c *call) (any, error) {
	var in responseRequest
	if err := decode(c.body, &in); err != nil {
		return nil, err
	}
	q, err := c.responseTurn(ctx, &in)
	if err != nil {
		return nil, err
	}
	b, err := d.begin(ctx, q)
	for err == nil && b.task != nil && (in.Background || in.Stream) { // the answer has the id first
		var lost bool
		if lost, err = settle(ctx, q, b); !lost {
			break
		}
		b, err = d.begin(ctx, q)
	}
	if err != nil {
		return nil, err
	}
	a := &answer{part: part{run: b.run, after: b.after}, model: q.workflow.Name, conversation: q.conversation, previous: in.Previous, created: time.Now().Unix(), background: in.Background, status: statusWorks}
	switch {
	case in.Stream:
		return nil, d.streamResponse(ctx, c, q, b, a)
	case in.Background:
		if b.follower != nil {
			b.follower.Close()
		}
		b.free()
		a.status = statusQueued
		return a.object(), nil
	}
	o, err := d.follow(ctx, q, &b, nil)
	if err != nil {
		return nil, err
	}
	a.run = b.run
	a.ended(o)
	asks, err := d.questions(ctx, c.caller, a, o)
	a.text = turn.Join(a.text, asks)
	return a.object(), err
}

const (
	// settleWithin is how long a request waits until its task is accepted, and settleAgain
	// the first pause between two checks; each further one is twice as long.
	settleWithin, settleAgain = 5 * time.Second, 2 * time.Millisecond
)

// settle waits until the task of a request is accepted. lost reports that another task has
// its id.
func settle(ctx context.Context, q *request, b *begun) (lost bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	for pause := settleAgain; ; pause *= 2 {
		known, err := q.caller.Client.Known(ctx, q.workflow.Name, []messages.Task{*b.task})
		switch {
		case err != nil:
			return false, err
		case errors.Is(known[0], run.ErrKeyReused):
			b.follower.Close()
			b.free()
			return true, nil
		case known[0] != nil:
			return false, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false, nil // its run is queued
		}
	}
}

// responseTurn returns the turn that a request asks for.
func (c *call) responseTurn(ctx context.Context, in *responseRequest) (*request, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	q := &request{caller: c.caller, body: c.digestOf(), retry: c.retry()}
	if in.Instructions != "" {
		q.rows = append(q.rows, row{roleSystem, in.Instructions})
	}
	if err := q.readInput(in.Input); err != nil {
		return nil, err
	}
	var err error
	if q.tags, err = tagsOf(in.Metadata); err == nil {
		q.workflow, err = c.workflow(ctx, in.Model)
	}
	if err != nil {
		return nil, err
	}
	if in.Previous != "" {
		if set(in.Conversation) {
			return nil, wrong("conversation", "the request has a previous_response_id, too", "send one of both")
		}
		p, err := partOf(idResponse, in.Previous)
		if err == nil {
			err = c.caller.Sees(ctx, p.run)
		}
		q.previous = p.run
		return q, err
	}
	if !set(in.Conversation) {
		return q, nil
	}
	var named struct{ ID string }
	if json.Unmarshal(in.Conversation, &q.conversation) != nil {
		if err := json.Unmarshal(in.Conversation, &named); err != nil {
			return nil, wrong("conversation", "it is neither an id nor an object with one", "send the id")
		}
		q.conversation = named.ID
	}
	_, err = c.session(ctx, q.conversation)
	return q, err
}

// readInput reads the input: a text, or items.
func (q *request) readInput(raw json.RawMessage) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		q.rows = append(q.rows, row{roleUser, text})
		return nil
	}
	var items []inputItem
	if err := json.Unmarshal(raw, &items); err != nil {
		return wrong("input", "it is neither a text nor a list of items", "send the text")
	}
	for i, it := range items {
		field := fmt.Sprintf("input[%d]", i)
		switch it.Type {
		case "", "message":
			role, err := roleOf(field+".role", it.Role)
			if err != nil {
				return err
			}
			text, err := textOf(field+".content", it.Content)
			if err != nil {
				return err
			}
			q.rows = append(q.rows, row{role, text})
		case "reasoning", "mcp_approval_request":
			// as a client resends them
		case "mcp_approval_response":
			p, err := partOf(idApproval, it.RequestID)
			if err != nil || p.step == "" {
				return wrong(field+".approval_request_id", fmt.Sprintf("%q is no request of this server", excerpt.Start(it.RequestID, 80)), "send the id of a request")
			}
			q.approvals = append(q.approvals, approval{p, it.Approve, it.Reason})
		default:
			return wrong(field, fmt.Sprintf("an item of type %q", excerpt.Start(it.Type, 40)), "send messages and answers to approvals")
		}
	}
	if len(q.rows) == 0 && len(q.approvals) == 0 {
		return wrong("input", "it is empty", "send a text")
	}
	return nil
}

// streamResponse answers with the events of a response.
func (d *Door) streamResponse(ctx context.Context, c *call, q *request, b *begun, a *answer) error {
	c.stream()
	e := &eventEncoder{answer: a}
	if err := c.event(e.begin()...); err != nil {
		if b.follower != nil {
			b.follower.Close()
		}
		b.free()
		return errStreamed
	}
	o, err := d.watch(ctx, q.caller, b, func(text string) error {
		if text == "" {
			return c.event()
		}
		return c.event(e.text(text)...)
	})
	if err == nil {
		var asks string
		if asks, err = d.questions(ctx, c.caller, a, o); err == nil {
			if asks != "" && o.text != "" {
				asks = turn.Separator + asks
			}
			o.text += asks
			events := []any{}
			if asks != "" {
				events = e.text(asks)
			}
			_ = c.event(append(events, e.end(o)...)...) // the client has gone if it fails
			return errStreamed
		}
	}
	doc := problem.Of(err)
	failure := errorOf(&doc)["error"].(object)
	_ = c.event("error", object{"type": "error", "sequence_number": e.next(), "code": failure["code"], "message": failure["message"], "param": failure["param"]})
	return errStreamed
}

// eventEncoder encodes a turn as the events of a response, as pairs of a name and an object.
type eventEncoder struct {
	*answer
	sequence int
	begun    bool // the message
}

func (e *eventEncoder) next() int {
	e.sequence++
	return e.sequence - 1
}

// event returns an event with fields.
func (e *eventEncoder) event(kind string, fields object) []any {
	fields["type"], fields["sequence_number"] = kind, e.next()
	return []any{kind, fields}
}

// begin returns the events at the beginning of a response.
func (e *eventEncoder) begin() []any {
	return append(e.event("response.created", object{"response": e.object()}), e.event("response.in_progress", object{"response": e.object()})...)
}

// inMessage returns an event about the text.
func (e *eventEncoder) inMessage(kind string, fields object) []any {
	fields["item_id"], fields["output_index"], fields["content_index"] = idMessage+e.String(), 0, 0
	return e.event(kind, fields)
}

// text returns the events of a piece of text.
func (e *eventEncoder) text(piece string) (out []any) {
	if !e.begun {
		e.begun = true
		out = append(out, e.event("response.output_item.added", object{"output_index": 0, "item": e.message(statusWorks)})...)
		out = append(out, e.inMessage("response.content_part.added", object{"part": textPart("")})...)
	}
	return append(out, e.inMessage("response.output_text.delta", object{"delta": piece, "logprobs": []object{}})...)
}

// end returns the events at the end of a response.
func (e *eventEncoder) end(o *outcome) (out []any) {
	e.ended(o)
	index := 0
	if e.begun {
		index = 1
		out = append(out, e.inMessage("response.output_text.done", object{"text": e.answer.text, "logprobs": []object{}})...)
		out = append(out, e.inMessage("response.content_part.done", object{"part": textPart(e.answer.text)})...)
		out = append(out, e.event("response.output_item.done", object{"output_index": 0, "item": e.message(statusCompleted)})...)
	}
	for i, item := range e.approvals {
		for _, kind := range []string{"response.output_item.added", "response.output_item.done"} {
			out = append(out, e.event(kind, object{"output_index": index + i, "item": item})...)
		}
	}
	kind := "response." + e.status
	if e.status == statusCancelled { // the protocol has no event of its own
		kind = "response." + statusFailed
	}
	return append(out, e.event(kind, object{"response": e.object()})...)
}
