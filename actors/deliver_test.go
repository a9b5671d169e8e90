package actors_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// cluster is a set of systems over one log that can reach each other.
type cluster struct {
	mu        sync.Mutex
	systems   map[string]*actors.System
	frozen    map[string]bool // receives deliveries and does not answer
	gone      map[string]bool // by membership
	changed   chan struct{}   // closed with the next change of it
	delivered []string
}

var errNobody = errors.New("no responders")

func (c *cluster) deliver(ctx context.Context, incarnation string, w journal.Work) (journal.Answer, error) {
	c.mu.Lock()
	sys := c.systems[incarnation]
	c.delivered = append(c.delivered, incarnation)
	c.mu.Unlock()
	for changed := c.next(); c.isFrozen(incarnation); changed = c.next() {
		select {
		case <-changed:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	if sys == nil {
		return "", errNobody
	}
	return sys.Delivered(ctx, w)
}

func (c *cluster) alive(incarnation string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.gone[incarnation]
}

func (c *cluster) isFrozen(incarnation string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frozen[incarnation]
}

func (c *cluster) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.delivered)
}

func (c *cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

func (c *cluster) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// join starts a system of the cluster.
func (c *cluster) join(t testing.TB, log commitlog.Log, w *work, incarnation string) *actors.System {
	t.Helper()
	return c.joinAs(t, log, w, incarnation, "w", "1")
}

// joinAs is join for a node that offers another workflow, or another revision: revision
// 1 is always on offer elsewhere.
func (c *cluster) joinAs(t testing.TB, log commitlog.Log, w *work, incarnation, workflow, revision string) *actors.System {
	t.Helper()
	sys := host(t, log, w, actors.Options{
		Incarnation: incarnation, Deliver: c.deliver, Alive: c.alive, Changed: c.next, Workflows: w.offers(t, incarnation, workflow, revision),
		Runtime: &engine.Runtime{Offered: func(_ context.Context, _, revision string) bool { return revision == "1" }},
	})
	c.change(func() {
		if c.systems == nil {
			c.systems, c.frozen, c.gone = map[string]*actors.System{}, map[string]bool{}, map[string]bool{}
		}
		c.systems[incarnation] = sys
	})
	return sys
}

func TestWorkGoesToTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w, c := &faults{}, holding("step1"), &cluster{}
		a, b := c.join(t, log, w, "a"), c.join(t, log, w, "b")
		k := key("s1")
		accepted(t, a, task("r1", k))
		synctest.Wait()
		// An offer of the same run, a second run and a signal reach b.
		if got, err := b.Accept(t.Context(), journal.Task{ID: "r1", Workflow: "w", Session: k, Resume: true}); err != nil || got != journal.AnswerCommitted {
			t.Errorf("the run that a executes, offered to b: %q, %v", got, err)
		}
		if got, err := b.Accept(t.Context(), task("r2", k)); err != nil || got != journal.AnswerQueued {
			t.Errorf("a run for a's session, offered to b: %q, %v", got, err)
		}
		if err := b.Signal(t.Context(), journal.Signal{To: k, Run: "r2", Cancel: &journal.CancelRequested{}}); err != nil {
			t.Errorf("a signal for a's session, given to b: %v", err)
		}
		if err := b.Signal(t.Context(), journal.Signal{To: k, Run: "r9", Cancel: &journal.CancelRequested{}}); !errors.Is(err, run.ErrUnknownRun) {
			t.Errorf("a's refusal came as %v", err)
		}
		if got := c.asked(); len(got) != 4 {
			t.Errorf("asked %q", got)
		}
		close(w.hold["step1"])
		synctest.Wait()
		if r := state(t, log, k, "r1"); r.State != run.Succeeded || r.Attempt != 1 {
			t.Errorf("a's run: %q at attempt %d", r.State, r.Attempt)
		}
	})
}

