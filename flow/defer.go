package flow

import (
	"context"
	"time"

	"github.com/rathcluster/rath/tool"
)

// DeferOptions configure a compensation.
type DeferOptions struct {
	// Always runs the compensation after success, too.
	Always bool
	// Effect decides the recovery if the compensation is cut off, as in Do.
	Effect tool.Effect
	// Timeout ends the context of the compensation, which then fails; zero is
	// DefaultDeferTimeout.
	Timeout time.Duration
}

// DefaultDeferTimeout is the time that a compensation has by default.
const DefaultDeferTimeout = time.Minute

// Defer registers a compensation: fn runs if the run ends other than by success. It is a
// step, and fn runs later or never:
//
//	id, err := flow.Do(ctx, "reserve", w.reserve, tool.Idempotent)
//	if err != nil {
//		return s, err
//	}
//	err = flow.Defer(ctx, "cancel the reservation", func(ctx context.Context) error {
//		return w.cancel(ctx, id)
//	}, flow.DeferOptions{Effect: tool.Idempotent})
//
// The end of the run names a cleanup run, RUN-cleanup, as the next run of its session,
// before all runs that wait for it. The cleanup run calls Forward again, with the recorded
// steps and without further ones, until the code has registered its compensations. Then it
// executes them, the last first, each as a step like that of Do, so that a compensation
// makes no steps and opens no branches (run.ErrNestedStep). It has a deadline of its own,
// and one step of the run's budget for each compensation, which Defer reserves.
//
// A compensation that fails ends the cleanup run as failed, before the earlier ones. A
// resumption of the cleanup run continues at the failed one. A run that was cleaned up
// cannot be resumed.
//
// A branch of a fan-out has no compensations of its own, and Defer returns
// run.ErrNotSupported there: call it in the workflow around the fan-out.
func Defer(ctx context.Context, name string, fn func(context.Context) error, o DeferOptions) error {
	e, err := engineOf(ctx)
	if err != nil {
		return err
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultDeferTimeout
	}
	return e.Defer(ctx, name, fn, o)
}
