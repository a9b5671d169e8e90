package flow

import (
	"context"

	"github.com/rathcluster/rath/session"
)

// Workflow transforms a session. Forward may be called concurrently by several runs, so a
// workflow holds parameters and no state.
type Workflow interface {
	Forward(ctx context.Context, s session.Session) (session.Session, error)
}

// Func is a function as a Workflow.
type Func func(ctx context.Context, s session.Session) (session.Session, error)

// Forward calls f.
func (f Func) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	return f(ctx, s)
}

// Sequence returns the workflow that runs ws one after the other on one
// session and stops at the first error.
func Sequence(ws ...Workflow) Workflow { return sequence(ws) }

type sequence []Workflow

func (q sequence) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	var err error
	for _, w := range q {
		if s, err = w.Forward(ctx, s); err != nil {
			return s, err
		}
	}
	return s, nil
}

// EmptyWorkflow does nothing. A [Selector] returns it when the work is done.
type EmptyWorkflow struct{}

// Forward returns s.
func (EmptyWorkflow) Forward(_ context.Context, s session.Session) (session.Session, error) {
	return s, nil
}

// Described gives a workflow the name and the description that a [Selector] shows to the
// model.
func Described(name, description string, w Workflow) Workflow {
	return described{w, name, description}
}

type described struct {
	Workflow
	name, description string
}