// TestStaleOffers: an offer that was made before the session's run began does not
// disturb the run, at any node that gets the offer.
func TestStaleOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w, c := &faults{}, holding("step1"), &cluster{}
		a := c.joinAs(t, log, w, "a", "w", "2")
		old, other := c.join(t, log, w, "old"), c.joinAs(t, log, w, "other", "x", "1")
		k := key("s1")
		accepted(t, a, task("r1", k))
		synctest.Wait()
		second := journal.Task{ID: "r2", Workflow: "x", Session: k}
		if got, err := other.Accept(t.Context(), second); err != nil || got != journal.AnswerQueued {
			t.Fatalf("a run of another workflow: %q, %v", got, err)
		}
		before := log.count()
		second.Resume = true
		if got, err := other.Accept(t.Context(), second); err != nil || got != journal.AnswerQueued {
			t.Errorf("an offer of a run that waits: %q, %v", got, err)
		}
		for _, revision := range []string{"", "1"} {
			stale := journal.Task{ID: "r1", Workflow: "w", Session: k, Resume: true, Revision: revision}
			if got, err := old.Accept(t.Context(), stale); err != nil || got != journal.AnswerCommitted {
				t.Errorf("an offer under revision %q of the run that executes: %q, %v", revision, got, err)
			}
		}
		if n := log.count() - before; n > 0 {
			t.Errorf("%d commits beside the run that executes", n)
		}
		close(w.hold["step1"])
		synctest.Wait()
		if r := state(t, log, k, "r1"); r.State != run.Succeeded || r.Attempt != 1 {
			t.Errorf("the run is %s, attempt %d: %v", r.State, r.Attempt, w.done())
		}
		if got, err := other.Accept(t.Context(), second); err != nil || got != journal.AnswerCommitted {
			t.Errorf("the next run, offered: %q, %v", got, err)
		}
		synctest.Wait()
		if r := state(t, log, k, "r2"); r.State != run.Succeeded || r.Attempt != 1 {
			t.Errorf("the next run is %s, attempt %d: %v", r.State, r.Attempt, w.done())
		}
	})
}

func TestIdleSessionMovesWithoutAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w, c := &faults{}, &work{}, &cluster{}
		a, b := c.join(t, log, w, "a"), c.join(t, log, w, "b")
		k := key("s1")
		// a keeps the session in memory, as it was after its first run, and has to find
		// out twice that b continued.
		for i, sys := range []*actors.System{a, b, a, b} {
			id := fmt.Sprint("r", i)
			if got, err := sys.Accept(t.Context(), task(id, k)); err != nil || got != journal.AnswerCommitted {
				t.Errorf("%s: %q, %v", id, got, err)
			}
			synctest.Wait()
			if r := state(t, log, k, run.ID(id)); r.State != run.Succeeded || r.Attempt != 1 {
				t.Errorf("%s is %q after %d attempts", id, r.State, r.Attempt)
			}
		}
		want := []string{"a step0", "a step1", "b step0", "b step1", "a step0", "a step1", "b step0", "b step1"}
		if !slices.Equal(w.done(), want) {
			t.Errorf("executed %q", w.done())
		}
		if got := c.asked(); len(got) != 0 {
			t.Errorf("asked %q", got)
		}
	})
}

func TestSilentHolderLosesTheSession(t *testing.T) {
	for _, how := range []string{"frozen", "no responders", "gone", "without gossip"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, w, c := &faults{}, holding("step0"), &cluster{}
				a, b := c.join(t, log, w, "a"), c.join(t, log, w, "b")
				k := key("s1")
				accepted(t, a, task("r1", k))
				synctest.Wait()
				want := time.Duration(0)
				c.change(func() {
					switch how {
					case "frozen":
						c.frozen["a"], want = true, actors.DefaultAnswerTimeout
					case "no responders":
						delete(c.systems, "a")
					case "gone":
						c.gone["a"], c.frozen["a"], want = true, true, 300*time.Millisecond
					case "without gossip":
						c.gone["a"] = true // as the others see it, but it answers
					}
				})
				before := time.Now()
				if got, err := b.Accept(t.Context(), journal.Task{ID: "r1", Workflow: "w", Session: k, Resume: true}); err != nil || got != journal.AnswerCommitted {
					t.Fatalf("offered to b: %q, %v", got, err)
				}
				if d := time.Since(before); d != want {
					t.Errorf("took over after %v, want %v", d, want)
				}
				// Both continue now; the log lets one of them write.
				close(w.hold["step0"])
				time.Sleep(time.Minute)
				r := state(t, log, k, "r1")
				if r.State != run.Succeeded {
					t.Errorf("the run is %q", r.State)
				}
				attempts := uint64(2)
				if how == "without gossip" {
					attempts = 1 // the claim stays valid
				}
				if got := r.Attempt; got != attempts {
					t.Errorf("%d attempts, want %d", got, attempts)
				}
			})
		})
	}
}

