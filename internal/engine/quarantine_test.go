package engine_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestQuarantine: the step in flight ends, no other begins, and no node claims the run
// before it is released; then it resumes.
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
				}, tool.ReadOnly)
				if err != nil {
					return s, err
				}
			}
			return s, nil
		}
		ex := start(t, rt, work)
		set := func(released bool) error {
			return rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Quarantine: &journal.Quarantined{Reason: "odd", Released: released}})
		}
		go func() {
			time.Sleep(90 * time.Second)
			if err := set(false); err != nil {
				t.Error(err)
			}
		}()
		forward(t, t.Context(), ex, run.Queued)
		if err := set(false); !errors.Is(err, run.ErrState) {
			t.Errorf("quarantined twice: %v", err)
		}
		if ex := start(t, rt, work, resume); ex.State() != run.Queued {
			t.Errorf("a quarantined run is claimed: %s", ex.State())
		}
		check(t, set(true))
		forward(t, t.Context(), start(t, rt, work, resume), run.Succeeded)
		if got := strings.Join(ran, ""); got != "abc" {
			t.Errorf("the steps ran as %q", got)
		}
	})
}

// TestQuarantineInLastStep: a run whose last step is in flight when its session is
// quarantined ends, even if its end has branches to adopt and to close.
func TestQuarantineInLastStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		rt := w.runtime(nil)
		ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
			taken, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			if _, err := flow.Fork(ctx, s); err != nil {
				return s, err
			}
			_, err = flow.Do(ctx, "last", func(context.Context) (int, error) {
				time.Sleep(time.Minute)
				return 1, nil
			}, tool.ReadOnly)
			return taken.With(session.UserText("done")), err
		})
		time.AfterFunc(time.Second, func() {
			if err := rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Quarantine: &journal.Quarantined{Reason: "odd"}}); err != nil {
				t.Error(err)
			}
		})
		forward(t, t.Context(), ex, run.Succeeded)
		if got := texts(ex.Result()); !slices.Equal(got, []string{"done"}) {
			t.Errorf("the session says %q", got)
		}
	})
}

// TestMergeOfQuarantined: a quarantined branch cannot be merged.
func TestMergeOfQuarantined(t *testing.T) {
	rt := &inprocess.Runtime{}
	w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "a", Workflow: say("from a")}}, nil)
		if err != nil {
			return s, err
		}
		if err := rt.Signal(ctx, journal.Signal{To: j.Outcomes[0].Session.Key(), Quarantine: &journal.Quarantined{Reason: "odd"}}); err != nil {
			t.Error(err)
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	})
	_, err := rt.Run(t.Context(), w, session.New(session.UserText("go")))
	if !errors.Is(err, run.ErrReview) || !strings.Contains(err.Error(), "quarantined: odd") {
		t.Errorf("the run stopped with %v", err)
	}
}

// TestConcatenateOfQuarantined: a quarantined session cannot be joined to another one,
// even an unrelated one, until it is released.
func TestConcatenateOfQuarantined(t *testing.T) {
	var w world
	apart := session.Key{Tenant: home.Tenant, ID: "apart"}
	rt := w.runtime(nil)
	odd := start(t, rt, say("odd").Forward, func(task *journal.Task) { task.ID, task.Session = "odd", apart })
	forward(t, t.Context(), odd, run.Succeeded)
	set := func(released bool) {
		t.Helper()
		check(t, rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: apart, Quarantine: &journal.Quarantined{Reason: "it read the key", Released: released}}))
	}
	join := func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := say("mine").Forward(ctx, s)
		if err != nil {
			return s, err
		}
		other, err := flow.ReadSession(ctx, session.Ref{Key: apart})
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
	again := journal.Signal{To: home, Run: "r", Resolve: &journal.Resolved{Decision: run.Again, Reason: "released"}}
	check(t, rt.Runtime.Store.Apply(t.Context(), again))
	ex := start(t, w.runtime(nil), join, resume)
	if state, err := ex.Forward(t.Context()); state != run.Succeeded {
		t.Fatalf("released: state %s: %v", state, err)
	}
	if got := strings.Join(texts(ex.Result()), "|"); got != "mine|odd" {
		t.Errorf("the session says %q", got)
	}
}

