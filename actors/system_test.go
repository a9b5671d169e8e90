package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// work is the workflow "w" of the tests: its steps count themselves and wait until they
// are released.
type work struct {
	mu    sync.Mutex
	calls []string // "node step"
	hold  map[string]chan struct{}
}

// holding is work whose runs stay in a step until the test closes its channel.
func holding(step string) *work {
	return &work{hold: map[string]chan struct{}{step: make(chan struct{})}}
}

func (w *work) done() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

func (w *work) workflow(node string, steps int) flow.Workflow {
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		for i := range steps {
			name := fmt.Sprint("step", i)
			text, err := flow.Do(ctx, name, func(ctx context.Context) (string, error) {
				w.mu.Lock()
				w.calls = append(w.calls, node+" "+name)
				hold := w.hold[name]
				w.mu.Unlock()
				if hold != nil {
					select {
					case <-hold:
					case <-ctx.Done():
						return "", context.Cause(ctx)
					}
				}
				return name, nil
			}, tool.ReadOnly)
			if err != nil {
				return s, err
			}
			s = s.With(session.AssistantText(text))
		}
		return s, nil
	})
}

// host returns a System that offers a workflow "w" of two steps.
func host(t testing.TB, log commitlog.Log, w *work, o actors.Options) *actors.System {
	t.Helper()
	return start(t, log, w.hosted(t, log, o))
}

// hosted completes the options of a System that offers the workflow.
func (w *work) hosted(t testing.TB, log commitlog.Log, o actors.Options) actors.Options {
	t.Helper()
	o.Log = log
	if o.Incarnation == "" {
		o.Incarnation = "n1"
	}
	o.Values = journal.NewValues(log)
	node := o.Incarnation
	if o.Workflows == nil {
		o.Workflows = w.offers(t, node, "w", "1")
	}
	if o.Runtime == nil {
		o.Runtime = &engine.Runtime{}
	}
	o.Runtime.Values, o.Runtime.Mint, o.Runtime.Node = o.Values, commitlog.IDGenerator{}, node
	return o
}

// accepted gives a node a task, which it must accept.
func accepted(t *testing.T, sys *actors.System, task journal.Task) {
	t.Helper()
	must.Get(sys.Accept(t.Context(), task))(t)
}

// offers returns a registry with one workflow of two steps.
func (w *work) offers(t testing.TB, node, name, revision string) *engine.Registry {
	t.Helper()
	g := &engine.Registry{}
	must.Do(t, g.Register(flow.Registration{Name: name, Revision: revision, New: func() flow.Workflow { return w.workflow(node, 2) }}))
	return g
}

func state(t testing.TB, log commitlog.Log, k session.Key, id run.ID) *journal.Record {
	t.Helper()
	w := value(journal.LoadStateMachine(context.Background(), log, journal.NewValues(log), k, "reader"))
	r := w.RunState().Run(id)
	if r == nil {
		return &journal.Record{}
	}
	return r
}

func TestAcceptExecutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := &faults{}, holding("step1")
		sys := host(t, log, w, actors.Options{Slots: 4})
		k := key("s1")
		if a, err := sys.Accept(t.Context(), task("r1", k)); err != nil || a != journal.AnswerCommitted {
			t.Fatalf("accepted %q, %v", a, err)
		}
		if r := state(t, log, k, "r1"); r.State != run.Running {
			t.Errorf("accepted, but the log says %q", r.State)
		}
		synctest.Wait()
		if a, err := sys.Accept(t.Context(), task("r1", k)); err != nil || a != journal.AnswerCommitted {
			t.Errorf("again, while it executes: %q, %v", a, err)
		}
		other := task("r1", k)
		other.Model = "another"
		if _, err := sys.Accept(t.Context(), other); !errors.Is(err, run.ErrKeyReused) {
			t.Errorf("the same id for another task: %v", err)
		}
		if a, err := sys.Accept(t.Context(), task("r2", k)); err != nil || a != journal.AnswerQueued {
			t.Errorf("a second run of the session: %q, %v", a, err)
		}
		if sys.Running() != 1 || sys.Free() != 3 {
			t.Errorf("%d runs execute, %d slots are free", sys.Running(), sys.Free())
		}
		close(w.hold["step1"])
		synctest.Wait()
		if r := state(t, log, k, "r1"); r.State != run.Succeeded || r.Attempt != 1 {
			t.Errorf("ended %q after %d attempts", r.State, r.Attempt)
		}
		if a, err := sys.Accept(t.Context(), task("r1", k)); err != nil || a != journal.AnswerCommitted {
			t.Errorf("again, when it is over: %q, %v", a, err)
		}
		// As the relay does with the offer in the first run's last commit.
		if a, err := sys.Accept(t.Context(), journal.Task{ID: "r2", Workflow: "w", Session: k, Resume: true}); err != nil || a != journal.AnswerCommitted {
			t.Errorf("the queued run: %q, %v", a, err)
		}
		synctest.Wait()
		if r := state(t, log, k, "r2"); r.State != run.Succeeded {
			t.Errorf("the queued run ended %q", r.State)
		}
		if want := []string{"n1 step0", "n1 step1", "n1 step0", "n1 step1"}; !slices.Equal(w.done(), want) {
			t.Errorf("executed %q", w.done())
		}
		if sys.Running() != 0 || sys.Free() != 4 {
			t.Errorf("%d runs execute, %d slots are free", sys.Running(), sys.Free())
		}
	})
}

func TestAcceptRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := host(t, &faults{}, &work{}, actors.Options{})
		bad := task("r1", key("s1"))
		bad.Workflow = "other"
		if _, err := sys.Accept(t.Context(), bad); !errors.Is(err, run.ErrNotSupported) || !strings.Contains(err.Error(), "other") {
			t.Errorf("a workflow that is not offered: %v", err)
		}
		if _, err := sys.Accept(t.Context(), task("r 1", key("s1"))); !errors.Is(err, run.ErrMalformed) {
			t.Errorf("an id with a space: %v", err)
		}
	})
}

func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := &faults{}, holding("step0")
		sys := host(t, log, w, actors.Options{Slots: 2})
		for i := range 2 {
			accepted(t, sys, task(fmt.Sprint("r", i), key(fmt.Sprint("s", i))))
		}
		before := time.Now()
		if _, err := sys.Accept(t.Context(), task("r2", key("s2"))); !errors.Is(err, run.ErrBusy) || time.Since(before) != 0 {
			t.Errorf("a third run: %v after %v", err, time.Since(before))
		}
		if n := log.count(); n != 2 {
			t.Errorf("%d commits: a refused task must leave none", n)
		}
		close(w.hold["step0"])
		synctest.Wait()
		if sys.Free() != 2 {
			t.Errorf("at the end %d slots are free", sys.Free())
		}
	})
}

func TestCancelStopsAnExecution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := &faults{}, holding("step0")
		sys := host(t, log, w, actors.Options{})
		k := key("s1")
		accepted(t, sys, task("r1", k))
		synctest.Wait()
		must.Do(t, sys.Signal(t.Context(), journal.Signal{To: k, Run: "r1", Cancel: &journal.CancelRequested{Reason: "enough"}}))
		synctest.Wait()
		if r := state(t, log, k, "r1"); r.State != run.Cancelled {
			t.Errorf("a cancelled run is %q", r.State)
		}
		if err := sys.Signal(t.Context(), journal.Signal{To: k, Run: "r1", Cancel: &journal.CancelRequested{}}); !errors.Is(err, run.ErrState) {
			t.Errorf("cancelled again: %v", err)
		}
	})
}

func TestDrainReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := &faults{}, holding("step1")
		sys := host(t, log, w, actors.Options{Drain: 10 * time.Second})
		k := key("s1")
		accepted(t, sys, task("r1", k))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- sys.Run(ctx) }()
		synctest.Wait()
		cancel()
		before := time.Now()
		synctest.Wait()
		if _, err := sys.Accept(t.Context(), task("r2", key("s2"))); !errors.Is(err, run.ErrShutdown) {
			t.Errorf("a task while draining: %v", err)
		}
		must.Do(t, <-ended)
		if d := time.Since(before); d != 10*time.Second {
			t.Errorf("drained after %v", d)
		}
		if r := state(t, log, k, "r1"); r.State != run.Queued {
			t.Errorf("a run that was cut off is %q", r.State)
		}
		if _, err := sys.Store().Claim(t.Context(), claimOf(task("r3", k))); !errors.Is(err, run.ErrShutdown) {
			t.Errorf("a claim after the end: %v", err)
		}
		// Another node continues at the first step that is not recorded.
		close(w.hold["step1"])
		next := host(t, log, w, actors.Options{Incarnation: "n2"})
		must.Get(next.Accept(t.Context(), journal.Task{ID: "r1", Workflow: "w", Session: k, Resume: true}))(t)
		synctest.Wait()
		if r := state(t, log, k, "r1"); r.State != run.Succeeded || r.Attempt != 2 {
			t.Errorf("resumed: %q at attempt %d", r.State, r.Attempt)
		}
		if want := []string{"n1 step0", "n1 step1", "n2 step1"}; !slices.Equal(w.done(), want) {
			t.Errorf("executed %q", w.done())
		}
	})
}

func TestDrainLetsRunsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := &faults{}, holding("step1")
		sys := host(t, log, w, actors.Options{})
		k := key("s1")
		accepted(t, sys, task("r1", k))
		time.AfterFunc(3*time.Second, func() { close(w.hold["step1"]) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		before := time.Now()
		if err := sys.Drain(ctx); err != nil || time.Since(before) != 3*time.Second {
			t.Errorf("drained after %v: %v", time.Since(before), err)
		}
		if r := state(t, log, k, "r1"); r.State != run.Succeeded {
			t.Errorf("the run is %q", r.State)
		}
	})
}

// Park lets the step in progress end, and releases the run before the next one.
func TestPark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := &faults{}, holding("step0")
		sys := host(t, log, w, actors.Options{})
		k := key("s1")
		accepted(t, sys, task("r1", k))
		synctest.Wait()
		time.AfterFunc(3*time.Second, func() { close(w.hold["step0"]) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		before := time.Now()
		if err := sys.Park(ctx); err != nil || time.Since(before) != 3*time.Second {
			t.Errorf("parked after %v: %v", time.Since(before), err)
		}
		if err := sys.Park(ctx); err != nil {
			t.Errorf("parked again: %v", err)
		}
		if r := state(t, log, k, "r1"); r.State != run.Queued {
			t.Errorf("the parked run is %q", r.State)
		}
		next := host(t, log, w, actors.Options{Incarnation: "n2"})
		must.Get(next.Accept(t.Context(), journal.Task{ID: "r1", Workflow: "w", Session: k, Resume: true}))(t)
		synctest.Wait()
		if r := state(t, log, k, "r1"); r.State != run.Succeeded || r.Attempt != 2 {
			t.Errorf("resumed: %q at attempt %d", r.State, r.Attempt)
		}
		if want := []string{"n1 step0", "n2 step1"}; !slices.Equal(w.done(), want) {
			t.Errorf("executed %q, want %q", w.done(), want)
		}
	})
}

// The log is absent for moments or for hours during a run; when it is back, the run
// continues here. No other node would resume it, because this one lives.
func TestRunIsTakenUpAgain(t *testing.T) {
	for _, away := range []time.Duration{2 * time.Second, 3 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			log, w := &faults{}, &work{}
			var down atomic.Bool
			log.append = func(n int, _ commitlog.Commit) error {
				if n == 2 {
					down.Store(true)
					time.AfterFunc(away, func() { down.Store(false) })
				}
				if down.Load() {
					return fmt.Errorf("the log is away: %w", session.ErrUnavailable)
				}
				return nil
			}
			sys := host(t, log, w, actors.Options{})
			k := key("s1")
			accepted(t, sys, task("r1", k))
			time.Sleep(away + time.Minute)
			if r := state(t, log, k, "r1"); r.State != run.Succeeded {
				t.Errorf("away for %v: the run is %q", away, r.State)
			}
			if want := []string{"n1 step0", "n1 step0", "n1 step1"}; !slices.Equal(w.done(), want) {
				t.Errorf("away for %v: executed %q", away, w.done())
			}
		})
	}
}

// TestRunIsTakenUpBesideItsRevision has a node begin a run that asks for a revision
// which no node offers, lose it, and then another node offer that revision. No relay
// gives the run to the other node, because the first one lives: the run continues under
// its previous code.
func TestRunIsTakenUpBesideItsRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := &faults{}, &work{}
		var elsewhere atomic.Bool
		log.append = func(n int, _ commitlog.Commit) error {
			if n == 2 {
				elsewhere.Store(true)
				return fmt.Errorf("the log is away: %w", session.ErrUnavailable)
			}
			return nil
		}
		sys := host(t, log, w, actors.Options{Runtime: &engine.Runtime{
			Offered: func(context.Context, string, string) bool { return elsewhere.Load() },
		}})
		k := key("s1")
		asked := task("r1", k)
		asked.Revision = "2"
		accepted(t, sys, asked)
		time.Sleep(time.Minute)
		if r := state(t, log, k, "r1"); r.State != run.Succeeded {
			t.Errorf("the run is %q", r.State)
		}
	})
}
