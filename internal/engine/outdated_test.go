package engine_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// stalledLog calls a function before the log of home is read for the first time.
type stalledLog struct {
	commitlog.Log
	meanwhile func()
}

func (l *stalledLog) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	if do := l.meanwhile; do != nil && k == home {
		l.meanwhile = nil
		do()
	}
	return l.Log.Read(ctx, k, after)
}

// deposed is the store of a node whose signals go to the node that holds the session.
type deposed struct {
	journal.Store
	holder journal.Store
}

func (d deposed) Apply(ctx context.Context, s journal.Signal) error { return d.holder.Apply(ctx, s) }

// TestOutdatedBranch: while a node pauses before it executes a branch, another node ends
// the branch, and the run merges it. The first node does not close it differently.
func TestOutdatedBranch(t *testing.T) {
	var w world
	ask := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "a", Workflow: say("from a")}}, nil)
		if err != nil {
			return s, err
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	})
	follows := func(k session.Key) []journal.Work {
		e, err := w.Last(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		all, err := journal.Followups(e, journal.Facts(e.Commit))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	b := w.runtime(nil)
	forward(t, t.Context(), start(t, b, ask), run.Waiting)
	all := follows(home)
	i := slices.IndexFunc(all, func(w journal.Work) bool { return w.Task != nil && w.Task.Branch != nil })
	if i < 0 {
		t.Fatalf("nothing is dispatched: %+v", all)
	}
	task := *all[i].Task
	branch := func(to *journal.Task) { *to = task }

	var closes []journal.Work
	log := &stalledLog{Log: &w.Memory}
	values := journal.NewValues(log)
	a := &inprocess.Runtime{Runtime: engine.Runtime{Store: deposed{w.runtime(nil).Runtime.Store, b.Runtime.Store}, Values: values}}
	log.meanwhile = func() {
		again := func(to *journal.Task) { branch(to); to.Resume = true }
		if state, err := start(t, b, ask, again).Forward(t.Context()); state != run.Succeeded {
			t.Errorf("the branch elsewhere: %s: %v", state, err)
		}
		for _, f := range follows(task.Session) {
			if err := b.Runtime.Store.Apply(t.Context(), *f.Signal); err != nil {
				t.Error(err)
			}
		}
		if state, err := start(t, b, ask, resume).Forward(t.Context()); state != run.Succeeded {
			t.Errorf("the run: %s: %v", state, err)
		}
		for e, err := range w.Read(t.Context(), home, commitlog.Position{}) {
			if err != nil {
				t.Fatal(err)
			}
			all := must(journal.Followups(e, journal.Facts(e.Commit)))
			for _, f := range all {
				if f.Signal != nil && f.Signal.Close != nil {
					closes = append(closes, f)
				}
			}
		}
	}
	state, err := start(t, a, ask, branch).Forward(t.Context())
	t.Logf("the outdated execution: %s, %v", state, err)
	for _, f := range closes {
		if err := b.Runtime.Store.Apply(t.Context(), *f.Signal); err != nil && !errors.Is(err, run.ErrState) {
			t.Error(err)
		}
	}
	s, err := journal.NewValues(&w.Memory).At(t.Context(), session.Ref{Key: task.Session})
	if err != nil || s.Closing().State != session.ClosedMerged {
		t.Errorf("the branch is %+v, %v; want it merged", s.Closing(), err)
	}
}
