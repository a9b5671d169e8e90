package actors_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// watched is a log that records which sessions were read.
type watched struct {
	*faults
	mu    sync.Mutex
	asked []session.ID
}

func (w *watched) note(k session.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, k.ID)
}

func (w *watched) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	w.note(k)
	return w.faults.Read(ctx, k, after)
}

func (w *watched) Last(ctx context.Context, k session.Key) (commitlog.Entry, error) {
	w.note(k)
	return w.faults.Last(ctx, k)
}

func (w *watched) Load(context.Context, session.Key) (commitlog.Position, []byte, error) {
	return commitlog.Position{}, nil, session.ErrNotFound
}

func (w *watched) Save(context.Context, session.Key, commitlog.Position, []byte) error { return nil }

func (w *watched) SavePage(context.Context, session.Tenant, string, []byte) error { return nil }

func (w *watched) LoadPage(context.Context, session.Tenant, string) ([]byte, error) {
	return nil, session.ErrNotFound
}

// questions returns how often a session was read.
func (w *watched) questions(k session.Key) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, id := range w.asked {
		if id == k.ID {
			n++
		}
	}
	return n
}

var _ commitlog.Snapshotter = (*watched)(nil)

// branches returns the tasks of branches that a run in the log waits for.
func branches(t testing.TB, log commitlog.Log, n int) []journal.Task {
	t.Helper()
	parent := start(t, log, actors.Options{Incarnation: "parent"})
	g := claim(t, parent.Store(), task("root", key("root")))
	base, ok := g.Session.Link()
	if !ok {
		t.Fatal("the parent is not committed")
	}
	f := journal.FanOut{
		Ancestors: []journal.Ancestor{{Run: "root", Session: "root"}}, Base: base, Path: "0", Root: "root", Run: "root", Workflow: "w",
	}
	for i := range n {
		f.Branches = append(f.Branches, journal.FanOutBranch{Name: fmt.Sprint("b", i), Session: session.ID(fmt.Sprint("branch", i)), Workflow: "w"})
	}
	return f.Tasks("t")
}

// TestBranchIsNotLookedFor: a branch begins and ends without a read of its log, which
// has no commits.
func TestBranchIsNotLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w, c := &watched{faults: &faults{}}, holding("step0"), &cluster{}
		all := branches(t, log, 8)
		sys := c.join(t, log, w, "a")
		for _, b := range all {
			if got, err := sys.Accept(t.Context(), b); err != nil || got != journal.AnswerCommitted {
				t.Fatalf("%s: %q, %v", b.ID, got, err)
			}
		}
		synctest.Wait() // the watch for a cancel begins before the first step of a run ends
		close(w.hold["step0"])
		synctest.Wait()
		for _, b := range all {
			if n := log.questions(b.Session); n != 0 {
				t.Errorf("the log was asked about %s %d times", b.ID, n)
			}
			if r := state(t, log, b.Session, b.ID); r.State != run.Succeeded || r.Attempt != 1 {
				t.Errorf("%s is %q at attempt %d", b.ID, r.State, r.Attempt)
			}
		}
	})
}

// TestBranchIsOfferedAgain offers branches that a node executes, and branches that have
// ended, to nodes without any state of them: one attempt executes.
func TestBranchIsOfferedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w, c := &watched{faults: &faults{}}, holding("step1"), &cluster{}
		b := branches(t, log, 1)[0]
		first, second := c.join(t, log, w, "a"), c.join(t, log, w, "b")
		alone := host(t, log, w, actors.Options{Incarnation: "alone"})
		offer := func(sys *actors.System) {
			t.Helper()
			if got, err := sys.Accept(t.Context(), b); err != nil || got != journal.AnswerCommitted {
				t.Errorf("offered to %s: %q, %v", sys.Incarnation(), got, err)
			}
			synctest.Wait()
		}
		offer(first)
		before := log.count()
		offer(second)
		offer(first)
		if n := log.count() - before; n > 1 { // which the log rejected
			t.Errorf("%d commits were tried beside the run that executes", n)
		}
		if got := c.asked(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("asked %q", got)
		}
		close(w.hold["step1"])
		synctest.Wait()
		offer(second)
		offer(alone)
		time.Sleep(2 * actors.DefaultPassivate)
		offer(first)
		if r := state(t, log, b.Session, b.ID); r.State != run.Succeeded || r.Attempt != 1 {
			t.Errorf("%q at attempt %d", r.State, r.Attempt)
		}
		if want := []string{"a step0", "a step1"}; !slices.Equal(w.done(), want) {
			t.Errorf("executed %q, want %q", w.done(), want)
		}
	})
}

// TestBranchIsBornElsewhere: a node's presumption about a branch that it could not
// accept does not affect later requests to the branch.
func TestBranchIsBornElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w, c := &watched{faults: &faults{}}, holding("step1"), &cluster{}
		all := branches(t, log, 3)
		full, other := host(t, log, w, actors.Options{
			Incarnation: "full", Deliver: c.deliver, Slots: 1, Workflows: w.offers(t, "full", "w", "1"),
		}), c.join(t, log, w, "other")
		c.change(func() { c.systems["full"] = full })
		if got, err := full.Accept(t.Context(), all[0]); err != nil || got != journal.AnswerCommitted {
			t.Fatalf("%q, %v", got, err)
		}
		for _, b := range all[1:] {
			if _, err := full.Accept(t.Context(), b); run.CodeOf(err) != run.CodeBusy {
				t.Fatalf("a node without a slot: %v", err)
			}
			if got, err := other.Accept(t.Context(), b); err != nil || got != journal.AnswerCommitted {
				t.Fatalf("%q, %v", got, err)
			}
		}
		synctest.Wait()
		cancelled, closed := all[1], all[2]
		cancel := &journal.CancelRequested{Reason: "enough"}
		if err := full.Signal(t.Context(), journal.Signal{To: cancelled.Session, Run: cancelled.ID, Cancel: cancel}); err != nil {
			t.Errorf("a cancel: %v", err)
		}
		d := &run.BranchOutcome{Session: closed.Session.ID, State: session.ClosedRejected, Reason: "not taken"}
		if err := full.Signal(t.Context(), journal.Signal{To: closed.Session, Run: closed.ID, Close: d}); err != nil {
			t.Errorf("a closing: %v", err)
		}
		synctest.Wait()
		for _, b := range all[1:] {
			if r := state(t, log, b.Session, b.ID); r.State != run.Cancelled || r.Attempt != 1 {
				t.Errorf("branch %s is %q at attempt %d", b.ID, r.State, r.Attempt)
			}
		}
		s, err := journal.NewValues(log).At(t.Context(), session.Ref{Key: closed.Session})
		if err != nil || s.Closing().State != session.ClosedRejected {
			t.Errorf("it is closed as %q, %v", s.Closing().State, err)
		}
		close(w.hold["step1"])
		synctest.Wait()
		if r := state(t, log, all[0].Session, all[0].ID); r.State != run.Succeeded {
			t.Errorf("the other branch is %q", r.State)
		}
	})
}
