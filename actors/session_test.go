package actors_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func TestPassivation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{}
		sys := start(t, log, actors.Options{Passivate: time.Minute})
		s, k := sys.Store(), key("s1")
		g := claim(t, s, task("r1", k))
		time.Sleep(time.Hour)
		if sys.Active() != 1 {
			t.Fatal("a session was passivated under the run that executes on it")
		}
		if _, err := s.Commit(t.Context(), step(g, k, "0", 0, "zero")); err != nil {
			t.Fatalf("after an hour: %v", err)
		}
		a := value(s.Commit(t.Context(), end(g, k, 1)))
		time.Sleep(59 * time.Second)
		if sys.Active() != 1 {
			t.Error("passivated before a minute was over")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if sys.Active() != 0 {
			t.Error("an idle session stays in memory")
		}
		g = claim(t, s, task("r2", k))
		if g.Epoch != 2 || g.Session.Text() != "zero" || g.Base.Ref() != a.Session.Ref() {
			t.Errorf("activated again with epoch %d and %q", g.Epoch, g.Session.Text())
		}
	})
}

// bubbled returns the number of goroutines in the bubble. The process has others, whose
// number varies, and counts goroutines that have just ended.
func bubbled() int {
	stacks := make([]byte, 4<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte(", synctest bubble "))
}

// TestRestingGoroutines has many sessions at work concurrently. After their passivation
// none of their goroutines is left.
func TestRestingGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := start(t, &faults{latency: 10 * time.Millisecond}, actors.Options{Passivate: time.Minute})
		synctest.Wait()
		before := bubbled()
		const sessions = 300
		round := func(n int) {
			t.Helper()
			var all sync.WaitGroup
			for i := range sessions {
				all.Go(func() {
					k := key(fmt.Sprint("s", i))
					g := claim(t, sys.Store(), task(fmt.Sprint("r", n), k))
					if _, err := sys.Store().Commit(t.Context(), end(g, k, g.Session.Ref().Version)); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			synctest.Wait()
		}
		rests := func(after string) {
			t.Helper()
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if n := bubbled() - before; n != 0 || sys.Active() != 0 {
				t.Errorf("after %s %d goroutines are left, of %d sessions in memory", after, n, sys.Active())
			}
		}
		round(1)
		if n := bubbled() - before; n < 32 {
			t.Errorf("%d goroutines are kept for more of the same: the test shows little", n)
		}
		rests("a round")
		for n := range 5 {
			round(2 + n)
			time.Sleep(7 * time.Second)
		}
		rests("five")
	})
}

func TestReadingLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{}
		s := start(t, log, actors.Options{}).Store()
		err := s.Apply(t.Context(), journal.Signal{To: key("none"), Run: "r", Cancel: &journal.CancelRequested{}})
		if !errors.Is(err, run.ErrUnknownRun) {
			t.Errorf("cancel of nothing: %v", err)
		}
		if n := log.count(); n != 0 {
			t.Errorf("%d commits for a refused signal", n)
		}
	})
}

// A storm of requests while the session is activated and passivated: each gets the
// right answer.
func TestActivationRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{}
		sys := start(t, log, actors.Options{Passivate: time.Millisecond})
		s := sys.Store()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for n := range 50 {
					k := key(fmt.Sprint("s", i%4))
					if err := s.Apply(t.Context(), journal.Signal{To: k, Run: "r", Cancel: &journal.CancelRequested{}}); !errors.Is(err, run.ErrUnknownRun) {
						t.Errorf("request %d: %v", n, err)
					}
					time.Sleep(time.Duration(900+50*((i+n)%5)) * time.Microsecond)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		if n := sys.Active(); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
}

func TestUnavailableLogEndsTheActivation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{}
		s := start(t, log, actors.Options{}).Store()
		k := key("s1")
		g := claim(t, s, task("r1", k))
		// The commit is stored, but its answer is lost.
		log.set(func() {
			log.after = func(n int, _ commitlog.Commit) error {
				if n == 2 {
					return fmt.Errorf("no answer: %w", session.ErrUnavailable)
				}
				return nil
			}
		})
		_, err := s.Commit(t.Context(), step(g, k, "0", 0, "zero"))
		if !errors.Is(err, session.ErrUnavailable) || !run.IsControl(err) {
			t.Fatalf("a commit without an answer: %v", err)
		}
		g2 := claim(t, s, journal.Task{ID: "r1", Workflow: "w", Session: k})
		if g2.Attempt != 2 || g2.Epoch != 2 || g2.Journal.Len() != 1 {
			t.Errorf("claimed again: attempt %d, epoch %d, %d steps recorded", g2.Attempt, g2.Epoch, g2.Journal.Len())
		}
		if _, err := s.Commit(t.Context(), step(g, k, "1", 1, "late")); !errors.Is(err, run.ErrSuperseded) {
			t.Errorf("the former attempt: %v", err)
		}
	})
}

