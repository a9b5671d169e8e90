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

// Info describes a run's task and the caller's position in the run.
type Info struct {
	Run      run.ID
	Session  session.Key // the home session
	Workflow string
	Tenant   session.Tenant
	Deadline time.Time
	// Input, Model, Tools and MCP, the names of servers, come from the task.
	Input json.RawMessage
	Model string
	Tools []string
	MCP   []string

	Attempt   uint64
	Path      run.Path // of the next step; inside of a step, its own
	Name      string   // of the agent, tool or function whose step is in flight; "" between steps
	Replaying bool     // the next step is recorded already
	Try       int      // of the work of the step in flight, from one; 0 between steps
}

// RunInfo describes the position of ctx in a run; ok is false outside of a run.
func RunInfo(ctx context.Context) (i Info, ok bool) {
	e, err := engineOf(ctx)
	if err != nil {
		return Info{}, false
	}
	return e.Info(), true
}

// Now returns the time of the last recorded step of the run, the same on every execution.
// It makes no step. Inside of a step, in Do's function, a tool or a hook, it returns the
// current time. Outside of a run it returns the zero time.
func Now(ctx context.Context) time.Time {
	e, err := engineOf(ctx)
	if err != nil {
		return time.Time{}
	}
	return e.Now()
}

// NewID returns an id of 32 hexadecimal digits, unique and the same on every execution of
// the run. Inside of a step, in Do's function, a tool or a hook, it is random: replay
// does not execute that code, and the result of the step is recorded. Outside of a run it
// is empty.
func NewID(ctx context.Context) string {
	e, err := engineOf(ctx)
	if err != nil {
		return ""
	}
	return e.NewID()
}

// Do runs fn once and records its result, a value or an error; later executions of the
// run get the record. T must survive JSON: the caller gets the decoded value on each
// execution, and Do fails if JSON drops a set field, which the error names. The context
// of fn is for its own work: steps made with it fail with run.ErrNestedStep. If fn
// returns an error about another run, such as its cancellation, the caller gets only the
// text of that error.
//
// The effect decides the recovery if fn is cut off before its result is recorded. A
// tool.NonIdempotent function is announced in the log before it starts, and a run that
// was cut off inside it waits for an operator. Functions of other effects run again.
//
// After an error, functions of other effects than tool.NonIdempotent are tried again, three
// times in all. The last argument, if any, is another policy, see [tool.Retry]; {Times: 1}
// is a single try.
// An error of package run, such as run.ErrMalformed, or a [Permanent] one ends the tries.
// Each failed try is recorded. The caller gets the error of the last one.
func Do[T any](ctx context.Context, name string, fn func(context.Context) (T, error), effect tool.Effect, retry ...tool.Retry) (T, error) {
	var value, zero T
	e, err := engineOf(ctx)
	if err != nil {
		return zero, err
	}
	var policy *tool.Retry
	if len(retry) > 0 {
		policy = &retry[len(retry)-1]
	}
	err = e.Do(ctx, name, effect, policy, &value, func(ctx context.Context) (err error) {
		value, err = fn(ctx)
		return err
	})
	if err != nil {
		return zero, err // as a later execution does: a value beside an error is not recorded
	}
	return value, nil
}

// Permanent returns err as an error after which a step's work is not tried again; see
// [tool.Permanent].
func Permanent(err error) error { return tool.Permanent(err) }

// Progress publishes the progress of the step whose work ctx is of, Do's function or a
// tool, to observers of the run. Only the last text is kept, until the step ends. It
// restarts the timeout of the try, see tool.Retry. Outside of a step it does nothing.
func Progress(ctx context.Context, text string) {
	if e, err := engineOf(ctx); err == nil {
		e.Progress(text)
	}
}

// ChangeVersion returns the version of a change to the workflow's code that applies to
// this run, so that runs that are open during the change continue with the code that they
// began with:
//
//	if v, err := flow.ChangeVersion(ctx, "review-twice", 0, 1); err != nil {
//		return s, err
//	} else if v >= 1 {
//		s, err = w.review.Forward(ctx, s) // new
//	}
//
// A run that reaches the first call for the change takes newest, and records it. A run
// that older code executed past that place has version 0 and records nothing. The version
// applies to the whole run and to the branches that it opens afterwards: later calls make
// no step. A function of a Gather decides for itself, unless a call before the Gather did.
// Raise oldest once no open run is older. If the run's version is outside of
// oldest to newest, because the change was reverted or dropped, the error wraps
// run.ErrMismatch and names both: the run moves to a node with the recorded revision, or
// needs review.
func ChangeVersion(ctx context.Context, change string, oldest, newest int) (int, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return 0, err
	}
	return e.ChangeVersion(ctx, change, oldest, newest)
}

// SetTag sets a tag of the run, by which it is found: rath ps --where tag.customer=acme. An
// empty value removes the tag. It is one step. A task may have tags already; a branch of a
// fan-out is a run with tags of its own. The limits are those of run.ValidTag and
// run.MaxTags; beyond them the error wraps run.ErrMalformed.
func SetTag(ctx context.Context, key, value string) error {
	e, err := engineOf(ctx)
	if err != nil {
		return err
	}
	return e.SetTag(ctx, key, value)
}

// SetStatus sets the status of the run, any JSON of at most 4 KiB that shows its progress: in
// rath ps and rath show, on the pages and over HTTP. It makes no step, also inside of one.
// A status is durable with the next commit of the run, or after a second at the latest; of
// several within this time the last one is kept, also of those right before the end. The
// error wraps session.ErrTooLarge for a larger value.
func SetStatus(ctx context.Context, v any) error {
	e, err := engineOf(ctx)
	if err != nil {
		return err
	}
	return e.SetStatus(v)
}

// CallTool runs a tool on a session without a model: one step, one tool_result row. args
// are the tool's arguments, encoded as JSON.
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
