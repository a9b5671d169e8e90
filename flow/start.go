package flow

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Task is the task of a run that Start starts. All fields but Workflow are optional.
type Task struct {
	// ID of the run, unique in the tenant. Without one it follows from the step.
	ID       run.ID
	Workflow string // of any node
	Revision string // "" accepts the offered one
	Input    json.RawMessage
	Model    string
	Tools    []string
	MCP      []string
	// Session is the id or the name of the session to work on; "" is a new one. ForkOf is
	// the version of a session that the new session starts from, with its files. Version
	// zero is the newest.
	Session string
	ForkOf  session.Ref
	// Budget is the run's own; the zero value has no limits. It is not a part of the
	// starter's.
	Budget    run.Budget
	Deadline  time.Time
	NotBefore time.Time
	// After are runs that must have succeeded before this one begins, and AfterAny runs
	// that must have ended in any way; at most run.MaxAfter together. They were started or
	// submitted before. A run of After that ends otherwise fails this one, with
	// run.CodeAfter.
	After     []run.ID
	AfterAny  []run.ID
	OnFailure string // run.Hold, or ""
	Tags      run.Tags
	Priority  int64  // from -run.MaxPriority to run.MaxPriority; the highest is first
	Class     string // run.ClassBatch, or ""
}

// Started is a run that a step started. It survives JSON.
type Started struct {
	Run run.ID
}

// RunEnd is the outcome of a started run.
type RunEnd struct {
	Run    run.ID
	State  run.State
	Output string // the last text of its session, at most 16 KiB
	// Session is the resulting version of its session, for ReadSession and for
	// Task.ForkOf; zero if no session took the task.
	Session session.Ref
	Code    run.Code // of Err
	Err     error    // why it did not succeed
	Steps   int64
	Usage   session.Usage
}

// Start starts an independent run of another workflow in the same tenant:
//
//	invoice, err := flow.Start(ctx, flow.Task{Workflow: "invoice", Input: order})
//	if err != nil {
//		return s, err
//	}
//	end, err := invoice.Result(ctx, 0) // or never
//
// It is a step: the commit that records it submits the task, exactly once, whatever
// crashes. Start does not wait until a node has taken the task. A rejected task, such as
// one of an unknown workflow or under an id that another task has, is the outcome of its
// run, see [Started.Result].
//
// The started run has a budget, a deadline and an end of its own: it goes on when its
// starter ends, fails or is cancelled. To have work end with the run, use FanOut. A run
// with the session of its starter would wait for the starter's end: use ForkOf.
//
// A run starts at most [MaxStarts] runs. At most run.MaxStarted runs may start each other
// in a chain, beyond which Start returns run.ErrTooDeep.
func Start(ctx context.Context, t Task) (Started, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return Started{}, err
	}
	id, err := e.Start(ctx, t)
	return Started{id}, err
}

// MaxStarts is the maximum number of runs that a run starts.
const MaxStarts = 1024

// Result waits until the run has ended, without resources, like Await. After the timeout,
// if it is not zero, Result returns run.ErrExpired, and another call waits again. The run
// that did not succeed is no error of Result: see [RunEnd.Err].
//
// Only the run that started it gets the outcome. A resumption of that run, or a branch of
// it, gets run.ErrNotSupported, unless the outcome is recorded.
func (s Started) Result(ctx context.Context, timeout time.Duration) (RunEnd, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return RunEnd{}, err
	}
	var end RunEnd
	err = e.Await(ctx, journal.Wait{Kind: run.WaitRun, Name: string(s.Run)}, timeout, &end)
	return end, err
}