// A log that does not answer in time must not look like the caller's timeout,
// which a run would record as a step's outcome.
func TestStalledLogIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{latency: time.Minute}
		s := start(t, log, actors.Options{AppendTimeout: 30 * time.Second}).Store()
		_, err := s.Claim(t.Context(), claimOf(task("r1", key("s1"))))
		if !errors.Is(err, session.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a stalled log: %v", err)
		}
	})
}

// Events that no commit can hold are rejected before they reach the writer, so that the
// run continues with the error.
func TestTooLargeForAnyCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &faults{}, actors.Options{}).Store()
		k := key("s1")
		g := claim(t, s, task("r1", k))
		_, err := s.Commit(t.Context(), step(g, k, "0", 0, strings.Repeat("x", commitlog.MaxCommit)))
		if !errors.Is(err, session.ErrTooLarge) || run.IsControl(err) {
			t.Errorf("a step over the limit: %v", err)
		}
		if _, err := s.Commit(t.Context(), step(g, k, "0", 0, strings.Repeat("x", commitlog.MaxCommit*4/5))); err != nil {
			t.Errorf("a step under the limit: %v", err)
		}
	})
}

// A log that rejects a commit which several requests share rejects only the request
// that is too large.
func TestOnlyTheCulpritIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{latency: time.Second}
		log.append = func(_ int, c commitlog.Commit) error {
			for _, e := range c.Events {
				if strings.Contains(e.Data, "culprit") {
					return fmt.Errorf("over the limit: %w", session.ErrTooLarge)
				}
			}
			return nil
		}
		s := start(t, log, actors.Options{Spills: true}).Store()
		k := key("s1")
		var wg sync.WaitGroup
		for _, id := range []string{"r1", "q1", "culprit", "q2"} {
			wg.Go(func() {
				_, err := s.Claim(t.Context(), claimOf(task(id, k)))
				if id == "culprit" && !errors.Is(err, session.ErrTooLarge) || id != "culprit" && err != nil {
					t.Errorf("%s: %v", id, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
	})
}

func TestPanicIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{}
		var boom atomic.Bool
		var out bytes.Buffer
		s := start(t, log, actors.Options{
			Logger: slog.New(slog.NewTextHandler(&out, nil)),
			Now: func() time.Time {
				if boom.Load() {
					panic("clock is broken")
				}
				return time.Now()
			},
		}).Store()
		k := key("s1")
		g := claim(t, s, task("r1", k))
		boom.Store(true)
		_, err := s.Commit(t.Context(), step(g, k, "0", 0, ""))
		if !errors.Is(err, session.ErrUnavailable) || !strings.Contains(err.Error(), "clock is broken") {
			t.Errorf("a panic was answered with %v", err)
		}
		boom.Store(false)
		if g := claim(t, s, task("r1", k)); g.Attempt != 2 {
			t.Errorf("after the panic: attempt %d", g.Attempt)
		}
		if !strings.Contains(out.String(), "clock is broken") {
			t.Errorf("the panic is not in the log: %s", out.String())
		}
	})
}

// Answers from memory are as good as the memory: an activation whose log has moved on
// must not reject requests that the log allows.
func TestAnswersFromMemoryAreConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{}
		a := start(t, log, actors.Options{Incarnation: "a"}).Store()
		b := start(t, log, actors.Options{Incarnation: "b"}).Store()
		k := key("s1")
		g := claim(t, a, task("r1", k))
		must.Get(a.Commit(t.Context(), end(g, k, 0)))(t)
		claim(t, b, task("r2", k)) // which a's memory lacks
		if err := a.Apply(t.Context(), journal.Signal{To: k, Run: "r2", Cancel: &journal.CancelRequested{Reason: "enough"}}); err != nil {
			t.Errorf("cancel of a run that the log holds: %v", err)
		}
		before := log.lasts
		if err := a.Apply(t.Context(), journal.Signal{To: k, Run: "r9", Cancel: &journal.CancelRequested{}}); !errors.Is(err, run.ErrUnknownRun) {
			t.Errorf("cancel of a run that no log holds: %v", err)
		}
		if log.lasts == before {
			t.Error("a refusal from memory was not confirmed")
		}
	})
}

