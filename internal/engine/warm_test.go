package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// scribe is a model that answers after a second and notes the beginning and end of each
// request, and its sender.
type scribe struct {
	mu    sync.Mutex
	notes []string
	fail  map[string]bool // requests that it refuses
}

func (s *scribe) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, text)
}

func (s *scribe) complete(ctx context.Context, r *llm.Request) (*llm.Response, error) {
	who := r.Messages[len(r.Messages)-1].Text
	s.note("asks " + who)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.fail[who] {
		s.note("refuses " + who)
		return nil, llm.Rebuild(llm.CodeInvalidRequest, "no")
	}
	s.note("answers " + who)
	return &llm.Response{Text: "to " + who, Finish: llm.FinishStop}, nil
}

// asking is a branch that asks the model calls times, as name.
func asking(name string, calls int) flow.Branch {
	agent := &flow.Agent{Name: "a", Prompt: "You answer."}
	return flow.Branch{Name: name, Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		for i := range calls {
			var err error
			if s, err = agent.Forward(ctx, s.With(session.UserText(fmt.Sprintf("%s%d", name, i)))); err != nil {
				return s, err
			}
		}
		return s, nil
	})}
}

// warmed runs a warm-first fan-out and returns the model's requests, in order, the
// outcomes of the branches, and the events of the run's log.
func warmed(t *testing.T, m *scribe, o flow.FanOutOptions, bs ...flow.Branch) (notes []string, states []run.State, kinds []string) {
	t.Helper()
	log := &commitlog.Memory{}
	values := journal.NewValues(log)
	rt := &inprocess.Runtime{Runtime: engine.Runtime{Values: values, Models: client(m.complete)}}
	rt.Runtime.Store = journal.NewStore(log, &journal.StoreOptions{Values: values, OnCommit: rt.Committed})
	o.WarmFirst = true
	s := must(rt.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s, bs, &o)
		if err != nil {
			return s, err
		}
		states = nil
		for _, o := range j.Outcomes {
			states = append(states, o.State)
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	}), session.New(session.UserText("go"))))
	for e, err := range log.Read(t.Context(), s.Key(), commitlog.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range e.Commit.Events {
			kinds = append(kinds, ev.Kind)
		}
	}
	return m.notes, states, kinds
}

// TestWarmFirst: the first branch is answered before any other asks, and then
// the others do not wait for its end.
func TestWarmFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notes, states, kinds := warmed(t, &scribe{}, flow.FanOutOptions{}, asking("a", 2), asking("b", 2), asking("c", 1))
		if len(notes) != 10 || notes[0] != "asks a0" || notes[1] != "answers a0" {
			t.Fatalf("the model was asked %q", notes)
		}
		for _, one := range []string{"asks b0", "asks c0"} {
			if at := slices.Index(notes, one); at < 2 || at > slices.Index(notes, "answers a1") {
				t.Errorf("%s is not between the answers to the first branch: %q", one, notes)
			}
		}
		if want := []run.State{run.Succeeded, run.Succeeded, run.Succeeded}; !slices.Equal(states, want) {
			t.Errorf("the branches are %v", states)
		}
		if n := count(kinds, journal.KindBranchesReleased); n != 1 || count(kinds, journal.KindFanOut) != 1 {
			t.Errorf("%d events let the others begin: %v", n, kinds)
		}
	})
}

func count(all []string, one string) (n int) {
	for _, v := range all {
		if v == one {
			n++
		}
	}
	return n
}

// TestWarmFirstWaits: a first branch that waits before it asks a model warms no cache,
// and the others begin.
func TestWarmFirstWaits(t *testing.T) {
	ask := asking("a", 1).Workflow
	forks := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s, []flow.Branch{asking("x", 3), asking("y", 3)}, nil)
		if err != nil {
			return s, err
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	})
	sleeps := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		if err := flow.Sleep(ctx, time.Minute); err != nil {
			return s, err
		}
		return ask.Forward(ctx, s)
	})
	for name, c := range map[string]struct {
		first  flow.Workflow
		before string
	}{
		"opens branches": {forks, "answers x1"},
		"sleeps":         {sleeps, "asks a0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				notes, states, kinds := warmed(t, &scribe{}, flow.FanOutOptions{}, flow.Branch{Name: "first", Workflow: c.first}, asking("b", 1), asking("c", 1))
				for _, one := range []string{"answers b0", "answers c0"} {
					if at := slices.Index(notes, one); at < 0 || at > slices.Index(notes, c.before) {
						t.Errorf("the model %s not before it %s: %q", one, c.before, notes)
					}
				}
				if want := []run.State{run.Succeeded, run.Succeeded, run.Succeeded}; !slices.Equal(states, want) {
					t.Errorf("the branches are %v", states)
				}
				if n := count(kinds, journal.KindBranchesReleased); n != 1 {
					t.Errorf("%d events let the others begin: %v", n, kinds)
				}
			})
		})
	}
}

