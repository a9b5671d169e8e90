package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/form"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/schema"
	"github.com/rathcluster/rath/internal/engine/live"
	"github.com/rathcluster/rath/internal/engine/question"
	"github.com/rathcluster/rath/internal/engine/transcript"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/tool"
)

// A call that asks a question ends with the question, which is its record. The run then
// waits as for an approval. With the answer the call is repeated from its beginning, as a
// step below the previous one: it asks the same question and gets the answer from the
// journal.

// Limits of the questions of a call: their number, and the bytes of a message.
const (
	maxQuestions = 16
	maxAsks      = 4 << 10
)

// asking is the error of a call with an unanswered question.
type asking struct{ journal.Asked }

func (*asking) Error() string {
	return "a person is asked; the call is made again with the answer"
}

// answered is the question of a former try of a call, with its answer.
type answered struct {
	journal.Asked
	action  string
	content json.RawMessage // of an accepted question
	given   bool            // to the current try
}

// Decisions about a question.
const (
	accepts  = "accept"
	declines = "decline"
	dismiss  = "cancel"
)

// ask is tool.Call.Ask.
func (c *toolCall) ask(_ context.Context, message string, answer json.RawMessage) (action string, content json.RawMessage, err error) {
	q := journal.Asked{Message: message}
	if len(message) > maxAsks {
		q.Message = excerpt.Clip(message, maxAsks-len("…")) + "…"
	}
	if len(answer) > 0 {
		q.Schema = transcript.Compact(string(answer))
	}
	if len(q.Schema) > form.MaxSchema {
		return "", nil, fmt.Errorf("the schema of the answer has %d bytes, at most %d are taken", len(q.Schema), form.MaxSchema)
	}
	if q.Schema != "" {
		if _, err := schema.Refuses(json.RawMessage(q.Schema), map[string]any{}); err != nil {
			return "", nil, fmt.Errorf("the schema of the answer: %w", err)
		}
	}
	c.asking.Lock()
	defer c.asking.Unlock()
	for i := range c.answers {
		if a := &c.answers[i]; a.Asked == q && !a.given {
			a.given = true
			return a.action, a.content, nil
		}
	}
	if len(c.answers) == maxQuestions {
		return "", nil, &tool.Failure{Kind: tool.Exception, Detail: c.Name, Message: fmt.Sprintf("the call asked a person %d times, which is the most; do without it", maxQuestions)}
	}
	return "", nil, &asking{q}
}

// renew resets the answers, so that the next try gets them from the first on.
func (c *toolCall) renew() {
	c.asking.Lock()
	defer c.asking.Unlock()
	for i := range c.answers {
		c.answers[i].given = false
	}
}

// asked returns the question of a call for its readers.
func (c *toolCall) asked(path run.Path) journal.Wait {
	return journal.Wait{
		Detail: question.Detail(*c.asks), Kind: run.WaitApproval, Name: c.Name, Path: path, Schema: cmp.Or(c.asks.Schema, `{"type":"object"}`),
		Title: c.Name + " asks: " + question.OneLine(c.asks.Message, maxTitle/4),
	}
}

// answerStep returns the step that takes the answer to the question of a call.
func (r *round) answerStep(c *toolCall) *step {
	return r.callStep(c, c.st.asked.Path.Child("answer"), journal.StepAwait)
}

// replayAnswer takes over the recorded answer to a question of a call, and reports
// whether there is one.
func (r *round) replayAnswer(c *toolCall) (bool, error) {
	st := r.answerStep(c)
	if err := st.decide(); err != nil || st.decision != journal.Replay {
		return false, err
	}
	return true, r.applyAnswer(c, st.record.StepCompleted)
}

// applyAnswer applies the answer to the question of a call, and prepares the next try.
func (r *round) applyAnswer(c *toolCall, d journal.StepCompleted) error {
	given := answered{Asked: *c.asks, action: dismiss}
	if d.Code == "" {
		var a flow.Approval
		if err := decode(d, &a); err != nil {
			return err
		}
		given.action = declines
		if a.Approved {
			given.action, given.content = accepts, a.Value
		}
	}
	c.answers = append(c.answers, given)
	c.asks = nil
	next := c.st.asked
	next.Path = next.Path.Child("again")
	c.st = r.ex.newStep(r.ctx, r.base.Key(), r.base, next)
	c.st.tries = &tries{policy: c.tries.policy, work: next}
	c.tries = c.st.tries
	return nil
}

// answers waits for the answers to the questions of calls, and reports whether there were
// any, so that the calls are repeated.
func (r *round) answers(calls []*toolCall) (again bool, err error) {
	for {
		var open []openQuestion
		for _, c := range calls {
			if c.asks != nil {
				st := r.answerStep(c)
				open = append(open, openQuestion{c, st, c.asked(st.asked.Path)})
			}
		}
		if len(open) == 0 {
			return again, nil
		}
		again = true
		if err := r.answered(open, func(c *toolCall, d journal.StepCompleted) error {
			if err := r.applyAnswer(c, d); err != nil {
				return err
			}
			if err := r.replayCall(c); err != nil {
				return err
			}
			c.st.fly(live.Queues, cmp.Or(c.edited, c.Args))
			return nil
		}); err != nil {
			return again, err
		}
	}
}
