package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// edition is a workflow of two steps. From a version of the change "twice" on it makes a
// third step between them.
type edition struct {
	revision       string
	asks           bool // for the change
	oldest, newest int
	stop           string // the step in which the process stops
	wait           bool   // it waits for a response between the steps
	ran            *[]string
	end            context.CancelCauseFunc // the process
}

func (e edition) forward(ctx context.Context, s session.Session) (session.Session, error) {
	do := func(name string) error {
		_, err := flow.Do(ctx, name, func(ctx context.Context) (int, error) {
			if e.stop == name {
				e.end(run.ErrShutdown)
				return 0, context.Cause(ctx)
			}
			*e.ran = append(*e.ran, name)
			return 0, nil
		}, 2)
		return err
	}
	if err := do("one"); err != nil {
		return s, err
	}
	for range 2 {
		if !e.asks {
			break
		}
		v, err := flow.ChangeVersion(ctx, "twice", e.oldest, e.newest)
		if err != nil {
			return s, err
		}
		if v >= 1 {
			if err := do(fmt.Sprint("more of ", v)); err != nil {
				return s, err
			}
		}
	}
	if e.wait {
		if _, err := flow.Await[int](ctx, "go", nil); err != nil {
			return s, err
		}
	}
	return s, do("two")
}

// versions runs editions one after the other on one run, and returns the steps that ran.
func versions(t *testing.T, w *world, all ...edition) (ran []string, last *engine.Execution, err error) {
	t.Helper()
	for _, e := range all {
		ctx, end := context.WithCancelCause(t.Context())
		defer end(nil)
		e.ran, e.end = &ran, end
		rt := w.runtime(nil)
		rt.Runtime.Offered = func(_ context.Context, _, revision string) bool { return revision == "offered" }
		last = must(rt.Runtime.Begin(t.Context(), flow.Registration{Name: "w", Revision: e.revision, New: func() flow.Workflow { return flow.Func(e.forward) }}, journal.Task{
			ID: "r", Workflow: "w", Session: home, Resume: w.n > 1,
		}))
		if _, err = last.Forward(ctx); e.wait && last.State() == run.Waiting {
			check(t, rt.Signal(t.Context(), journal.Signal{To: home, Run: "r", Received: &journal.SignalReceived{Kind: journal.Respond, Path: "1", Value: "1"}}))
		}
	}
	return ran, last, err
}

// TestVersion: a run keeps the first version of a change that it reaches, whichever code
// resumes it.
func TestVersion(t *testing.T) {
	for name, tt := range map[string]struct {
		all  []edition
		want []string
	}{
		"new": {[]edition{{asks: true, newest: 1}}, []string{"one", "more of 1", "more of 1", "two"}},
		"old code was past it": {
			[]edition{{stop: "three", wait: true}, {asks: true, newest: 1, wait: true}, {asks: true, newest: 2, wait: true}},
			[]string{"one", "two"},
		},
		"old code was before it": {[]edition{{stop: "one"}, {asks: true, newest: 1}}, []string{"one", "more of 1", "more of 1", "two"}},
		"newer code": {
			[]edition{{asks: true, newest: 1, stop: "two"}, {asks: true, newest: 2}},
			[]string{"one", "more of 1", "more of 1", "two"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ran, ex, err := versions(t, &world{}, tt.all...)
			if ex.State() != run.Succeeded || !slices.Equal(ran, tt.want) {
				t.Errorf("it is %s (%v) after %q, want %q", ex.State(), err, ran, tt.want)
			}
		})
	}
}

