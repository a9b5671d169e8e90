// Package stepper stores in a context the engine that executes the steps of a run.
// internal/engine stores it, and the functions of package flow read it, as the interface
// that flow declares. Authors of workflows see neither.
package stepper

import (
	"context"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
)

type key struct{}

// With returns a context that holds s, which implements the interface of package flow.
func With(ctx context.Context, s any) context.Context { return context.WithValue(ctx, key{}, s) }

// Of returns the engine in a context, nil outside of a run.
func Of(ctx context.Context) any { return ctx.Value(key{}) }

// Case is one of the waits of flow.Select.
type Case struct {
	Wait    journal.Wait
	Timeout time.Duration
	Out     any // points to the outcome
}