// TestWarmFirstNeedsReview: the others do not wait for a review of the first branch.
func TestWarmFirstNeedsReview(t *testing.T) {
	log := &commitlog.Memory{}
	values := journal.NewValues(log)
	rt := &inprocess.Runtime{Runtime: engine.Runtime{Values: values}}
	rt.Runtime.Store = journal.NewStore(log, &journal.StoreOptions{Values: values, OnCommit: rt.Committed})
	stuck := flow.Func(func(_ context.Context, s session.Session) (session.Session, error) {
		return s, fmt.Errorf("look at it: %w", run.ErrReview)
	})
	_, err := rt.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "a", Workflow: stuck}, {Name: "b", Workflow: say("b")}}, &flow.FanOutOptions{WarmFirst: true})
		return s, err
	}), session.New(session.UserText("go")))
	if !errors.Is(err, run.ErrReview) { // in one process no person decides
		t.Fatal(err)
	}
	releases := 0
	for _, k := range log.Keys() {
		for e, err := range log.Read(t.Context(), k, commitlog.Position{}) {
			if err != nil {
				t.Fatal(err)
			}
			if ev := e.Commit.Events; ev[len(ev)-1].Kind == journal.KindReview && ev[0].Kind == journal.KindCacheWarmed {
				releases++
			}
		}
	}
	if releases != 1 {
		t.Errorf("%d commits let the others begin with the review", releases)
	}
}

// TestWarmFirstWithoutAnswer: the others begin once the first branch has
// ended, if it asks no model, gets no answer, or fails.
func TestWarmFirstWithoutAnswer(t *testing.T) {
	slow := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Do(ctx, "look", func(context.Context) (int, error) { time.Sleep(time.Hour); return 0, nil }, tool.NonIdempotent)
		return s, err
	})
	broken := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		return s, errors.New("broken")
	})
	refused := asking("a", 1).Workflow
	for name, c := range map[string]struct {
		first flow.Workflow
		after time.Duration
		notes int
		state run.State
	}{
		"no model": {slow, time.Hour, 4, run.Succeeded},
		"fails":    {broken, 0, 4, run.Failed},
		"refused":  {refused, time.Second, 6, run.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				m := &scribe{fail: map[string]bool{"a0": true}}
				notes, states, kinds := warmed(t, m, flow.FanOutOptions{Quorum: 2}, flow.Branch{Name: "first", Workflow: c.first}, asking("b", 1), asking("c", 1))
				if want := []run.State{c.state, run.Succeeded, run.Succeeded}; c.state == run.Failed && !slices.Equal(states, want) {
					t.Errorf("the branches are %v, want %v", states, want)
				}
				if d := time.Since(began); d < c.after+time.Second || d > c.after+2*time.Second {
					t.Errorf("it took %v", d)
				}
				if len(notes) != c.notes || c.notes == 6 && notes[1] != "refuses a0" {
					t.Errorf("the model was asked %q", notes)
				}
				if n := count(kinds, journal.KindBranchesReleased); n != 1 {
					t.Errorf("%d events let the others begin: %v", n, kinds)
				}
			})
		})
	}
}

// TestWarmFirstDecided: a first branch that decides the join ends the fan-out, and the
// others never begin.
func TestWarmFirstDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scribe{}
		notes, states, kinds := warmed(t, m, flow.FanOutOptions{First: true}, flow.Branch{Name: "quick", Workflow: say("quick")}, asking("b", 1), asking("c", 1))
		if want := []run.State{run.Succeeded, run.Cancelled, run.Cancelled}; !slices.Equal(states, want) {
			t.Errorf("the branches are %v, want %v", states, want)
		}
		if len(notes) != 0 || count(kinds, journal.KindBranchesReleased) != 0 {
			t.Errorf("the model was asked %q: %v", notes, kinds)
		}
		if !strings.Contains(strings.Join(kinds, " "), journal.KindBranchOutcomes) {
			t.Errorf("the others were not disposed of: %v", kinds)
		}
	})
}