// TestRecallOfQuarantined: no note of a session is recalled while the session is
// quarantined, and the record mentions it. Notes of others are found in their place.
func TestRecallOfQuarantined(t *testing.T) {
	for name, write := range map[string]func(context.Context, session.Session) error{
		"archive": func(ctx context.Context, s session.Session) error {
			_, err := flow.ArchiveSession(ctx, s, "m")
			return err
		},
		"remember": func(ctx context.Context, _ session.Session) error {
			_, err := flow.Remember(ctx, "m", "colours", "the colour is dark: colour, colour, colour")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newRecaller(t)
			m.run("odd", func(ctx context.Context, s session.Session) (session.Session, error) {
				s, err := say("the colour is dark: colour, colour, colour").Forward(ctx, s)
				if err == nil {
					err = write(ctx, s)
				}
				return s, err
			})
			m.write("memory://user/old", "once the colour was red") // by a release that kept no origins
			if hits, step := m.recall("before", 1); len(hits) != 1 || hits[0].URI == "memory://user/old" || step.Summary != "recalls 1 note" {
				t.Fatalf("recalled are %+v, the record is %+v: the test shows nothing", hits, step)
			}
			m.quarantine("odd", false)
			hits, step := m.recall("apart", 1)
			if len(hits) != 1 || hits[0].URI != "memory://user/old" {
				t.Errorf("recalled are %+v", hits)
			}
			if want := `"withheld":[{"notes":1,"session":"odd","why":"the session is quarantined: it read the key"}]`; !strings.Contains(step.Value, want) || step.Summary != "recalls 1 note, withholds 1" {
				t.Errorf("the record says %q, %s, want %s", step.Summary, step.Value, want)
			}
			m.quarantine("odd", true)
			if hits, _ := m.recall("released", 5); len(hits) != 2 {
				t.Errorf("released: recalled are %+v", hits)
			}
		})
	}
}

// TestRecallOfUnknown: notes from a session that cannot be read are not recalled; notes
// that no run wrote, and those of an archived session, are.
func TestRecallOfUnknown(t *testing.T) {
	m := newRecaller(t)
	m.run("odd", func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Remember(ctx, "m", "colours", "the colour is dark")
		return s, err
	})
	m.write("memory://user/old", "once the colour was red")
	for _, tt := range []struct {
		name  string
		fails error
		hits  int
		says  string
	}{
		{"away", session.ErrUnavailable, 1, `"withheld":[{"notes":1,"session":"odd","why":"whether the session is quarantined is not known: `},
		{"archived", &session.ArchivedError{}, 2, `"text":`},
		{"back", nil, 2, `"text":`},
	} {
		m.log.fails = tt.fails
		hits, step := m.recall(run.ID(tt.name), 5)
		if len(hits) != tt.hits || !strings.Contains(step.Value, tt.says) || strings.Contains(step.Value, "withheld") != strings.Contains(tt.says, "withheld") {
			t.Errorf("%s: recalled are %+v, the record says %s", tt.name, hits, step.Value)
		}
	}
	m.rt.Runtime.Values = nil
	if _, err := m.rt.Runtime.Begin(t.Context(), flow.Registration{Name: "w"}, journal.Task{ID: "blind", Workflow: "w", Session: session.Key{Tenant: session.DefaultTenant, ID: "blind"}}); err == nil || !strings.Contains(err.Error(), "no Values") {
		t.Errorf("without values: %v", err)
	}
}

// TestOriginOfNotes: a note in a memory names the run that wrote it.
func TestOriginOfNotes(t *testing.T) {
	m := newRecaller(t)
	m.rt.Runtime.Models = model(func(*llm.Request) *llm.Response { return &llm.Response{Text: "dark", Finish: llm.FinishStop} })
	m.run("odd", func(ctx context.Context, s session.Session) (session.Session, error) {
		if _, err := flow.Remember(ctx, "m", "colours", "first colour"); err != nil {
			return s, err
		}
		s, err := (&flow.Agent{Name: "a"}).Forward(ctx, s.With(session.UserText("second colour?")))
		if err == nil {
			_, err = flow.ArchiveSession(ctx, s, "m")
		}
		return s, err
	})
	var got []memory.Origin
	for n := range m.notes.Notes() {
		got = append(got, n.Origin)
	}
	row := memory.Origin{Session: "odd", Version: 2, Run: "odd", Step: "2"} // of the question, and of the answer
	want := []memory.Origin{row, row, {Session: "odd", Run: "odd", Step: "0"}}
	if !slices.Equal(got, want) {
		t.Errorf("the notes are from %+v, want %+v", got, want)
	}
}

