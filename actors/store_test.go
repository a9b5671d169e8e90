package actors_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func TestCommitsAreDurableWhenAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{latency: time.Millisecond}
		s := start(t, log, actors.Options{}).Store()
		k := key("s1")
		g := claim(t, s, task("r1", k))
		if g.State != run.Running || g.Attempt != 1 || g.Epoch != 1 {
			t.Fatalf("claimed %s, attempt %d, epoch %d", g.State, g.Attempt, g.Epoch)
		}
		at := g.Session
		for i := range 3 {
			a := must.Get(s.Commit(t.Context(), step(g, k, fmt.Sprint(i), at.Ref().Version, fmt.Sprint("chunk ", i))))(t)
			last := must.Get(log.Last(t.Context(), k))(t)
			if a.At != last.At {
				t.Errorf("answered at %d, the log is at %d", a.At.Seq, last.At.Seq)
			}
			at = a.Session
			folded := must.Get(journal.NewValues(log).At(t.Context(), at.Ref()))(t)
			if folded.Text() != at.Text() || folded.Len() != i+1 {
				t.Errorf("the log folds to %q, the answer was %q", folded.Text(), at.Text())
			}
		}
		again, err := s.Commit(t.Context(), step(g, k, "1", 1, "other"))
		if err != nil || again.Recorded == nil || again.Session.Text() != "chunk 1" {
			t.Errorf("a recorded step answered %v with %q", err, again.Session.Text())
		}
		if _, err := s.Commit(t.Context(), step(g, k, "9", 1, "old")); !errors.Is(err, session.ErrStale) {
			t.Errorf("extending an old version: %v", err)
		}
		want := []string{
			"1 writer.opened session.opened run.submitted run.claimed",
			"1 session.chunk step.done", "1 session.chunk step.done", "1 session.chunk step.done",
		}
		if d := cmp.Diff(want, kinds(t, log, k)); d != "" {
			t.Error(d)
		}
	})
}

func TestWaitingRequestsShareACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{latency: 5 * time.Millisecond}
		s := start(t, log, actors.Options{BatchMax: 40}).Store()
		k := key("s1")
		g := claim(t, s, task("r1", k))
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				a, err := s.Commit(t.Context(), step(g, k, fmt.Sprint(i), 0, ""))
				if err != nil {
					t.Error(err)
					return
				}
				for e, err := range log.Read(t.Context(), k, commitlog.Position{}) {
					must.Report(t, err)
					if e.At == a.At {
						for _, ev := range e.Commit.Events {
							if ev.Batch == "r1/"+fmt.Sprint(i) {
								return
							}
						}
					}
				}
				t.Errorf("step %d is not in the commit that its answer names", i)
			})
		}
		wg.Wait()
		// The claim, the first caller, and the rest in batches of 40.
		if n := len(kinds(t, log, k)); n < 4 || n > 6 {
			t.Errorf("100 concurrent steps made %d commits", n)
		}
	})
}

// A claim that shares its commit with content must be answered with values
// that the log holds.
func TestValuesOfASharedCommitResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{}
		s := start(t, log, actors.Options{}).Store()
		k := key("s1")
		g := claim(t, s, task("r1", k))
		log.set(func() { log.latency = time.Second })
		var wg sync.WaitGroup
		wg.Go(func() { // keeps the log busy, so that the next three wait together
			if _, err := s.Commit(context.Background(), step(g, k, "0", 0, "zero")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if _, err := s.Commit(context.Background(), step(g, k, "1", 1, "one")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if _, err := s.Commit(context.Background(), end(g, k, 2)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			g := claim(t, s, task("r2", k))
			for name, v := range map[string]session.Session{"session": g.Session, "base": g.Base} {
				l, ok := v.Link()
				if !ok {
					t.Fatalf("the %s of a claim has no link", name)
				}
				got, err := journal.NewValues(log).Link(context.Background(), l)
				if err != nil || got.Text() != "one" {
					t.Errorf("the %s of a claim resolves to %q, %v", name, got.Text(), err)
				}
			}
		})
		wg.Wait()
		want := []string{
			"1 writer.opened session.opened run.submitted run.claimed", "1 session.chunk step.done",
			"1 session.chunk step.done run.ended run.submitted run.claimed",
		}
		if d := cmp.Diff(want, kinds(t, log, k)); d != "" {
			t.Error(d)
		}
	})
}

func TestZombieIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, c := &faults{}, &cluster{}
		a := start(t, log, actors.Options{Incarnation: "a", Deliver: c.deliver}).Store()
		b := start(t, log, actors.Options{Incarnation: "b", Deliver: c.deliver}).Store()
		k := key("s1")
		old := claim(t, a, task("r1", k))
		must.Get(a.Commit(t.Context(), step(old, k, "0", 0, "by a")))(t)
		now := claim(t, b, task("r1", k))
		if now.Attempt != 2 || now.Epoch != 2 || now.Journal.Len() != 1 {
			t.Fatalf("took over attempt %d, epoch %d, %d steps", now.Attempt, now.Epoch, now.Journal.Len())
		}
		_, err := a.Commit(t.Context(), step(old, k, "1", 1, "zombie"))
		if !errors.Is(err, session.ErrConflict) || !run.IsControl(err) {
			t.Errorf("a zombie's commit: %v", err)
		}
		// The next one reaches a fresh activation. It must not append either, not even
		// to keep evidence: b holds the session.
		if _, err := a.Commit(t.Context(), step(old, k, "2", 1, "zombie")); !errors.Is(err, run.ErrSuperseded) {
			t.Errorf("a zombie's second commit: %v", err)
		}
		if _, err := b.Commit(t.Context(), step(now, k, "1", 1, "by b")); err != nil {
			t.Errorf("the holder: %v", err)
		}
		for _, line := range kinds(t, log, k) {
			if strings.Contains(line, journal.KindLate) {
				t.Errorf("a zombie wrote: %s", line)
			}
		}
	})
}

