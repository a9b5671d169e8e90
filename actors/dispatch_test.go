package actors_test

import (
	"errors"
	"fmt"
	"slices"
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

// queued leaves a run in a log for a node to resume, and returns the task that
// dispatches it.
func queued(t *testing.T, log commitlog.Log, id string) journal.Task {
	t.Helper()
	k := key("of-" + id)
	other := start(t, log, actors.Options{Incarnation: "elsewhere-" + id}).Store()
	g := claim(t, other, task(id, k))
	e := value(journal.NewEvent(journal.KindReleased, journal.Released{Attempt: g.Attempt, Reason: "test", Run: g.Record.Task.ID, Workflow: "w"}))
	must.Get(other.Commit(t.Context(), journal.Batch{Session: k, Run: g.Record.Task.ID, Attempt: g.Attempt, Events: []session.Event{e}}))(t)
	return journal.Task{ID: g.Record.Task.ID, Workflow: "w", Session: k, Resume: true, Seen: &journal.Seen{Attempt: g.Attempt}}
}

// TestDispatched: a node accepts a run if it has a free slot, reports at once that it
// has none, and does not claim a run that has progressed elsewhere.
func TestDispatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := &faults{}, holding("step0")
		sys := host(t, log, w, actors.Options{Slots: 2, Drain: time.Second})
		accepted(t, sys, task("r0", key("s0")))
		r1, r2 := queued(t, log, "r1"), queued(t, log, "r2")
		other := r1
		other.Workflow = "other"
		if a, err := sys.Dispatched(t.Context(), other); err != nil || a != journal.AnswerNotMine {
			t.Errorf("a run of a workflow that is not offered: %q, %v", a, err)
		}
		old := r1
		old.Seen = &journal.Seen{}
		if a, err := sys.Dispatched(t.Context(), old); err != nil || a != journal.AnswerCommitted || sys.Free() != 1 || sys.Running() != 1 {
			t.Errorf("a run that the relay knows as it was: %q, %v, %d slots are free", a, err, sys.Free())
		}
		if a, err := sys.Dispatched(t.Context(), r1); err != nil || a != journal.AnswerCommitted {
			t.Errorf("a run with a free slot: %q, %v", a, err)
		}
		began := time.Now()
		if _, err := sys.Dispatched(t.Context(), r2); !errors.Is(err, run.ErrBusy) || time.Since(began) != 0 {
			t.Errorf("a run without a free slot: %v after %v", err, time.Since(began))
		}
		if r := state(t, log, r1.Session, "r1"); r.State != run.Running || r.Attempt != 2 || sys.Running() != 2 {
			t.Errorf("the run is %s, %d runs execute", r.State, sys.Running())
		}
		if a, err := sys.Dispatched(t.Context(), r1); !errors.Is(err, run.ErrBusy) {
			t.Errorf("the same again: %q, %v", a, err)
		}
		close(w.hold["step0"])
		time.Sleep(time.Second)
		select {
		case <-sys.Freed():
		default:
			t.Error("free slots are not reported")
		}
		if a, err := sys.Dispatched(t.Context(), r1); err != nil || a != journal.AnswerCommitted || sys.Free() != 2 {
			t.Errorf("a run that has ended: %q, %v, %d slots are free", a, err, sys.Free())
		}
		stop(t, sys)
		if _, err := sys.Dispatched(t.Context(), r2); !errors.Is(err, run.ErrShutdown) {
			t.Errorf("after a drain: %v", err)
		}
	})
}

