package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/excerpt"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/tool"
)

// A call that asks a person ends with its question, which is its record. The run then waits
// as for an approval. With the answer the call is made again, from its beginning, as a step
// below the one before: it asks the same and gets the answer from the journal.

// Limits of what calls ask: so often, with so long a message and schema, in bytes.
const (
	maxQuestions = 16
	maxAsks      = 4 << 10
	maxAskSchema = 16 << 10
)

// asking is the error of a call that asks what nothing answers.
type asking struct{ journal.Asked }

func (*asking) Error() string {
	return "a person is asked; the call is made again with the answer"
}

// answered is what a former try of a call asked, with the answer.
type answered struct {
	journal.Asked
	action  string
	content json.RawMessage // of what is accepted
	given   bool            // to the try under way
}

// What a person does about a question.
const (
	accepts  = "accept"
	declines = "decline"
	dismiss  = "cancel"
)

// ask is tool.Call.Ask.
func (c *toolCall) ask(_ context.Context, message string, schema json.RawMessage) (action string, content json.RawMessage, err error) {
	q := journal.Asked{Message: message}
	if len(message) > maxAsks {
		q.Message = excerpt.Clip(message, maxAsks-len("…")) + "…"
	}
	if len(schema) > 0 {
		q.Schema = compact(string(schema))
	}
	if len(q.Schema) > maxAskSchema {
		return "", nil, fmt.Errorf("the schema of the answer has %d bytes, at most %d are taken", len(q.Schema), maxAskSchema)
	}
	if _, err := tool.NewTable(values{q.Schema}); err != nil {
		return "", nil, fmt.Errorf("the schema of the answer: %w", err)
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

// renew has the next try be given the answers from the first on.
func (c *toolCall) renew() {
	c.asking.Lock()
	defer c.asking.Unlock()
	for i := range c.answers {
		c.answers[i].given = false
	}
}

// values are a tool whose arguments are the values of an answer, so that they are checked
// as arguments are.
type values struct{ schema string }

// Spec implements tool.Tool.
func (v values) Spec() tool.Spec {
	return tool.Spec{Name: "answer", Description: "What a person answers.", Schema: json.RawMessage(v.schema)}
}

// Call implements tool.Tool. Nothing calls it.
func (values) Call(context.Context, tool.Call) (tool.Result, error) {
	return tool.Result{}, errors.ErrUnsupported
}

// check returns the values of an answer with those that the schema has by default, or why
// they cannot be taken.
func check(schema string, given json.RawMessage) (content json.RawMessage, why string) {
	object := map[string]json.RawMessage{}
	if len(given) > 0 && (json.Unmarshal(given, &object) != nil || object == nil) {
		return nil, "it is no JSON object"
	}
	all, _ := properties(schema)
	for name, p := range all {
		if _, ok := object[name]; !ok && p.Default != nil {
			object[name] = p.Default
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err.Error()
	}
	table, err := tool.NewTable(values{schema})
	if err != nil {
		return nil, err.Error()
	}
	_, args, err := table.Bind("answer", string(text))
	if f, ok := errors.AsType[*tool.Failure](err); ok {
		return nil, strings.TrimPrefix(f.Message, "the arguments do not match the schema: ")
	}
	return args, ""
}

// CheckAnswer refuses a yes to what a call asks whose values the schema of the question
// refuses, as run.ErrMalformed, so that who gives it learns at once. It takes what it finds
// no schema for: the run checks again.
func CheckAnswer(ctx context.Context, v *journal.Values, s journal.Signal) error {
	if s.Received == nil || s.Received.Kind != journal.Approve {
		return nil
	}
	at := strings.LastIndex(string(s.Received.Path), ".answer.")
	if at < 0 {
		return nil
	}
	g, err := v.Recorded(ctx, s.To, s.Run)
	if err != nil {
		return nil // as what applies the signal finds, too
	}
	for _, st := range g.Record.Steps() {
		if st.Path != s.Received.Path[:at] || st.Asks == nil {
			continue
		}
		if _, why := check(st.Asks.Schema, json.RawMessage(s.Received.Value)); why != "" {
			return fmt.Errorf("the values are not those that step %s of run %s asks for: %s: %w; %q shows what it takes", s.Received.Path, s.Run, oneLine(why, 2*maxShown), run.ErrMalformed, "rath answer "+string(s.Run))
		}
	}
	return nil
}

// asked is the question of a call as people see it.
func (c *toolCall) asked(path run.Path) journal.Wait {
	return journal.Wait{
		Detail: detail(*c.asks, c.why), Kind: run.WaitApproval, Name: c.Name, Path: path,
		Title: c.Name + " asks: " + oneLine(c.asks.Message, maxTitle/4),
	}
}

// answerStep is the step that takes the answer to what a call asks. An answer that the
// schema refuses has another one after it.
func (r *round) answerStep(c *toolCall) (*step, error) {
	st := &step{ex: r.ex, ctx: r.ctx, log: r.ex.home, began: time.Now()}
	st.asked = journal.StepRequest{Path: c.st.asked.Path.Child("answer").Index(c.misses), Kind: journal.StepAwait, Name: c.Name, Input: blob.Sum([]byte(c.Args)).Short()}
	return st, st.decide()
}

// replayAnswers takes over the recorded answers to what a call asks, and reports whether
// the last one was taken.
func (r *round) replayAnswers(c *toolCall) (bool, error) {
	for {
		st, err := r.answerStep(c)
		if err != nil || st.decision != journal.Replay {
			return false, err
		}
		if taken, err := r.applyAnswer(c, st.record.StepCompleted); err != nil || taken {
			return taken, err
		}
	}
}

// applyAnswer takes a person's answer to what a call asks, and prepares the next try. It
// reports false for one that the schema refuses.
func (r *round) applyAnswer(c *toolCall, d journal.StepCompleted) (bool, error) {
	given := answered{Asked: *c.asks, action: dismiss}
	if d.Code == "" {
		var a flow.Approval
		if err := decode(d, &a); err != nil {
			return false, err
		}
		given.action = declines
		if a.Approved {
			given.action = accepts
			if given.content, c.why = check(c.asks.Schema, a.Value); c.why != "" {
				c.misses++
				return false, nil
			}
		}
	}
	c.answers = append(c.answers, given)
	c.asks, c.misses, c.why = nil, 0, ""
	next := c.st.asked
	next.Path = next.Path.Child("again")
	c.st = &step{ex: r.ex, ctx: r.ctx, s: r.base, log: r.base.Key(), began: time.Now(), asked: next}
	return true, nil
}

// answers waits for the answers to what calls ask, and reports whether any asked, so that
// it is made again.
func (r *round) answers(calls []*toolCall) (again bool, err error) {
	for {
		var open []question
		var waits []journal.Wait
		for _, c := range calls {
			if c.asks == nil {
				continue
			}
			st, err := r.answerStep(c)
			if err != nil {
				return again, err
			}
			open = append(open, question{c: c, st: st, w: c.asked(st.asked.Path)})
			waits = append(waits, open[len(open)-1].w)
		}
		if len(open) == 0 {
			return again, nil
		}
		inbox, err := r.ex.wait(r.ctx, waits, r.gate.within)
		if err != nil {
			return again, err
		}
		for _, g := range open {
			d, err := answer(g.w, inbox)
			if err != nil {
				return again, err
			}
			if _, err := g.st.commit(d); err != nil {
				return again, err
			}
			r.ex.take(0, g.w.Path)
			taken, err := r.applyAnswer(g.c, d)
			if err == nil && taken {
				again = true
				err = r.replayCall(g.c)
			}
			if err != nil {
				return again, err
			}
			if taken {
				g.c.st.fly(Queues, cmp.Or(g.c.edited, g.c.Args))
			}
		}
	}
}
