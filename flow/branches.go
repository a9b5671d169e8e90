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

// Remote is a workflow by name, run by a node that offers it. As the workflow
// of a [Branch] it runs there; by itself it goes on with the session there and
// comes back with the result. While no node offers it the branch waits, also for a name
// that is mistyped: the command "rath why" says so, and FanOutOptions.Timeout or the run's
// deadline ends that. Workflows that submit each other without end fail at run.MaxDepth.
type Remote struct {
	Workflow string
	Revision string          // "" is what is offered
	Input    json.RawMessage // JSON; nil is none
	// Model, Tools and MCP are what its task asks for; "" and nil are what the
	// workflow takes by itself.
	Model string
	Tools []string
	MCP   []string
	// Description is shown by a Selector.
	Description string
}

// Forward runs the workflow on a branch of s and adopts what it comes to.
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

// FanOut runs branches of s at the same time, each on a session of its own,
// wherever there is room, and returns when enough of them have ended. One
// commit opens them all; meanwhile the run waits as with [Await] and holds
// nothing, so FanOut returns run.ErrSuspended until the join is decided, unless
// that is in a moment.
//
// A branch's workflow may be any Go value: the node that takes a branch runs
// the code around it against this run's journal, without doing anything again,
// up to the fan-out, and then only the branch. What a budget leaves is divided
// equally among the branches; what they do not use comes back. The part of a
// branch that is cancelled, because the join was decided without it, comes back
// once it has reported what it used; until then it counts as spent.
//
// A fan-out within run.MaxDepth others, which a workflow that submits itself comes
// to, fails with run.ErrTooDeep.
//
// Branches that fail do not fail the fan-out. Every branch has to be disposed
// of by [Merge]; those that are not are rejected when the run ends.
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

// Merge brings the outcomes of a fan-out into its base and returns the base's
// next version. Every branch is disposed of: taken, or rejected with a reason.
// It fails with [ErrNoOutcome] when the policy takes none.
func Merge(ctx context.Context, j *Joined, p Policy) (session.Session, error) {
	switch {
	case j == nil:
		return session.Session{}, errors.New("flow: Merge of no fan-out: give it what FanOut returned, and look at the error of FanOut first")
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
