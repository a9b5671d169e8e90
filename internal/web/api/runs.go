package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// listRuns answers with a page of runs. A narrow token gets its own ones.
func listRuns(ctx context.Context, c *call) (any, error) {
	q, err := c.page()
	if err != nil {
		return nil, err
	}
	q.Workflow, q.Where = c.text("workflow"), c.text("where")
	for _, s := range c.query["state"] {
		q.States = append(q.States, run.State(s))
	}
	by := c.text("by")
	if c.caller.Narrow() {
		by = c.caller.User
	}
	if by != "" {
		if err := messages.ValidUser(by); err != nil {
			return nil, &strict.Error{Message: "query", Field: "by", Problem: messages.Text(err), Remedy: "send the name of a user"}
		}
		if q.Where != "" {
			q.Where = " and (" + q.Where + ")"
		}
		q.Where = "by=" + by + q.Where
	}
	if !c.caller.Narrow() {
		return c.ask(ctx, messages.QueryRuns, q)
	}
	page, err := c.runs(ctx, q)
	if err != nil {
		return nil, err
	}
	own := wire.Runs{Runs: []messages.RunInfo{}, Next: page.Next}
	for i := range page.Runs {
		mine, err := c.caller.Owns(ctx, &page.Runs[i])
		if err != nil {
			return nil, err
		}
		if mine {
			own.Runs = append(own.Runs, page.Runs[i])
		}
	}
	return own, nil
}

// aboutRun returns a handler that answers with the reply to a query about the run.
func aboutRun(verb string) func(ctx context.Context, c *call) (any, error) {
	return func(ctx context.Context, c *call) (any, error) { return c.ask(ctx, verb, wire.Query{Run: c.run()}) }
}

// maxWait is how long an answer waits for the end of a run.
const maxWait = 30

// result answers with the result of a run, after a wait for it.
func result(ctx context.Context, c *call) (any, error) {
	wait, err := c.number("wait_s", maxWait)
	if err != nil {
		return nil, err
	}
	data, err := c.ask(ctx, messages.QueryResult, wire.Query{Run: c.run()})
	if wait == 0 || !errors.Is(err, run.ErrState) && !errors.Is(err, run.ErrUnknownRun) { // no node has its task yet
		return data, err
	}
	waiting, cancel := context.WithTimeout(ctx, time.Duration(wait)*time.Second)
	defer cancel()
	r, waited := c.client().Wait(waiting, c.run())
	if waited != nil && ctx.Err() == nil && errors.Is(waited, context.DeadlineExceeded) {
		return nil, err // as without a wait
	}
	return r, waited
}

// control returns a handler for a control request about the run.
func control(verb string, send func(ctx context.Context, c *call, d messages.Control) error) func(ctx context.Context, c *call) (any, error) {
	return func(ctx context.Context, c *call) (any, error) {
		d, err := c.control(verb)
		if err != nil {
			return nil, err
		}
		return done(send(ctx, c, d))
	}
}

func cancel(ctx context.Context, c *call, d messages.Control) error {
	return c.client().Runs.Cancel(ctx, c.run(), d)
}

func resolve(ctx context.Context, c *call, d messages.Control) error {
	return c.client().Runs.Resolve(ctx, c.run(), d)
}

func quarantine(ctx context.Context, c *call, d messages.Control) error {
	return c.client().Runs.Quarantine(ctx, c.run(), d)
}

func publish(ctx context.Context, c *call, d messages.Control) error {
	return c.client().Publish(ctx, d.Event, d.Key, d)
}

func release(ctx context.Context, c *call, d messages.Control) error {
	return c.client().Runs.Release(ctx, c.run(), d)
}

func rebudget(ctx context.Context, c *call, d messages.Control) error {
	return c.client().Runs.Rebudget(ctx, c.run(), d)
}

func message(ctx context.Context, c *call, d messages.Control) error {
	return c.client().Runs.Message(ctx, c.run(), d)
}

// rerunning is the body of a request to do a run again; it may be empty.
type rerunning struct {
	// Repeat allows calls to happen again that must not happen twice.
	Repeat bool `json:"repeat,omitempty"`
}

func rerun(ctx context.Context, c *call) (any, error) {
	var in rerunning
	if len(c.body) > 0 {
		if err := c.decode("rerun", &in); err != nil {
			return nil, err
		}
	}
	id, err := c.client().Runs.Rerun(ctx, c.run(), messages.Control{Repeat: in.Repeat})
	return named{id}, err
}

// resuming is the body of a request to continue a run.
type resuming struct {
	// From is a step of the workflow itself, such as "4"; empty is the one that failed.
	From run.Path `json:"from,omitempty"`
	// Model and Budget replace those of the task.
	Model  string           `json:"model,omitempty"`
	Budget *messages.Budget `json:"budget,omitempty"`
	// ID makes the request idempotent.
	ID string `json:"id,omitempty"`
}

func resume(ctx context.Context, c *call) (any, error) {
	var in resuming
	if err := c.decode("resume", &in); err != nil {
		return nil, err
	}
	id, err := c.client().Runs.Resume(ctx, c.run(), messages.Control{Step: in.From, Model: in.Model, Budget: in.Budget, ID: in.ID})
	return named{id}, err
}

// answered is the body of an answer to a question.
type answered struct {
	// Answer is approve, reject or respond.
	Answer string `json:"answer"`
	// Step is the path of the question; a run with one open question needs none.
	Step run.Path `json:"step,omitempty"`
	// Value is the answer of respond, or replaces the subject of an approved question.
	Value  json.RawMessage `json:"value,omitempty"`
	Reason string          `json:"reason,omitempty"`
	By     string          `json:"by,omitempty"`
	ID     string          `json:"id,omitempty"`
	// Digest is the digest of the question as it was shown. If the question has another one
	// now, the answer is not recorded.
	Digest string `json:"digest,omitempty"`
}

// answer answers a question of a run.
func answer(ctx context.Context, c *call) (any, error) {
	var a answered
	if err := c.decode("answer", &a); err != nil {
		return nil, err
	}
	send := map[string]func(context.Context, run.ID, messages.Control) error{
		messages.VerbApprove: c.client().Questions.Approve, messages.VerbReject: c.client().Questions.Reject, messages.VerbRespond: c.client().Questions.Answer,
	}[a.Answer]
	if send == nil {
		return nil, &strict.Error{Message: "answer", Field: "answer", Problem: fmt.Sprintf("%q is none", excerpt.Start(a.Answer, 40)), Remedy: "send approve, reject or respond"}
	}
	d := messages.Control{Step: a.Step, Value: a.Value, Reason: a.Reason, By: a.By, ID: a.ID}
	if a.Step != "" {
		if err := d.Check(a.Answer); err != nil {
			return nil, err
		}
	}
	if a.Digest != "" {
		q, err := questionOf(ctx, c, a.Step)
		if err != nil {
			return nil, err
		}
		if q.Digest != a.Digest {
			return nil, errStale
		}
		d.Step = q.Question.Step
	}
	return done(send(ctx, c.run(), d))
}
