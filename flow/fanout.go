package flow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Branch is a branch of a session: a workflow that runs on a session of its own, on any
// node.
type Branch struct {
	// Name is part of the branch's identity: unique in its fan-out, of the
	// characters of ids.
	Name     string
	Workflow Workflow
}

// FanOutOptions set when a fan-out is complete, and how it runs. The zero value, like
// nil, waits for every branch.
type FanOutOptions struct {
	// Quorum is the number of branches that must succeed; the others are then cancelled,
	// and kept as evidence. If the quorum can no longer be reached, the others continue:
	// the fan-out waits for all of them and returns their outcomes.
	Quorum int
	// First is a quorum of one.
	First bool
	// Timeout is the time limit of the branches: those still running after it are
	// cancelled; a negative value cancels them at once. Zero sets no limit besides the
	// run's own: at the run's deadline, which a new budget of time moves, the run ends
	// and its branches are cancelled.
	Timeout time.Duration
	// WarmFirst starts the first branch alone. The others start once it has its first
	// answer from a model: a provider that caches prompts then holds the prefix that the
	// branches share, so they pay for it at the cached price. The others also start if
	// the first branch waits before that answer, for example for its own branches, or
	// ends in any state; if its end decides the join, they never start. Any other work
	// before its first answer delays the others.
	WarmFirst bool
}

// check returns how many branches must succeed, 0 for all.
func (o *FanOutOptions) check(bs []Branch) (need int, err error) {
	switch {
	case len(bs) == 0:
		return 0, errors.New("flow: a fan-out needs at least one branch")
	case len(bs) > run.MaxBranches:
		return 0, fmt.Errorf("flow: a fan-out of %d branches: at most %d; nest them", len(bs), run.MaxBranches)
	case o.Quorum < 0 || o.Quorum > len(bs):
		return 0, fmt.Errorf("flow: a quorum of %d of %d branches: choose 1 to %d, or 0 for all", o.Quorum, len(bs), len(bs))
	case o.First && o.Quorum > 1:
		return 0, fmt.Errorf("flow: a fan-out cannot be First and a quorum of %d", o.Quorum)
	}
	seen := make(map[string]bool, len(bs))
	for i, b := range bs {
		switch {
		case session.ValidID("branch", b.Name) != nil:
			return 0, fmt.Errorf("flow: branch %d: %w", i, session.ValidID("branch", b.Name))
		case b.Name == "gather" || seen[b.Name]:
			return 0, fmt.Errorf("flow: branch %q: the name is taken; every branch of a fan-out needs its own", b.Name)
		case b.Workflow == nil:
			return 0, fmt.Errorf("flow: branch %q has no workflow", b.Name)
		}
		seen[b.Name] = true
	}
	if o.First {
		return 1, nil
	}
	return o.Quorum, nil
}

// Outcome is the result of a branch.
type Outcome struct {
	Name string
	// Session is the branch's last session. It is empty for a branch that never began.
	Session session.Session
	State   run.State
	Err     error // why it did not succeed
}

// Joined is a fan-out whose join is decided. [Merge] merges its outcomes into the base.
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

// Policy selects the outcomes of a fan-out that a [Merge] takes.
type Policy interface {
	// Decide may run steps, such as a model call. It must not change j.
	Decide(ctx context.Context, j *Joined) (Verdict, error)
}

// Verdict describes a merge.
type Verdict struct {
	// Take has the indexes of the outcomes whose chunks go into the base, in this order;
	// all others are rejected. The base gets the files of the first, unless Files or
	// FileJudge is set.
	Take []int
	// Adopt makes the one outcome in Take the base's next version, as [Adopt] does.
	Adopt bool
	// Text, if set, goes into the base instead of the chunks, such as a summary of
	// them.
	Text string
	// Reasons has the reasons, by outcome; it may be shorter than the outcomes.
	Reasons []string
	// Files and FileJudge merge the files of all outcomes in Take, as [WithFiles] does
	// with onConflict and judge.
	Files     string
	FileJudge *Agent
}

// ErrNoOutcome is returned by a merge of a fan-out whose branches all failed.
var ErrNoOutcome = errors.New("flow: no branch succeeded")