// TestDispatchedButNotClaimed: with the log absent, the slot is free again, and the run
// can be dispatched again.
func TestDispatchedButNotClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := &faults{}, &work{}
		sys := host(t, log, w, actors.Options{Slots: 1})
		r1 := queued(t, log, "r1")
		log.set(func() {
			log.append = func(int, commitlog.Commit) error { return fmt.Errorf("a test: %w", session.ErrUnavailable) }
		})
		if a, err := sys.Dispatched(t.Context(), r1); err == nil {
			t.Fatalf("%q without a log", a)
		}
		time.Sleep(time.Minute)
		if n := sys.Free(); n != 1 {
			t.Errorf("%d slots are free", n)
		}
		log.set(func() { log.append = nil })
		if a, err := sys.Dispatched(t.Context(), r1); err != nil || a != journal.AnswerCommitted {
			t.Fatalf("%q, %v", a, err)
		}
		synctest.Wait()
		if want := []string{"n1 step0", "n1 step1"}; !slices.Equal(w.done(), want) {
			t.Errorf("did %q", w.done())
		}
	})
}

// TestDispatchedRunGoesOn: a dispatched run whose claim is in the log continues here
// after either failure, without another dispatch: as long as this incarnation lives no
// relay dispatches it.
func TestDispatchedRunGoesOn(t *testing.T) {
	away := fmt.Errorf("a test: %w", session.ErrUnavailable)
	for name, fail := range map[string]func(log *faults, claim, step int){
		"the log is away for a step": func(log *faults, _, step int) {
			log.append = func(n int, _ commitlog.Commit) error {
				if n == step {
					return away
				}
				return nil
			}
		},
		"the log takes claims and no step, ten times": func(log *faults, _, _ int) {
			lost := 0
			log.append = func(_ int, c commitlog.Commit) error {
				for _, f := range journal.Facts(c) {
					if _, step := f.What.(journal.StepCompleted); step && lost < 10 {
						lost++
						return away
					}
				}
				return nil
			}
		},
		"the claim is stored, and its answer is lost": func(log *faults, claim, _ int) {
			log.after = func(n int, _ commitlog.Commit) error {
				if n == claim {
					return away
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, w := &faults{}, &work{}
				sys := host(t, log, w, actors.Options{Slots: 1})
				r1 := queued(t, log, "r1")
				log.set(func() { fail(log, log.appends+1, log.appends+2) })
				a, err := sys.Dispatched(t.Context(), r1)
				time.Sleep(time.Minute)
				if r := state(t, log, r1.Session, "r1"); r.State != run.Succeeded || sys.Free() != 1 {
					t.Errorf("answered %q, %v; the run is %s at attempt %d, %d slots are free", a, err, r.State, r.Attempt, sys.Free())
				}
			})
		})
	}
}

// TestDispatchedTakesTheSlotItWasSentTo: a run that waits in a log is executed where a
// relay sent it, even if another node wrote the log. That node's slots do not matter.
func TestDispatchedTakesTheSlotItWasSentTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w, c := &faults{}, holding("step0"), &cluster{}
		a, b := c.join(t, log, w, "a"), c.join(t, log, w, "b")
		r1 := task("r1", key("s1"))
		must.Do(t, b.Enqueue(t.Context(), r1, nil))
		r1 = journal.Task{ID: "r1", Workflow: "w", Session: r1.Session, Resume: true, Seen: &journal.Seen{}}
		free := b.Free()
		if got, err := a.Dispatched(t.Context(), r1); err != nil || got != journal.AnswerCommitted {
			t.Errorf("a run that b wrote, dispatched to a: %q, %v", got, err)
		}
		if a.Running() != 1 || b.Running() != 0 || b.Free() != free {
			t.Errorf("%d runs execute at a, %d at b, which has %d free slots, want 1, 0 and %d", a.Running(), b.Running(), b.Free(), free)
		}
		// Another relay with an older state of the run changes nothing.
		if got, err := b.Dispatched(t.Context(), r1); err != nil || got != journal.AnswerCommitted || b.Running() != 0 {
			t.Errorf("the same to b: %q, %v; %d runs execute there", got, err, b.Running())
		}
		close(w.hold["step0"])
		synctest.Wait()
		if want := []string{"a step0", "a step1"}; !slices.Equal(w.done(), want) {
			t.Errorf("did %q", w.done())
		}
	})
}
