package flow

import (
	"context"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/stepper"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// MaxCases is the maximum number of cases of a Select.
const MaxCases = 64

// Case is one of the things that a [Select] waits for: an *[On].
type Case interface {
	wait() stepper.Case
	get(ctx context.Context) error
}

// On is a [Case] whose outcome is a T.
type On[T any] struct {
	Value T // the outcome, once the case has come first
	on    stepper.Case
	take  func(context.Context) (T, error)
}

func (c *On[T]) wait() stepper.Case {
	w := c.on
	w.Out = &c.Value
	return w
}

func (c *On[T]) get(ctx context.Context) (err error) {
	c.Value, err = c.take(ctx)
	return err
}

// OnAnswer waits for a value, as [Await] does.
func OnAnswer[T any](name string, o *AwaitOptions) *On[T] {
	w, timeout := o.wait(run.WaitResponse, name)
	return &On[T]{on: stepper.Case{Wait: w, Timeout: timeout}, take: func(ctx context.Context) (T, error) { return Await[T](ctx, name, o) }}
}

// OnApproval waits for a decision, as [Approve] does.
func OnApproval(name string, o *AwaitOptions) *On[Approval] {
	w, timeout := o.wait(run.WaitApproval, name)
	return &On[Approval]{on: stepper.Case{Wait: w, Timeout: timeout}, take: func(ctx context.Context) (Approval, error) { return Approve(ctx, name, o) }}
}

// OnMessage waits for messages of the user, as [Listen] does. Its Value is s with them.
func OnMessage(s session.Session, o *AwaitOptions) *On[session.Session] {
	w, timeout := o.wait(run.WaitMessage, "listen")
	return &On[session.Session]{on: stepper.Case{Wait: w, Timeout: timeout}, take: func(ctx context.Context) (session.Session, error) { return Listen(ctx, s, o) }}
}

// OnTimer waits for d, as [Sleep] does. Its Value is the time on the run's clock.
func OnTimer(d time.Duration) *On[time.Time] {
	d = max(d, time.Millisecond)
	return &On[time.Time]{on: stepper.Case{Wait: sleeps(d), Timeout: d}, take: func(ctx context.Context) (time.Time, error) {
		err := Sleep(ctx, d)
		return Now(ctx), err
	}}
}

// OnResult waits for the end of a started run, as [Started.Result] does.
func OnResult(s Started) *On[RunEnd] {
	return &On[RunEnd]{on: stepper.Case{Wait: journal.Wait{Kind: run.WaitRun, Name: string(s.Run)}}, take: func(ctx context.Context) (RunEnd, error) { return s.Result(ctx, 0) }}
}

// Select waits for the first of several things, without resources, like Await, and returns
// its case, whose Value is set:
//
//	approved := flow.OnApproval("deploy", nil)
//	day := flow.OnTimer(24 * time.Hour)
//	switch first, err := flow.Select(ctx, approved, day); {
//	case err != nil:
//		return s, err
//	case first == day:
//		// ask somebody else
//	case approved.Value.Approved:
//		// deploy
//	}
//
// Of several that have come the one that the log of the run had first wins. The others
// end with it: their questions are closed, so that an answer to one is rejected, and their
// timers are off. A message stays unread, for a later Listen, and so does the end of a
// run, for a later Result. If the time of a question is up first, Select returns its case
// with run.ErrExpired. A later execution must have the same cases in the same order.
func Select(ctx context.Context, cases ...Case) (Case, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return nil, err
	}
	if len(cases) == 0 || len(cases) > MaxCases {
		return nil, fmt.Errorf("flow: a Select of %d cases: %w; it has 1 to %d", len(cases), run.ErrMalformed, MaxCases)
	}
	waits := make([]stepper.Case, len(cases))
	for i, c := range cases {
		waits[i] = c.wait()
		if w := waits[i].Wait; w.Kind == run.WaitEvent {
			if err := run.ValidEvent(w.Name, w.Key); err != nil {
				return nil, err
			}
		}
	}
	first, in, err := e.First(ctx, waits)
	if err != nil {
		return nil, err
	}
	return cases[first], cases[first].get(in)
}
