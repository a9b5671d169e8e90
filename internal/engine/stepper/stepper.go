// Package stepper is where a context holds what makes the steps of a run: internal/engine
// puts it there, and the functions of package flow take it from there, as the interface
// that flow knows it by. Authors of workflows see neither.
package stepper

import "context"

type key struct{}

// With returns a context that holds s, which implements the interface of package flow.
func With(ctx context.Context, s any) context.Context { return context.WithValue(ctx, key{}, s) }

// Of returns what a context holds, nil outside of a run.
func Of(ctx context.Context) any { return ctx.Value(key{}) }