// Sessions leave a snapshot when they leave memory after many commits, and now and then
// while they stay, so that the next activation reads little.
func TestSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{}
		const every = actors.LongTail + 10
		sys := start(t, log, actors.Options{SnapshotEvery: every})
		saved := func(id string) uint64 {
			at, _, err := log.Load(t.Context(), key(id))
			if err != nil && !errors.Is(err, session.ErrNotFound) {
				t.Fatal(err)
			}
			return at.Seq
		}
		s := sys.Store()
		// fill claims a session and makes it have as many commits.
		fill := func(id string, commits int) *journal.ClaimResult {
			k := key(id)
			g := claim(t, s, task("r"+id, k))
			for i := range commits - 1 {
				must.Get(s.Commit(t.Context(), step(g, k, fmt.Sprint(i), session.Version(i), fmt.Sprint("chunk ", i))))(t)
			}
			synctest.Wait()
			return g
		}
		fill("stays", every+2)
		if at := saved("stays"); at != every {
			t.Errorf("after %d commits the snapshot is at %d, want %d", every+2, at, every)
		}
		for id, commits := range map[string]int{"short": actors.LongTail - 1, "long": actors.LongTail, "again": every + actors.LongTail - 1} {
			g := fill(id, commits-1)
			must.Get(s.Commit(t.Context(), end(g, key(id), session.Version(commits-2))))(t)
		}
		time.Sleep(2 * time.Minute)
		if n := sys.Active(); n != 1 {
			t.Errorf("%d sessions are in memory, want the one with an open run", n)
		}
		for id, want := range map[string]uint64{"short": 0, "long": actors.LongTail, "again": every} {
			if at := saved(id); at != want {
				t.Errorf("%s left memory with the snapshot at %d, want %d", id, at, want)
			}
		}
		fill("drained", actors.LongTail)
		stop(t, sys)
		if at := saved("drained"); at != actors.LongTail {
			t.Errorf("drained with the snapshot at %d, want %d", at, actors.LongTail)
		}
		next := start(t, log, actors.Options{Incarnation: "n2"})
		for id, tail := range map[string]int{"short": actors.LongTail - 1, "long": 0, "again": actors.LongTail - 1} {
			log.set(func() { log.reads = 0 })
			g := claim(t, next.Store(), task("r", key(id)))
			if g.Session.Len() == 0 || g.Session.Text() != fmt.Sprint("chunk ", g.Session.Len()-1) || g.Epoch != 2 {
				t.Errorf("activated with %q, %d chunks, epoch %d", g.Session.Text(), g.Session.Len(), g.Epoch)
			}
			if log.reads != tail {
				t.Errorf("the activation of %s read %d commits, want %d", id, log.reads, tail)
			}
		}
	})
}

// TestForksLeaveSnapshots: even a short fork leaves a snapshot, so that the time to
// read it does not grow with the number of its ancestors.
func TestForksLeaveSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{}
		sys := start(t, log, actors.Options{})
		s := sys.Store()
		k, fork := key("s1"), key("s2")
		g := claim(t, s, task("r1", k))
		ack := must.Get(s.Commit(t.Context(), step(g, k, "0", 0, "zero")))(t)
		must.Get(s.Commit(t.Context(), end(g, k, 1)))(t)
		from, ok := ack.Session.Link()
		if !ok {
			t.Fatal("the step's session cannot be forked")
		}
		again := task("r2", fork)
		g = must.Get(s.Claim(t.Context(), journal.Claim{
			Session: fork, Home: fork, Run: again.ID, Task: &again, Root: k.ID, Open: session.Opening{Kind: session.OpenFork, Parents: []session.Link{from}},
		}))(t)
		must.Get(s.Commit(t.Context(), end(g, fork, 1)))(t)
		time.Sleep(2 * actors.DefaultPassivate)
		if sys.Active() != 0 {
			t.Fatalf("%d sessions are in memory", sys.Active())
		}
		if at, _, err := log.Load(t.Context(), k); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("a short session left a snapshot at %d, %v", at.Seq, err)
		}
		if at, _, err := log.Load(t.Context(), fork); err != nil || at.Seq == 0 {
			t.Errorf("the fork left a snapshot at %d, %v", at.Seq, err)
		}
	})
}

// TestManySessions: a process with many sessions in memory does not keep the idle ones.
func TestManySessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := start(t, &faults{}, actors.Options{})
		for i := range 4 * actors.IdleMost {
			k := key(fmt.Sprint("s", i))
			g := claim(t, sys.Store(), task(fmt.Sprint("r", i), k))
			must.Get(sys.Store().Commit(t.Context(), end(g, k, 0)))(t)
		}
		claim(t, sys.Store(), task("r", key("open")))
		time.Sleep(time.Second)
		if n := sys.Active(); n > actors.IdleMost+1 {
			t.Errorf("%d sessions are in memory, want at most %d without a run", n, actors.IdleMost)
		}
		time.Sleep(2 * actors.DefaultPassivate)
		if n := sys.Active(); n != 1 {
			t.Errorf("%d sessions are in memory, want the one with an open run", n)
		}
	})
}