// TestHolderDiesWhileAsked asks a holder that dies, or comes back, during the request,
// as the others notice after a second.
func TestHolderDiesWhileAsked(t *testing.T) {
	for how, want := range map[string]time.Duration{"dies": 1300 * time.Millisecond, "wakes up": 1200 * time.Millisecond, "other dies": actors.DefaultAnswerTimeout} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, w, c := &faults{}, holding("step0"), &cluster{}
				a, b := c.join(t, log, w, "a"), c.join(t, log, w, "b")
				k := key("s1")
				accepted(t, a, task("r1", k))
				synctest.Wait()
				c.change(func() { c.frozen["a"] = true })
				go func() {
					time.Sleep(500 * time.Millisecond)
					c.change(func() {}) // another node joined
					time.Sleep(500 * time.Millisecond)
					c.change(func() { c.gone[map[bool]string{true: "c", false: "a"}[how == "other dies"]] = true })
					if how == "wakes up" {
						time.Sleep(200 * time.Millisecond)
						c.change(func() { c.frozen["a"] = false })
					}
				}()
				before := time.Now()
				if got, err := b.Accept(t.Context(), journal.Task{ID: "r1", Workflow: "w", Session: k, Resume: true}); err != nil || got != journal.AnswerCommitted {
					t.Fatalf("offered to b: %q, %v", got, err)
				}
				if d := time.Since(before); d != want {
					t.Errorf("taken after %v, want %v", d, want)
				}
				close(w.hold["step0"])
				time.Sleep(time.Minute)
				attempts := uint64(2)
				if how == "wakes up" {
					attempts = 1 // its answer arrived in time
				}
				if r := state(t, log, k, "r1"); r.State != run.Succeeded || r.Attempt != attempts {
					t.Errorf("the run is %q at attempt %d, want %d", r.State, r.Attempt, attempts)
				}
			})
		})
	}
}

// Nodes perform all operations on one session concurrently, over a log that fails in
// all its ways: each task ends in one state and each step is recorded once.
func TestNodesRaceForASession(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { raceForASession(t, rand.New(rand.NewPCG(seed, 1)), seed > 0) })
		})
	}
}

func raceForASession(t *testing.T, dice *rand.Rand, faulty bool) {
	var mu sync.Mutex
	inner := &faults{latency: 3 * time.Millisecond}
	log := sessiontest.NewFaultLog(inner, func(int, commitlog.Commit) sessiontest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if !faulty {
			return sessiontest.Fault{}
		}
		switch dice.IntN(40) {
		case 0:
			return sessiontest.Fault{Conflict: true}
		case 1:
			return sessiontest.Fault{Unavailable: true}
		case 2:
			return sessiontest.Fault{Lost: true}
		case 3:
			return sessiontest.Fault{Late: 5 * time.Millisecond}
		case 4:
			return sessiontest.Fault{Stall: 20 * time.Millisecond}
		}
		return sessiontest.Fault{}
	})
	w, c := &work{}, &cluster{}
	nodes := []*actors.System{c.join(t, log, w, "a"), c.join(t, log, w, "b"), c.join(t, log, w, "c")}
	k := key("s1")
	const runs = 24
	var wg sync.WaitGroup
	for i := range runs {
		id := fmt.Sprint("r", i)
		wg.Go(func() {
			time.Sleep(time.Duration(i%7) * time.Millisecond)
			for try := range 20 { // as often as a message is delivered again
				_, err := nodes[(i+try)%3].Accept(t.Context(), task(id, k))
				if err == nil {
					return
				}
				if !errors.Is(err, session.ErrConflict) && !errors.Is(err, run.ErrBusy) && !errors.Is(err, session.ErrUnavailable) {
					t.Errorf("%s: %v", id, err)
				}
				time.Sleep(10 * time.Millisecond)
			}
			t.Errorf("%s was never accepted", id)
		})
	}
	wg.Wait()
	// As the relay and the sweeper do, offer the open runs until all have ended.
	for round := 0; ; round++ {
		open := 0
		for i := range runs {
			id := run.ID(fmt.Sprint("r", i))
			if r := state(t, log, k, id); !r.State.Terminal() {
				open++
				// The next round offers a failed run again.
				_, _ = nodes[round%3].Accept(t.Context(), journal.Task{ID: id, Workflow: "w", Session: k, Resume: true})
			}
		}
		if open == 0 {
			break
		}
		if round > 200 {
			t.Fatalf("%d runs do not end", open)
		}
		time.Sleep(time.Second)
	}
	log.Wait()
	for i := range runs {
		if r := state(t, log, k, run.ID(fmt.Sprint("r", i))); r.State != run.Succeeded {
			t.Errorf("r%d is %q: %v", i, r.State, r.Review)
		}
	}
	steps := map[string]int{}
	for e, err := range log.Read(t.Context(), k, commitlog.Position{}) {
		must.Do(t, err)
		for _, ev := range e.Commit.Events {
			if ev.Kind == journal.KindStepCompleted {
				steps[ev.Batch]++
			}
		}
	}
	for batch, n := range steps {
		if n != 1 {
			t.Errorf("step %s is recorded %d times", batch, n)
		}
	}
	if len(steps) != 2*runs {
		t.Errorf("%d steps are recorded, want %d", len(steps), 2*runs)
	}
}
