package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// queued leaves a run in a log that somebody has to take up, and returns how it
// is offered to the node where it was.
func queued(t *testing.T, log session.Log, id string) run.Work {
	t.Helper()
	k := key("of-" + id)
	other := start(t, log, actors.Options{Incarnation: "elsewhere-" + id}).Store()
	g := claim(t, other, task(id, k))
	e, err := run.NewEvent(run.KindReleased, run.Released{Attempt: g.Attempt, Reason: "test", Run: g.Task.ID, Workflow: "w"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Commit(t.Context(), run.Batch{Session: k, Run: g.Task.ID, Attempt: g.Attempt, Events: []session.Event{e}}); err != nil {
		t.Fatal(err)
	}
	return run.Work{Task: &run.Task{ID: g.Task.ID, Workflow: "w", Session: k, Resume: true}, Woken: true}
}

// TestWokenRun: who is asked to go on with a run says at once whether he does,
// and has the slot for it.
func TestWokenRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := &faults{}, holding("step0")
		sys := host(t, log, w, actors.Options{Slots: 2, Reserved: 1, Drain: time.Second})
		accepted(t, sys, task("r0", key("s0")))
		r1, r2 := queued(t, log, "r1"), queued(t, log, "r2")
		began := time.Now()
		log.set(func() { log.latency = 100 * time.Millisecond })
		other := r1
		other.Task = &run.Task{ID: "r1", Workflow: "other", Session: r1.Task.Session, Resume: true}
		if a, err := sys.Delivered(t.Context(), other); err != nil || a != actors.NotMine {
			t.Errorf("a run of a workflow that is not offered: %q, %v", a, err)
		}
		if a, err := sys.Delivered(t.Context(), r1); err != nil || a != actors.Taken {
			t.Errorf("a run with a reserved slot: %q, %v", a, err)
		}
		if n := sys.FreeHeld(); n != 0 {
			t.Errorf("%d slots are free after it was taken", n)
		}
		if _, err := sys.Delivered(t.Context(), r2); !errors.Is(err, run.ErrBusy) {
			t.Errorf("a run without a free slot: %v", err)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("the answers took %v", d)
		}
		time.Sleep(time.Second)
		if r := state(t, log, r1.Task.Session, "r1"); r.State != run.Running || sys.Running() != 2 {
			t.Errorf("the run is %s, %d runs execute", r.State, sys.Running())
		}
		close(w.hold["step0"])
		time.Sleep(time.Second)
		if n := sys.FreeHeld(); n != 2 {
			t.Errorf("%d slots are free at the end", n)
		}
		stop(t, sys)
		if _, err := sys.Delivered(t.Context(), r2); !errors.Is(err, run.ErrShutdown) {
			t.Errorf("after a drain: %v", err)
		}
	})
}

// TestWokenRunThatCannotBeClaimed is offered to others, and leaves its slot.
func TestWokenRunThatCannotBeClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := &faults{}, &work{}
		offered := make(chan run.Task, 2)
		sys := host(t, log, w, actors.Options{Slots: 1, Offer: func(_ context.Context, task run.Task) error {
			offered <- task
			return nil
		}})
		r1 := queued(t, log, "r1")
		log.set(func() {
			log.append = func(int, session.Commit) error { return fmt.Errorf("a test: %w", session.ErrUnavailable) }
		})
		if a, err := sys.Delivered(t.Context(), r1); err != nil || a != actors.Taken {
			t.Fatalf("%q, %v", a, err)
		}
		select {
		case got := <-offered:
			if got.ID != "r1" || !got.Resume || got.Workflow != "w" || got.Session != r1.Task.Session {
				t.Errorf("offered %+v", got)
			}
		case <-time.After(time.Minute):
			t.Fatal("it was not offered")
		}
		if n := sys.FreeHeld(); n != 1 {
			t.Errorf("%d slots are free", n)
		}
		log.set(func() { log.append = nil })
		if a, err := sys.Delivered(t.Context(), r1); err != nil || a != actors.Taken {
			t.Fatalf("%q, %v", a, err)
		}
		synctest.Wait()
		if want := []string{"n1 step0", "n1 step1"}; !slices.Equal(w.done(), want) || len(offered) != 0 {
			t.Errorf("did %q and was offered %d times", w.done(), len(offered))
		}
	})
}
