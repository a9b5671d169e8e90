package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/session"
)

// Repeat returns n branches of one workflow, named "b0" to "b<n-1>".
func Repeat(n int, w Workflow) []Branch {
	bs := make([]Branch, n)
	for i := range bs {
		bs[i] = Branch{fmt.Sprintf("b%d", i), w}
	}
	return bs
}

// Remote is a workflow by name, run by a node that offers it. As the workflow of a
// [Branch] it runs there; called directly it runs there on the session and returns the
// result. While no node offers it, the branch waits, even if the name is mistyped: the
// command "rath why" reports this, and FanOutOptions.Timeout or the run's deadline ends
// the wait. Workflows that submit each other without end fail at run.MaxDepth.
type Remote struct {
	Workflow string
	Revision string          // "" is the offered revision
	Input    json.RawMessage // JSON; nil is none
	// Model, Tools and MCP go into its task; "" and nil are the workflow's defaults.
	Model string
	Tools []string
	MCP   []string
	// Description is shown to the model by a Selector.
	Description string
}

// Forward runs the workflow on a branch of s and adopts the result.
func (w Remote) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	j, err := FanOut(ctx, s, []Branch{{w.Workflow, w}}, nil)
	if err != nil {
		return s, err
	}
	if o := j.Outcomes[0]; o.Err != nil {
		return s, o.Err
	}
	return Merge(ctx, j, Pick(0))
}

// FanOut runs branches of s concurrently, each on a session of its own, on any node with
// capacity, and returns when enough of them have ended. One commit opens all branches.
// Meanwhile the run waits as with [Await] and holds no resources: FanOut returns
// run.ErrSuspended until the join is decided, unless that takes only a moment.
//
// A branch's workflow may be any Go value: the node that executes a branch replays the
// code around it against this run's journal up to the fan-out, and then executes only the
// branch. The remaining budget is divided equally among the branches, and their unused
// parts return to the run. If the join is decided without a branch, the branch is
// cancelled, and its part counts as spent until it has reported its usage.
//
// A fan-out at a depth of more than run.MaxDepth fails with run.ErrTooDeep, for example
// in a workflow that submits itself.
//
// Branches that fail do not fail the fan-out. Every branch has to be disposed of by
// [Merge]; all others are rejected when the run ends.
func FanOut(ctx context.Context, s session.Session, bs []Branch, o *FanOutOptions) (*Joined, error) {
	if o == nil {
		o = &FanOutOptions{}
	}
	need, err := o.check(bs)
	if err != nil {
		return nil, err
	}
	e, err := engineOf(ctx)
	if err != nil {
		return nil, err
	}
	j, of, err := e.FanOut(ctx, s, bs, need, *o)
	if err != nil {
		return nil, err
	}
	j.of = of
	return &j, nil
}

// Merge merges the outcomes of a fan-out into its base and returns the base's next
// version. Every branch is disposed of: taken, or rejected with a reason. It fails with
// [ErrNoOutcome] when the policy takes none.
func Merge(ctx context.Context, j *Joined, p Policy) (session.Session, error) {
	switch {
	case j == nil:
		return session.Session{}, errors.New("flow: Merge without a fan-out: give it the result of FanOut, and check the error of FanOut first")
	case p == nil:
		return j.Base, errors.New("flow: Merge without a policy: give it one, such as flow.SinceAncestor()")
	}
	v, err := p.Decide(ctx, j)
	if err != nil {
		return j.Base, err
	}
	e, err := engineOf(ctx)
	if err != nil {
		return j.Base, err
	}
	if v.Files != "" || v.FileJudge != nil {
		if err := mergeFiles(ctx, e, j, v); err != nil {
			return j.Base, err
		}
	}
	return e.Merge(ctx, j, j.of, v)
}