// TestVersionIsRecordedOnce: a version is one step, and a replay by other code gets the
// same version as a live run.
func TestVersionIsRecordedOnce(t *testing.T) {
	var w world
	if _, ex, err := versions(t, &w, edition{asks: true, newest: 1}); ex.State() != run.Succeeded {
		t.Fatal(err)
	}
	var kept []string
	for _, d := range facts[journal.StepCompleted](t, &w, journal.KindStepCompleted) {
		if strings.Contains(d.Name, "version") {
			kept = append(kept, fmt.Sprint(d.Path, " ", d.Kind, " ", d.Name, " = ", d.Value))
		}
	}
	if !slices.Equal(kept, []string{"1 do version of twice = 1"}) {
		t.Errorf("recorded: %q", kept)
	}
	var old world
	if _, ex, err := versions(t, &old, edition{}); ex.State() != run.Succeeded {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		w       *world
		e       edition
		differs string
	}{
		"the same":       {&w, edition{asks: true, newest: 1}, ""},
		"newer":          {&w, edition{asks: true, newest: 2}, ""},
		"taken back":     {&w, edition{asks: true, newest: 0}, `recorded version 1 of change "twice"`},
		"removed":        {&w, edition{}, "version of twice"},
		"of a former":    {&old, edition{asks: true, newest: 1}, ""},
		"former dropped": {&old, edition{asks: true, oldest: 1, newest: 1}, `is of version 0 of change "twice"`},
	} {
		t.Run(name, func(t *testing.T) {
			tt.e.ran = new([]string)
			rt := tt.w.runtime(nil)
			r := must(engine.Replay(t.Context(), &rt.Runtime, flow.Registration{Name: "w", New: func() flow.Workflow { return flow.Func(tt.e.forward) }}, home, "r"))
			if tt.differs == "" && !r.Matches() || !strings.Contains(r.Differs, tt.differs) {
				t.Errorf("it differs by %q, want %q", r.Differs, tt.differs)
			}
		})
	}
}

// TestVersionTakenBack: code that no longer has the version of the run stops with the
// change and the remedy named, or releases the run to code that has it.
func TestVersionTakenBack(t *testing.T) {
	for name, tt := range map[string]struct {
		first, then edition
		want        []string
	}{
		"taken back": {
			edition{revision: "1", asks: true, newest: 2, stop: "two"},
			edition{revision: "2", asks: true, newest: 1},
			[]string{`run r recorded version 2 of change "twice"`, "versions up to 1", "rath answer r fail"},
		},
		"dropped": {
			edition{revision: "1", stop: "three", wait: true},
			edition{revision: "2", asks: true, oldest: 1, newest: 1, wait: true},
			[]string{`run r is of version 0 of change "twice"`, "versions from 1 on", "rath answer r fail"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, ex, err := versions(t, &world{}, tt.first, tt.then)
			if ex.State() != run.NeedsReview || !errors.Is(err, run.ErrMismatch) {
				t.Fatalf("it is %s: %v", ex.State(), err)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("it does not say %q:\n%v", part, err)
				}
			}
			tt.first.revision = "offered"
			if _, ex, err := versions(t, &world{}, tt.first, tt.then); ex.State() != run.Queued {
				t.Errorf("with the former code on offer it is %s: %v", ex.State(), err)
			}
		})
	}
}

// TestVersionInBranches: a branch has the version of the run around it; if that run
// reaches the change later, each decides for itself.
func TestVersionInBranches(t *testing.T) {
	rt := &inprocess.Runtime{}
	ask := func(ctx context.Context, s session.Session, newest int) (session.Session, error) {
		v, err := flow.ChangeVersion(ctx, "c", 0, newest)
		return s.With(session.UserText(fmt.Sprint(v))), err
	}
	branch := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) { return ask(ctx, s, 3) })
	s := must(rt.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := ask(ctx, s, 2)
		if err != nil {
			return s, err
		}
		j, err := flow.FanOut(ctx, s, flow.Repeat(2, branch), nil)
		if err != nil {
			return s, err
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	}), session.New()))
	if got := texts(s); !slices.Equal(got, []string{"2", "2", "2"}) {
		t.Errorf("the versions are %q", got)
	}
}

// TestVersionRefused: an invalid range is an error and records no step.
func TestVersionRefused(t *testing.T) {
	rt := &inprocess.Runtime{}
	_, err := rt.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		for _, try := range []struct {
			change         string
			oldest, newest int
		}{{"", 0, 1}, {strings.Repeat("x", 101), 0, 1}, {"c", -1, 1}, {"c", 2, 1}} {
			if _, err := flow.ChangeVersion(ctx, try.change, try.oldest, try.newest); err == nil {
				t.Errorf("%+v is taken", try)
			}
		}
		_, err := flow.Do(ctx, "inside", func(ctx context.Context) (int, error) { return flow.ChangeVersion(ctx, "c", 0, 1) }, tool.NonIdempotent)
		if !errors.Is(err, run.ErrNestedStep) {
			t.Errorf("inside of a step: %v", err)
		}
		return s, nil
	}), session.New())
	check(t, err)
	if _, err := flow.ChangeVersion(t.Context(), "c", 0, 1); err == nil || !strings.Contains(err.Error(), "not inside a run") {
		t.Errorf("outside of a run: %v", err)
	}
}
