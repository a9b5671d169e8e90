package flow_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestQuarantine: the step under way ends, none follows, nobody claims the run
// before it is released; then it goes on.
func TestQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		rt := w.runtime(nil)
		var ran []string
		work := func(ctx context.Context, s session.Session) (session.Session, error) {
			for _, name := range []string{"a", "b", "c"} {
				_, err := flow.Do(ctx, name, func(context.Context) (int, error) {
					ran = append(ran, name)
					time.Sleep(time.Minute)
					return 1, nil
				}, flow.Effect(2))
				if err != nil {
					return s, err
				}
			}
			return s, nil
		}
		ex := start(t, rt, work)
		set := func(released bool) error {
			return rt.Store.Apply(t.Context(), run.Signal{To: home, Quarantine: &run.Quarantined{Reason: "odd", Released: released}})
		}
		go func() {
			time.Sleep(90 * time.Second)
			if err := set(false); err != nil {
				t.Error(err)
			}
		}()
		if state, err := ex.Forward(t.Context()); state != run.Queued {
			t.Fatalf("state %s: %v", state, err)
		}
		if err := set(false); !errors.Is(err, run.ErrState) {
			t.Errorf("quarantined twice: %v", err)
		}
		if ex := start(t, rt, work, resume); ex.State() != run.Queued {
			t.Errorf("a quarantined run is claimed: %s", ex.State())
		}
		if err := set(true); err != nil {
			t.Fatal(err)
		}
		if state, err := start(t, rt, work, resume).Forward(t.Context()); state != run.Succeeded {
			t.Fatalf("state %s: %v", state, err)
		}
		if got := strings.Join(ran, ""); got != "abc" {
			t.Errorf("the steps ran as %q", got)
		}
	})
}

// TestMergeOfQuarantined: a branch that was set apart goes into nothing.
func TestMergeOfQuarantined(t *testing.T) {
	rt := &flow.Runtime{}
	w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "a", Workflow: say("from a")}}, nil)
		if err != nil {
			return s, err
		}
		if err := rt.Signal(ctx, run.Signal{To: j.Outcomes[0].Session.Key(), Quarantine: &run.Quarantined{Reason: "odd"}}); err != nil {
			t.Error(err)
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	})
	_, err := rt.Run(t.Context(), w, session.New(session.UserText("go")))
	if !errors.Is(err, run.ErrReview) || !strings.Contains(err.Error(), "quarantined: odd") {
		t.Errorf("the run stopped with %v", err)
	}
}

// TestConcatenateOfQuarantined: a session that was set apart goes into no other
// one, also if they are not related, until it is released.
func TestConcatenateOfQuarantined(t *testing.T) {
	var w world
	apart := session.Key{Tenant: home.Tenant, ID: "apart"}
	rt := w.runtime(nil)
	odd := start(t, rt, say("odd").Forward, func(task *run.Task) { task.ID, task.Session = "odd", apart })
	if state, err := odd.Forward(t.Context()); state != run.Succeeded {
		t.Fatalf("state %s: %v", state, err)
	}
	set := func(released bool) {
		t.Helper()
		err := rt.Store.Apply(t.Context(), run.Signal{To: apart, Quarantine: &run.Quarantined{Reason: "it read the key", Released: released}})
		if err != nil {
			t.Fatal(err)
		}
	}
	join := func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := say("mine").Forward(ctx, s)
		if err != nil {
			return s, err
		}
		other, err := flow.Read(ctx, session.Ref{Key: apart})
		if err != nil {
			return s, err
		}
		return flow.Concatenate(ctx, s, other)
	}
	set(false)
	state, err := start(t, rt, join).Forward(t.Context())
	if state != run.NeedsReview || !strings.Contains(err.Error(), "session apart is quarantined: it read the key; release it") {
		t.Fatalf("state %s: %v", state, err)
	}
	set(true)
	again := run.Signal{To: home, Run: "r", Resolve: &run.Resolved{Decision: run.Again, Reason: "released"}}
	if err := rt.Store.Apply(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	ex := start(t, w.runtime(nil), join, resume)
	if state, err := ex.Forward(t.Context()); state != run.Succeeded {
		t.Fatalf("released: state %s: %v", state, err)
	}
	if got := strings.Join(texts(ex.Result()), "|"); got != "mine|odd" {
		t.Errorf("the session says %q", got)
	}
}

// TestRecallOfQuarantined: what an archive keeps of a session that was set apart
// is not recalled until it is released.
func TestRecallOfQuarantined(t *testing.T) {
	var w world
	notes := memory.New(nil)
	rt := w.runtime(nil)
	rt.Memory = func(context.Context, session.Tenant, string) (memory.Store, error) { return notes, nil }
	odd := session.Key{Tenant: home.Tenant, ID: "odd"}
	ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := say("the colour is dark").Forward(ctx, s)
		if err == nil {
			_, err = flow.Archive(ctx, s, "m")
		}
		return s, err
	}, func(task *run.Task) { task.ID, task.Session = "odd", odd })
	if state, err := ex.Forward(t.Context()); state != run.Succeeded {
		t.Fatalf("state %s: %v", state, err)
	}
	recalled := func(id run.ID) (n int) {
		t.Helper()
		ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
			hits, err := flow.Recall(ctx, "m", "which colour", 5)
			n = len(hits)
			return s, err
		}, func(task *run.Task) { task.ID, task.Session.ID = id, session.ID(id) })
		if state, err := ex.Forward(t.Context()); state != run.Succeeded {
			t.Fatalf("state %s: %v", state, err)
		}
		return n
	}
	if n := recalled("before"); n != 1 {
		t.Fatalf("%d notes are recalled: the test shows nothing", n)
	}
	for _, released := range []bool{false, true} {
		if err := rt.Store.Apply(t.Context(), run.Signal{To: odd, Quarantine: &run.Quarantined{Reason: "odd", Released: released}}); err != nil {
			t.Fatal(err)
		}
		want := map[bool]int{false: 0, true: 1}[released]
		if n := recalled(run.ID("released-" + strconv.FormatBool(released))); n != want {
			t.Errorf("released %v: %d notes are recalled, want %d", released, n, want)
		}
	}
}

// TestRebudget: a run that is short of tokens goes on with more.
func TestRebudget(t *testing.T) { synctest.Test(t, testRebudget) }

func testRebudget(t *testing.T) {
	var w world
	var rt *flow.Runtime
	calls := 0
	m := client(func(context.Context, *llm.Request) (*llm.Response, error) {
		calls++
		if calls == 1 {
			b := run.Rebudgeted{Budget: run.Budget{Tokens: 1 << 20}}
			if err := rt.Store.Apply(t.Context(), run.Signal{To: home, Run: "r", Rebudget: &b}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second) // the execution hears of it
		}
		return &llm.Response{Text: "x", Finish: llm.FinishStop, Usage: llm.Usage{Input: 900, Output: 200}}, nil
	})
	rt = w.runtime(m)
	agent := &flow.Agent{Name: "a"}
	ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
		for range 3 {
			var err error
			if s, err = agent.Forward(ctx, s.With(session.UserText("go"))); err != nil {
				return s, err
			}
		}
		return s, nil
	}, func(task *run.Task) { task.Budget.Tokens = 1000 })
	if state, err := ex.Forward(t.Context()); state != run.Succeeded {
		t.Fatalf("state %s after %d calls: %v", state, calls, err)
	}
}