// After a conflict with another writer, a caller asks an activation that has read the
// other's commits, however soon the next request follows: the activation that ended
// accepts no more requests.
func TestNextRequestAfterConflict(t *testing.T) {
	log := &commitlog.Memory{}
	zombie, other := start(t, log, actors.Options{}).Store(), start(t, log, actors.Options{Incarnation: "n2"}).Store()
	for i := range 300 {
		k := key(fmt.Sprint("s", i))
		g := claim(t, zombie, task("r1", k))
		must.Get(other.Claim(t.Context(), journal.Claim{Session: k, Home: k, Run: "r1"}))(t)
		if _, err := zombie.Commit(t.Context(), step(g, k, "0", 0, "")); !errors.Is(err, session.ErrConflict) {
			t.Fatalf("the first step after the other writer: %v", err)
		}
		if _, err := zombie.Commit(t.Context(), step(g, k, "0", 0, "")); !errors.Is(err, run.ErrSuperseded) {
			t.Fatalf("the next step: %v", err)
		}
	}
}

func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{latency: time.Second}
		s := start(t, log, actors.Options{}).Store()
		k := key("s1")
		g := claim(t, s, task("r1", k))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := s.Commit(ctx, step(g, k, "0", 0, "")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller whose time is over: %v", err)
		}
		// The first is in progress and succeeds; this one waits and is dropped.
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := s.Commit(ctx, step(g, k, "1", 0, "")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller whose time is over: %v", err)
		}
		if _, err := s.Commit(t.Context(), step(g, k, "2", 0, "")); err != nil {
			t.Error(err)
		}
		if got := kinds(t, log, k); len(got) != 3 {
			t.Errorf("the log holds %q", got)
		}
	})
}

func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{}
		s := start(t, log, actors.Options{MaxPending: 4}).Store()
		k := key("s1")
		g := claim(t, s, task("r1", k))
		hold := make(chan struct{})
		log.set(func() { log.append = func(int, commitlog.Commit) error { <-hold; return nil } })
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := s.Commit(t.Context(), step(g, k, "0", 0, "")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // the append is in progress; all else waits
		for i := range 4 {
			wg.Go(func() {
				if _, err := s.Claim(t.Context(), claimOf(task(fmt.Sprint("q", i), k))); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if _, err := s.Claim(t.Context(), claimOf(task("q9", k))); !errors.Is(err, run.ErrBusy) {
			t.Errorf("the fifth claim that waits: %v", err)
		}
		if err := s.Apply(t.Context(), journal.Signal{To: k, Run: "r1", Cancel: &journal.CancelRequested{}}); !errors.Is(err, run.ErrBusy) {
			t.Errorf("a signal to a full session: %v", err)
		}
		wg.Go(func() { // the run that holds the session has a queue of its own
			if _, err := s.Commit(t.Context(), step(g, k, "1", 0, "")); err != nil {
				t.Errorf("the active run: %v", err)
			}
		})
		synctest.Wait()
		close(hold)
		wg.Wait()
		if n := len(kinds(t, log, k)); n != 3 {
			t.Errorf("%d commits", n)
		}
	})
}

func claimOf(task journal.Task) journal.Claim {
	return journal.Claim{Session: task.Session, Home: task.Session, Run: task.ID, Task: &task, Open: session.Opening{Kind: session.OpenLeaf}}
}

// TestFollow: a follower receives each commit once and in order, also earlier commits,
// commits that the log could not return at first, and commits of another process that
// has since taken over the session.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, k := &faults{}, key("s1")
		s := start(t, log, actors.Options{Passivate: time.Minute}).Store()
		g := claim(t, s, task("r1", k))
		commit := func(s journal.Store, g *journal.ClaimResult, path int) {
			t.Helper()
			must.Get(s.Commit(t.Context(), step(g, k, fmt.Sprint(path), 0, "")))(t)
		}
		commit(s, g, 0)
		log.set(func() { log.read = func() error { return session.ErrUnavailable } })
		var mu sync.Mutex
		var got []uint64
		took := func(want int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			for i, seq := range got {
				if seq != uint64(i+1) {
					t.Fatalf("it took commits %d", got)
				}
			}
			if len(got) != want {
				t.Fatalf("it took commits %d, want %d of them", got, want)
			}
		}
		stop := s.Follow(k, commitlog.Position{}, func(e *commitlog.Entry) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, e.At.Seq)
		})
		commit(s, g, 1)
		took(0)
		log.set(func() { log.read = nil })
		time.Sleep(time.Minute)
		took(3)
		for i := range 100 {
			commit(s, g, 2+i)
			took(4 + i)
		}
		other := start(t, log, actors.Options{Incarnation: "n2"}).Store()
		again := claim(t, other, task("r1", k))
		commit(other, again, 102)
		took(103)
		if _, err := s.Commit(t.Context(), step(g, k, "103", 0, "")); !errors.Is(err, run.ErrSuperseded) && !errors.Is(err, session.ErrConflict) {
			t.Errorf("a step of the attempt before: %v", err)
		}
		time.Sleep(10 * time.Minute)
		took(105)
		stop()
		commit(other, again, 104)
		time.Sleep(time.Minute)
		took(105)
	})
}
