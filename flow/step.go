package flow

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// Info says what a run is asked for, and where in it the caller is.
type Info struct {
	Run      run.ID
	Session  session.Key // the home session
	Workflow string
	Tenant   session.Tenant
	Deadline time.Time
	// Input, Model, Tools and MCP, the names of servers, are what the task asks for.
	Input json.RawMessage
	Model string
	Tools []string
	MCP   []string

	Attempt   uint64
	Path      run.Path // of the next step; inside of a step, its own
	Name      string   // of the agent, tool or function whose step is under way; "" between steps
	Replaying bool     // the next step is recorded already
}

// RunInfo returns where ctx is in a run; ok is false outside of one.
func RunInfo(ctx context.Context) (i Info, ok bool) {
	e, err := engineOf(ctx)
	if err != nil {
		return Info{}, false
	}
	return e.Info(), true
}

// Now returns the time of the last recorded step of the run, the same on every
// execution. It needs no step of its own. Inside of a step, in Do's function, a
// tool or a hook, it is what the clock says. Outside of a run it is zero.
func Now(ctx context.Context) time.Time {
	e, err := engineOf(ctx)
	if err != nil {
		return time.Time{}
	}
	return e.Now()
}

// NewID returns an id of 32 hexadecimal digits, the same on every execution of
// the run and different from every other one. Inside of a step, in Do's function,
// a tool or a hook, it is drawn at random: replay does not come there, and what
// the step returns is recorded. Outside of a run it is empty.
func NewID(ctx context.Context) string {
	e, err := engineOf(ctx)
	if err != nil {
		return ""
	}
	return e.NewID()
}

// Do runs fn once and records what it returned, value or error; later
// executions of the run get the record. T must survive JSON: the caller gets the decoded
// value each time, and a set field that JSON drops is an error that names it. What fn gets is for
// its work alone: steps that it tries to make fail with run.ErrNestedStep. An error of fn
// about another run, that it was cancelled for example, comes back as its text alone.
//
// The effect says what happens if fn is cut off between what it does and the record of
// it. A tool.NonIdempotent one is announced in the log before it starts, and a run that
// was cut off inside waits for a person. Functions of other effects run again.
func Do[T any](ctx context.Context, name string, fn func(context.Context) (T, error), effect tool.Effect) (T, error) {
	var value, zero T
	e, err := engineOf(ctx)
	if err != nil {
		return zero, err
	}
	err = e.Do(ctx, name, effect, &value, func(ctx context.Context) (err error) {
		value, err = fn(ctx)
		return err
	})
	if err != nil {
		return zero, err // as a later execution does: what fn returned beside an error is not recorded
	}
	return value, nil
}

// ChangeVersion returns which version of a change to the workflow's code holds for this
// run, so that runs that are open while the code changes go on with the code that they
// began with:
//
//	if v, err := flow.ChangeVersion(ctx, "review-twice", 0, 1); err != nil {
//		return s, err
//	} else if v >= 1 {
//		s, err = w.review.Forward(ctx, s) // new
//	}
//
// A run that comes to the first call for the change takes newest, and records it. A run
// that was past that place before, because older code executed it, is of version 0 and
// records nothing. That holds for the whole run and for the branches that it opens
// afterwards: calls that follow make no step. Raise oldest once no open run is older.
// If the run's version lies outside of oldest to newest, because the change was taken
// back or dropped, the error wraps run.ErrMismatch and names both: the run goes to a
// node with the recorded revision, or needs review.
func ChangeVersion(ctx context.Context, change string, oldest, newest int) (int, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return 0, err
	}
	return e.ChangeVersion(ctx, change, oldest, newest)
}

// CallTool runs a tool on a session without a model: one step, one tool_result
// row. args is what the tool gets as JSON.
func CallTool(ctx context.Context, s session.Session, t tool.Tool, args any) (session.Session, tool.Result, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return s, tool.Result{}, fmt.Errorf("flow: arguments of %s: %w", t.Spec().Name, err)
	}
	e, err := engineOf(ctx)
	if err != nil {
		return s, tool.Result{}, err
	}
	return e.CallTool(ctx, s, t, string(text))
}