// recaller is a runtime with one memory, over a log that may fail to read the session
// "odd".
type recaller struct {
	t     *testing.T
	rt    *inprocess.Runtime
	log   *blindLog
	notes *notebook.InMemory
}

// blindLog fails to read the session "odd" while fails is set.
type blindLog struct {
	commitlog.Log
	fails error
}

func (l *blindLog) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	if l.fails != nil && k.ID == "odd" {
		return func(yield func(commitlog.Entry, error) bool) { yield(commitlog.Entry{}, l.fails) }
	}
	return l.Log.Read(ctx, k, after)
}

func newRecaller(t *testing.T) *recaller {
	var w world
	m := &recaller{t: t, rt: w.runtime(nil), log: &blindLog{Log: &w.Memory}, notes: notebook.New(nil)}
	m.rt.Runtime.Values = journal.NewValues(m.log)
	m.rt.Runtime.Memory = func(context.Context, session.Tenant, string) (memory.Store, error) { return m.notes, nil }
	return m
}

// run runs f on a session with the name of the run.
func (m *recaller) run(id run.ID, f flow.Func) {
	m.t.Helper()
	ex := start(m.t, m.rt, f, func(task *journal.Task) { task.ID, task.Session.ID = id, session.ID(id) })
	if state, err := ex.Forward(m.t.Context()); state != run.Succeeded {
		m.t.Fatalf("run %s is %s: %v", id, state, err)
	}
}

// write stores a note that no run wrote.
func (m *recaller) write(uri, text string) {
	m.t.Helper()
	if err := m.notes.Write(m.t.Context(), uri, text, memory.Origin{}); err != nil {
		m.t.Fatal(err)
	}
}

// recall runs one search, and also returns its record.
func (m *recaller) recall(id run.ID, limit int) (hits []memory.Hit, step journal.StepCompleted) {
	m.t.Helper()
	m.run(id, func(ctx context.Context, s session.Session) (_ session.Session, err error) {
		hits, err = flow.Recall(ctx, "m", "which colour", limit)
		return s, err
	})
	for e, err := range m.log.Read(m.t.Context(), session.Key{Tenant: home.Tenant, ID: session.ID(id)}, commitlog.Position{}) {
		if err != nil {
			m.t.Fatal(err)
		}
		for _, ev := range e.Commit.Events {
			if ev.Kind == journal.KindStepCompleted {
				if step, err = journal.Decode[journal.StepCompleted](ev); err != nil {
					m.t.Fatal(err)
				}
			}
		}
	}
	return hits, step
}

func (m *recaller) quarantine(id session.ID, released bool) {
	m.t.Helper()
	q := journal.Quarantined{Reason: "it read the key", Released: released}
	if err := m.rt.Runtime.Store.Apply(m.t.Context(), journal.Signal{To: session.Key{Tenant: home.Tenant, ID: id}, Quarantine: &q}); err != nil {
		m.t.Fatal(err)
	}
}

// TestRebudget: a run that is short of tokens continues with more.
func TestRebudget(t *testing.T) { synctest.Test(t, testRebudget) }

func testRebudget(t *testing.T) {
	var w world
	var rt *inprocess.Runtime
	calls := 0
	m := client(func(context.Context, *llm.Request) (*llm.Response, error) {
		calls++
		if calls == 1 {
			b := journal.Rebudgeted{Budget: run.Budget{Tokens: 1 << 20}}
			if err := rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Rebudget: &b}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second) // the execution receives it
		}
		return &llm.Response{Text: "x", Finish: llm.FinishStop, Usage: session.Usage{Input: 900, Output: 200}}, nil
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
	}, func(task *journal.Task) { task.Budget.Tokens = 1000 })
	if state, err := ex.Forward(t.Context()); state != run.Succeeded {
		t.Fatalf("state %s after %d calls: %v", state, calls, err)
	}
}
