package flow

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// AwaitOptions configure a step that waits; nil means the defaults.
type AwaitOptions struct {
	// Title and Detail describe the question to its readers; Detail may be a [Diff]. They
	// are cut to 1 KiB and to 16 KiB.
	Title, Detail string
	// Timeout is the time after which the step fails with run.ErrExpired; zero means 14
	// days, and a negative value fails at once. It is counted from the commit of the
	// question.
	Timeout time.Duration
}

// wait returns a question of a kind, and its timeout.
func (o *AwaitOptions) wait(kind, name string) (journal.Wait, time.Duration) {
	if o == nil {
		o = &AwaitOptions{}
	}
	w := journal.Wait{Kind: kind, Name: name, Title: o.Title, Detail: o.Detail}
	if kind == run.WaitApproval && o.Title == "" {
		w.Title = name
	}
	return w, o.Timeout
}

// Await waits until a response to this step brings a value: `rath answer`,
// client.Questions.Answer, or a request on rath.ctl.<tenant>.<user>.<run>.respond that names the
// step's path. T must survive JSON. The question carries the JSON schema of T. An answer
// that does not match it is rejected before it is recorded: its sender gets the expected
// type, and the run keeps waiting. An answer that only T's own UnmarshalJSON or
// UnmarshalText rejects is recorded, and the question is asked again. Numbers of 64 bits
// within 1024 of their limits are rejected.
//
// A waiting run holds only its session: no goroutine, no slot, no sandbox. Await then
// returns run.ErrSuspended, which Forward returns like any error. Once the answer is in
// the log the run resumes, on this or another node: Forward runs again up to this step.
// On a node, Await first waits for a moment, without slot and sandbox, and returns an
// answer that arrives in that time.
func Await[T any](ctx context.Context, name string, o *AwaitOptions) (T, error) {
	w, timeout := o.wait(run.WaitResponse, name)
	return await[T](ctx, w, timeout)
}

// await returns the answer to w.
func await[T any](ctx context.Context, w journal.Wait, timeout time.Duration) (T, error) {
	var answer, zero T
	e, err := engineOf(ctx)
	if err != nil {
		return zero, err
	}
	if err := e.Await(ctx, w, timeout, &answer); err != nil {
		return zero, err
	}
	return answer, nil
}

// Sleep waits for d. Only a recorded timer ends it, so a sleeping run holds no resources
// and survives restarts.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	e, err := engineOf(ctx)
	if err != nil {
		return err
	}
	err = e.Await(ctx, sleeps(d), d, nil)
	if errors.Is(err, run.ErrExpired) {
		return nil
	}
	return err
}

// sleeps returns the wait of a Sleep.
func sleeps(d time.Duration) journal.Wait {
	return journal.Wait{Kind: run.WaitTimer, Name: "sleep", Title: "sleeps " + d.String()}
}

// Approval is an approver's decision.
type Approval struct {
	Approved bool   `json:"approved"`
	By       string `json:"by,omitempty"` // the NATS user, whose credentials the server checked
	Reason   string `json:"reason,omitempty"`
	Says     string `json:"says,omitempty"` // the claimed sender of the request, not verified
	// Value has the approver's changes, as JSON; nil if there are none.
	Value json.RawMessage `json:"value,omitempty"`
}

// Approve asks an approver the named question and waits for the decision as [Await] does.
// The answer comes by `rath answer`, or on rath.ctl.
func Approve(ctx context.Context, name string, o *AwaitOptions) (Approval, error) {
	w, timeout := o.wait(run.WaitApproval, name)
	return await[Approval](ctx, w, timeout)
}

// Listen waits for the user's next messages and returns s with them as chunks.
func Listen(ctx context.Context, s session.Session, o *AwaitOptions) (session.Session, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return s, err
	}
	w, timeout := o.wait(run.WaitMessage, "listen")
	return e.Listen(ctx, s, w, timeout)
}
