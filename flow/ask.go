package flow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// AwaitOptions change what a step waits for; nil means the defaults.
type AwaitOptions struct {
	// Title and Detail tell people what is asked, such as a [Diff]. They are cut to 1 KiB
	// and to 16 KiB.
	Title, Detail string
	// Timeout is after how long the step gives up with run.ErrExpired; zero is
	// journal.DefaultExpiry, and less is up at once. It is counted from the commit that asks.
	Timeout time.Duration
}

// Await waits until a response to this step brings a value: `rath
// answer`, client.Respond, or a request on rath.ctl.<tenant>.<user>.<run>.respond
// that names the step's path. T must survive JSON. An answer that is no T is refused
// before it is recorded, by the JSON schema of T that the question has: whoever gave it
// learns the wanted type, and the run waits on. One that only T's own UnmarshalJSON or
// UnmarshalText refuses is recorded and asked for again. Numbers of 64 bits that are within
// 1024 of their ends are refused.
//
// A waiting run holds nothing but its session: no goroutine, no slot, no
// sandbox. Await then returns run.ErrSuspended, which Forward returns like any
// error; once the answer is in the log the run goes on, here or on another
// node, by running Forward again up to this step. On a node it stays for a moment
// before that, without slot and sandbox, and an answer that comes so soon is
// simply returned.
func Await[T any](ctx context.Context, name string, o *AwaitOptions) (T, error) {
	if o == nil {
		o = &AwaitOptions{}
	}
	return await[T](ctx, journal.Wait{Kind: run.WaitResponse, Name: name, Title: o.Title, Detail: o.Detail}, o.Timeout)
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

// Sleep waits for a while. Only a timer that is recorded ends it, so a run that
// sleeps holds nothing and survives restarts.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	e, err := engineOf(ctx)
	if err != nil {
		return err
	}
	err = e.Await(ctx, journal.Wait{Kind: run.WaitTimer, Name: "sleep", Title: "sleeps " + d.String()}, d, nil)
	if errors.Is(err, run.ErrExpired) {
		return nil
	}
	return err
}

// Approval is a person's decision.
type Approval struct {
	Approved bool   `json:"approved"`
	By       string `json:"by,omitempty"` // the NATS user, whose credentials the server checked
	Reason   string `json:"reason,omitempty"`
	Says     string `json:"says,omitempty"` // who the request claims to be from: nothing proves it
	// Value is what the person changed, as JSON; nil if nothing.
	Value json.RawMessage `json:"value,omitempty"`
}

// Approve asks a person the question of that name and waits for the decision as
// [Await] does. The answer comes by `rath answer`, or on rath.ctl.
func Approve(ctx context.Context, name string, o *AwaitOptions) (Approval, error) {
	if o == nil {
		o = &AwaitOptions{}
	}
	return await[Approval](ctx, journal.Wait{Kind: run.WaitApproval, Name: name, Title: cmp.Or(o.Title, name), Detail: o.Detail}, o.Timeout)
}

// Listen waits for the user's next words and returns s with them as chunks.
func Listen(ctx context.Context, s session.Session, o *AwaitOptions) (session.Session, error) {
	if o == nil {
		o = &AwaitOptions{}
	}
	e, err := engineOf(ctx)
	if err != nil {
		return s, err
	}
	return e.Listen(ctx, s, journal.Wait{Kind: run.WaitMessage, Name: "listen", Title: o.Title, Detail: o.Detail}, o.Timeout)
}
