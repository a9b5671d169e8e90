package flowtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Question is what a run waits for from outside.
type Question struct {
	Run  run.ID
	Step run.Path
	// Kind is run.WaitApproval, run.WaitResponse or run.WaitMessage.
	Kind string
	// Name is that of the step, or of the tool whose call a person has to approve.
	Name string
	// Title and Detail are what people read. Detail holds the arguments of a call
	// that has to be approved.
	Title, Detail string
}

// String names the question.
func (q Question) String() string {
	return fmt.Sprintf("run %s waits at step %s for %s: %q, %q", q.Run, q.Step, kinds[q.Kind], q.Name, q.Title)
}

var kinds = map[string]string{
	run.WaitApproval: "an approval", run.WaitResponse: "a response", run.WaitMessage: "a message",
}

// errUnanswered stops a run that waits for what no answer serves.
var errUnanswered = errors.New("no answer serves it: set Options.Answer, or have it return a value for this question")

// answers serves the questions of one process.
type answers struct {
	b    *bench
	p    *process
	stop context.CancelCauseFunc // ends the run, for the reason
}

// serve answers what a run begins to wait for. What is decided already is left.
func (a *answers) serve(ctx context.Context, k session.Key, w journal.RunWaiting) {
	for _, one := range w.For {
		if kinds[one.Kind] == "" {
			continue // the clock, or the branches, end it
		}
		q := Question{Run: w.Run, Step: one.Path, Kind: one.Kind, Name: one.Name, Title: one.Title, Detail: one.Detail}
		err := a.answer(ctx, k, q)
		// The process may have died, and what it was told came too late then.
		if err != nil && !errors.Is(err, run.ErrState) && !errors.Is(err, errDead) && ctx.Err() == nil {
			a.stop(fmt.Errorf("%v: %w", q, err))
			return
		}
	}
}

// answer asks the author of the test, and brings the answer to the run.
func (a *answers) answer(ctx context.Context, k session.Key, q Question) error {
	a.b.answering.Lock()
	defer a.b.answering.Unlock()
	if open, err := a.waits(ctx, k, q); err != nil || !open {
		return err
	}
	if a.b.o.Answer == nil {
		return errUnanswered
	}
	v, err := a.b.o.Answer(q)
	switch {
	case errors.Is(err, run.ErrExpired):
		return nil // the clock goes on to the end of the wait
	case err != nil:
		return err
	case v == nil:
		return errUnanswered
	}
	s, err := q.signal(v)
	if err != nil {
		return err
	}
	s.Path, s.ID = q.Step, "answer-"+string(q.Step)
	return a.p.rt.Signal(ctx, journal.Signal{To: k, Run: q.Run, Received: s})
}

// waits reports whether the log says that a question is open.
func (a *answers) waits(ctx context.Context, k session.Key, q Question) (bool, error) {
	m, err := journal.LoadStateMachine(ctx, a.p.log, a.p.rt.Values, k, "")
	if err != nil {
		return false, err
	}
	r := m.RunState().Run(q.Run)
	return r != nil && r.State == run.Waiting && slices.ContainsFunc(r.Suspended.For, func(w journal.Wait) bool {
		return w.Path == q.Step && !w.Came(r.Inbox())
	}), nil
}

// signal is an answer as the run receives it.
func (q Question) signal(v any) (*journal.SignalReceived, error) {
	switch q.Kind {
	case run.WaitApproval:
		a, ok := v.(flow.Approval)
		if !ok {
			return nil, fmt.Errorf("the answer to an approval is a flow.Approval, not a %T", v)
		}
		s := &journal.SignalReceived{Kind: journal.Refuse, By: cmp.Or(a.By, "test"), Reason: a.Reason, Value: string(a.Value)}
		if a.Approved {
			s.Kind = journal.Approve
		}
		return s, nil
	case run.WaitMessage:
		text, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("the answer to a message is a string, not a %T", v)
		}
		return &journal.SignalReceived{Kind: journal.Message, By: "test", Text: text}, nil
	}
	value, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("the answer is nothing that JSON can hold: %w", err)
	}
	return &journal.SignalReceived{Kind: journal.Respond, By: "test", Value: string(value)}, nil
}
