package flow

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/run"
)

// MaxGathered is the maximum number of functions of a Gather.
const MaxGathered = 256

// GatherOptions configure a [Gather]; nil means the defaults.
type GatherOptions struct {
	// Limit is the maximum number of functions that work concurrently; zero is all. A
	// function that waits does not count.
	Limit int
}

// Gather calls functions concurrently, and returns when all of them have returned:
//
//	var rates, terms string
//	err := flow.Gather(ctx, nil,
//		func(ctx context.Context) (err error) {
//			rates, err = flow.Do(ctx, "rates", fetchRates, tool.ReadOnly)
//			return err
//		},
//		func(ctx context.Context) (err error) {
//			terms, err = flow.Await[string](ctx, "terms", nil)
//			return err
//		})
//
// Each function makes its steps, one after the other, with the context that it gets: Do,
// Await, Approve, Select, Sleep, Start, another Gather, and models and tools on sessions of
// its own, such as a [Detach]. It cannot extend a session of the code around it, open a
// FanOut or register a Defer. The steps are below the step of the Gather: 3.0.0, 3.0.1 and
// 3.1.0. A later execution calls the functions again, over the recorded steps, and what
// they do between steps happens again.
//
// The run waits once every function waits or has returned, and goes on with the first
// answer: its questions are open, and its timers are set, from then on. While a function
// works, the questions of the others are closed, and asked again at the next wait, with
// the same timeout.
//
// The functions may wait for one started run: each gets its outcome, in a step of its own. A
// [ChangeVersion] in a function is for this function and the ones of its own Gathers: call
// it before the Gather, so that all functions have one version.
//
// As with an errgroup, the first error cancels the context of the others. They make no
// further step: those return an error that is context.Canceled. Gather returns the errors of
// the functions in their order, joined, without those of the cancelled ones. A function
// whose failure must not end the others returns nil and keeps its error in a variable.
func Gather(ctx context.Context, o *GatherOptions, fns ...func(context.Context) error) error {
	e, err := engineOf(ctx)
	if err != nil {
		return err
	}
	limit := len(fns)
	if o != nil && o.Limit > 0 {
		limit = o.Limit
	}
	switch {
	case len(fns) == 0:
		return nil
	case len(fns) > MaxGathered:
		return fmt.Errorf("flow: a Gather of %d functions: %w; it has at most %d: call it several times, or Start runs", len(fns), run.ErrMalformed, MaxGathered)
	}
	return e.Gather(ctx, limit, fns)
}
