package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Branch is one way on from a session: a workflow that runs on a session of
// its own, on whatever node takes it.
type Branch struct {
	// Name is part of the branch's identity: unique in its fan-out, of the
	// characters of ids.
	Name     string
	Workflow Workflow
}

// Branches names workflows by their descriptions, or "b0", "b1" and so on.
func Branches(ws ...Workflow) []Branch {
	bs := make([]Branch, len(ws))
	taken := map[string]bool{}
	for i, w := range ws {
		name, _ := describe(w)
		if session.ValidID("branch", name) != nil || taken[name] {
			name = fmt.Sprintf("b%d", i)
		}
		taken[name] = true
		bs[i] = Branch{name, w}
	}
	return bs
}

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
// comes back with the result. Workflows that submit each other without end fail
// at run.MaxDepth.
type Remote struct {
	Workflow string
	Revision string          // "" is what is offered
	Input    json.RawMessage // JSON; nil is none
	// Model and Tools are what its task asks for; "" and nil are what the
	// workflow takes by itself.
	Model string
	Tools []string
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

// Join says when a fan-out has enough. The zero Join waits for every branch.
type Join struct {
	// Quorum is how many branches must succeed; the others are cancelled then,
	// and kept as evidence. When so many cannot succeed any more, the others go
	// on: the fan-out waits for every end and comes to what there is.
	Quorum int
	// First is a quorum of one.
	First bool
}

// FanOutOptions change how a fan-out runs; nil means the defaults.
type FanOutOptions struct {
	Join Join
	// Timeout is how long the branches have; those that have not ended then are
	// cancelled. Zero is no limit but the run's own: at its deadline, which a new
	// budget of time moves, the run ends and its branches are cancelled.
	Timeout time.Duration
	// WarmFirst lets the first branch begin alone. The others begin once it has
	// its first answer of a model: a provider that caches prompts then holds the
	// beginning that the branches share, so they pay for it at the price of the
	// cache. If it waits for something before, as for branches of its own, or ends,
	// however it ends, they begin then; if its end decides the join, they never
	// do. All else that it does before its first answer keeps the others waiting.
	WarmFirst bool
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
// once it has told what it used; until then it counts as spent.
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
	need, err := o.Join.check(bs)
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

func (j Join) check(bs []Branch) (need int, err error) {
	switch {
	case len(bs) == 0:
		return 0, errors.New("flow: a fan-out needs at least one branch")
	case len(bs) > run.MaxBranches:
		return 0, fmt.Errorf("flow: a fan-out of %d branches: at most %d; nest them", len(bs), run.MaxBranches)
	case j.Quorum < 0 || j.Quorum > len(bs):
		return 0, fmt.Errorf("flow: a quorum of %d of %d branches: choose 1 to %d, or 0 for all", j.Quorum, len(bs), len(bs))
	case j.First && j.Quorum > 1:
		return 0, fmt.Errorf("flow: a join cannot be First and a quorum of %d", j.Quorum)
	}
	seen := make(map[string]bool, len(bs))
	for i, b := range bs {
		switch {
		case session.ValidID("branch", b.Name) != nil:
			return 0, fmt.Errorf("flow: branch %d: %w", i, session.ValidID("branch", b.Name))
		case b.Name == "gather" || seen[b.Name]:
			return 0, fmt.Errorf("flow: branch %q: the name is taken; every branch of a fan-out has one of its own", b.Name)
		case b.Workflow == nil:
			return 0, fmt.Errorf("flow: branch %q has no workflow", b.Name)
		}
		seen[b.Name] = true
	}
	if j.First {
		return 1, nil
	}
	return j.Quorum, nil
}

// Outcome is how a branch ended.
type Outcome struct {
	Name string
	// Session is what the branch became, as far as it came. It is empty for a
	// branch that never began.
	Session session.Session
	State   run.State
	Err     error // why it did not succeed
}

// Joined is a fan-out whose join is decided. [Merge] brings its outcomes into
// the base.
type Joined struct {
	Base     session.Session
	Outcomes []Outcome // in the order of the branches

	of any // the engine's
}

// Succeeded returns the indexes of the branches that succeeded.
func (j *Joined) Succeeded() []int {
	var at []int
	for i, o := range j.Outcomes {
		if o.State == run.Succeeded {
			at = append(at, i)
		}
	}
	return at
}

// Merge brings the outcomes of a fan-out into its base and returns the base's
// next version. Every branch is disposed of: taken, or rejected with a reason.
// It fails with [ErrNoOutcome] when the policy takes none.
func Merge(ctx context.Context, j *Joined, p Policy) (session.Session, error) {
	v, err := p.Decide(ctx, j)
	if err != nil {
		return j.Base, err
	}
	e, err := engineOf(ctx)
	if err != nil {
		return j.Base, err
	}
	return e.Merge(ctx, j, j.of, v)
}
