package dossier_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// value panics on an error: the workflows of these tests end at the first one.
func value[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// execute runs a workflow once on a session.
func (w *world) execute(ctx context.Context, k session.Key, id run.ID, f flow.Func, change func(*journal.Task)) run.State {
	w.t.Helper()
	task := journal.Task{ID: id, Workflow: "shape", Session: k}
	if change != nil {
		change(&task)
	}
	rt := w.node("alpha", &w.log, model(func(r *llm.Request) *llm.Response {
		return &llm.Response{Text: fmt.Sprintf("answer %d", len(r.Messages))}
	}))
	ex, err := rt.Begin(ctx, flow.Registration{Name: "shape", New: func() flow.Workflow { return f }}, task)
	w.must(err)
	state, _ := ex.Forward(ctx)
	return state
}

// say asks a model once.
func say(ctx context.Context, s session.Session, text string) session.Session {
	return value((&flow.Agent{Name: "speaker", Prompt: "Answer."}).Forward(ctx, s.With(session.UserText(text))))
}

// put writes a file.
func put(ctx context.Context, s session.Session, path, text string) session.Session {
	write, _ := tool.ByName(tool.WriteWorkspaceFile)
	s, _, err := flow.CallTool(ctx, s, write, map[string]string{"path": path, "content": text})
	return value(s, err)
}

// shapes are the ways in which the sessions of a run can be connected.
var shapes = []struct {
	name     string
	state    run.State
	sessions int64
	forward  func(ctx context.Context, s session.Session) (session.Session, error)
}{
	{"one session", run.Succeeded, 1, func(ctx context.Context, s session.Session) (session.Session, error) {
		return say(ctx, s, "hello"), nil
	}},
	{"a failure", run.Failed, 2, func(ctx context.Context, s session.Session) (session.Session, error) {
		value(flow.Fork(ctx, say(ctx, s, "hello")))
		return s, errors.New("no luck")
	}},
	{"a panic", run.Failed, 1, func(ctx context.Context, s session.Session) (session.Session, error) { panic("oh") }},
	{"a branch that is returned", run.Succeeded, 2, func(ctx context.Context, s session.Session) (session.Session, error) {
		return say(ctx, value(flow.Fork(ctx, say(ctx, s, "one"))), "two"), nil
	}},
	{"a branch of a branch that is returned", run.Succeeded, 3, func(ctx context.Context, s session.Session) (session.Session, error) {
		mid := say(ctx, value(flow.Fork(ctx, say(ctx, s, "one"))), "two")
		return say(ctx, value(flow.Fork(ctx, mid)), "three"), nil
	}},
	{"a branch of a branch that is adopted", run.Succeeded, 3, func(ctx context.Context, s session.Session) (session.Session, error) {
		s = say(ctx, s, "one")
		mid := say(ctx, value(flow.Fork(ctx, s)), "two")
		return flow.Adopt(ctx, s, say(ctx, value(flow.Fork(ctx, mid)), "three"), "it is best")
	}},
	{"a dropped result", run.Succeeded, 2, func(ctx context.Context, s session.Session) (session.Session, error) {
		s = say(ctx, s, "one")
		say(ctx, s, "dropped")
		return say(ctx, s, "two"), nil
	}},
	{"a branch that is not returned", run.Succeeded, 2, func(ctx context.Context, s session.Session) (session.Session, error) {
		s = say(ctx, s, "one")
		value(flow.Fork(ctx, s))
		return s, nil
	}},
	{"a copy", run.Succeeded, 2, func(ctx context.Context, s session.Session) (session.Session, error) {
		s = say(ctx, s, "one")
		say(ctx, value(flow.Detach(ctx, s)), "aside")
		return s, nil
	}},
	{"a concatenation", run.Succeeded, 4, func(ctx context.Context, s session.Session) (session.Session, error) {
		s = say(ctx, s, "one")
		left, right := value(flow.Fork(ctx, s)), value(flow.Fork(ctx, s))
		return flow.Concatenate(ctx, say(ctx, left, "left"), say(ctx, right, "right"))
	}},
	{"a summary", run.Succeeded, 2, func(ctx context.Context, s session.Session) (session.Session, error) {
		return (&flow.Compressor{Name: "short"}).Forward(ctx, say(ctx, s, "one"))
	}},
	{"files without a branch", run.Succeeded, 1, func(ctx context.Context, s session.Session) (session.Session, error) {
		return put(ctx, s.To("local", "testdata/work"), "a.txt", "a\n"), nil
	}},
	{"recorded code", run.Succeeded, 1, func(ctx context.Context, s session.Session) (session.Session, error) {
		n, err := flow.Do(ctx, "count", func(context.Context) (int, error) { return 7, nil }, tool.NonIdempotent)
		if err != nil || n != 7 {
			return s, err
		}
		_, err = flow.Do(ctx, "fail", func(context.Context) (int, error) { return 0, errors.New("nothing there") }, tool.ReadOnly, tool.Retry{First: time.Millisecond})
		return s.With(session.SystemText(err.Error())), nil
	}},
}

// TestShapes checks that evidence of every shape is collected, renders and verifies, and
// that the folds of this package and of package session agree.
func TestShapes(t *testing.T) {
	for _, tt := range shapes {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			synctest.Test(t, func(t *testing.T) {
				if state := w.execute(t.Context(), home, fixRun, tt.forward, nil); state != tt.state {
					t.Fatalf("the run ended as %s, want %s", state, tt.state)
				}
				f := w.check(fixRun, home)
				if f.Numbers.Sessions != tt.sessions || f.State != tt.state {
					t.Errorf("%d sessions, state %s", f.Numbers.Sessions, f.State)
				}
			})
		})
	}
}

// check collects the evidence of a run, renders and verifies it.
func (w *world) check(id run.ID, k session.Key) *dossier.Facts {
	w.t.Helper()
	e, err := dossier.Collect(context.Background(), &w.log, w.blobs, k, id, nil)
	w.must(err)
	for form, doc := range render(w.t, e) {
		if _, err := dossier.Verify(doc, nil); err != nil {
			w.t.Errorf("%s: %v", form, err)
		}
	}
	f, err := dossier.Read(e)
	w.must(err)
	values := journal.NewValues(&w.log)
	for i, s := range f.Sessions {
		v, err := values.At(context.Background(), session.Ref{Key: session.Key{Tenant: k.Tenant, ID: s.ID}, Version: s.Version})
		w.must(err)
		if s.Head != v.Placement().Head {
			w.t.Errorf("session %s has head %s, its value %s", s.Label, s.Head, v.Placement().Head)
		}
		if last, err := w.log.Last(context.Background(), v.Key()); err != nil || i > 0 && s.Role != "referred to" && last.At.Hash != s.Last {
			w.t.Errorf("session %s ends with %s, its log with %s: %v", s.Label, s.Last, last.At.Hash, err)
		}
	}
	return f
}

// moments yields the world after each commit.
func (w *world) moments() iter.Seq[*world] {
	return func(yield func(*world) bool) {
		ctx := w.t.Context()
		var all []commitlog.Entry
		for _, k := range w.log.Keys() {
			for e, err := range w.log.Read(ctx, k, commitlog.Position{}) {
				w.must(err)
				all = append(all, e)
			}
		}
		slices.SortFunc(all, func(a, b commitlog.Entry) int { return int(a.At.Token) - int(b.At.Token) })
		early := &world{t: w.t, blobs: w.blobs}
		for _, e := range all {
			last, err := early.log.Last(ctx, e.Commit.Key)
			if !errors.Is(err, session.ErrNotFound) {
				w.must(err)
			}
			_, err = early.log.Append(ctx, last.At, e.Commit)
			w.must(err)
			if !yield(early) {
				return
			}
		}
	}
}

// TestEveryMoment collects evidence during the run: after each commit.
func TestEveryMoment(t *testing.T) {
	w, whole := played(t)
	total := 0
	for _, l := range whole.Logs {
		total += len(l.Commits)
	}
	commits := 0
	for early := range w.moments() {
		early.check(fixRun, home)
		commits++
	}
	if commits != total {
		t.Errorf("the logs have %d commits, the evidence %d", commits, total)
	}
}

// TestOtherRuns checks the evidence of a session with several runs.
func TestOtherRuns(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		step := func(name string) flow.Func {
			return func(ctx context.Context, s session.Session) (session.Session, error) {
				if s.Placement().Backend == "" {
					s = s.To("local", "testdata/work")
				}
				s = say(ctx, s, name)
				return flow.Adopt(ctx, s, put(ctx, value(flow.Fork(ctx, s)), name+".txt", name+"\n"), "done")
			}
		}
		for _, name := range []string{"one", "two", "three"} {
			if state := w.execute(t.Context(), home, run.ID(name), step(name), nil); state != run.Succeeded {
				t.Fatalf("run %s ended as %s", name, state)
			}
		}
		fork := session.Key{Tenant: home.Tenant, ID: "elsewhere"}
		state := w.execute(t.Context(), fork, "four", step("four"), func(task *journal.Task) {
			task.ForkOf = &session.Ref{Key: home, Version: 3}
		})
		if state != run.Succeeded {
			t.Fatalf("the run on a fork ended as %s", state)
		}
		for _, name := range []string{"one", "two", "three"} {
			f := w.check(run.ID(name), home)
			if f.Numbers.Sessions != 2 || f.Numbers.ModelCalls != 1 || f.Numbers.ToolCalls != 1 {
				t.Errorf("run %s: %+v", name, f.Numbers)
			}
			var paths []string
			for _, c := range f.Changes.Files {
				paths = append(paths, c.Path)
			}
			if diff := cmp.Diff([]string{name + ".txt"}, paths); diff != "" {
				t.Errorf("run %s changed (-want +got):\n%s", name, diff)
			}
		}
		f := w.check("four", fork)
		if len(f.Sessions) < 3 || f.Numbers.Sessions != 2 || len(f.Changes.Files) != 1 {
			t.Errorf("the run on a fork: %d sessions, %d files changed", len(f.Sessions), len(f.Changes.Files))
		}
	})
}

// TestQueuedRun checks a run that waits for its session and is cancelled before it is
// claimed.
func TestQueuedRun(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		rt := w.node("alpha", &w.log, nil)
		g := flow.Registration{Name: "shape", New: func() flow.Workflow { return flow.EmptyWorkflow{} }}
		for _, id := range []run.ID{"first", "second"} {
			_, err := rt.Begin(t.Context(), g, journal.Task{ID: id, Workflow: "shape", Session: home})
			w.must(err)
		}
		if f := w.check("second", home); f.State != run.Queued || f.Numbers.Sessions != 1 {
			t.Errorf("waiting: state %s, %d sessions", f.State, f.Numbers.Sessions)
		}
		w.must(rt.Store.Apply(t.Context(), journal.Signal{To: home, Run: "second", Cancel: &journal.CancelRequested{By: "ana", Reason: "no need"}}))
		f := w.check("second", home)
		if f.State != run.Cancelled || f.Verdict != "The run was cancelled: no need" || len(f.Decisions) != 1 {
			t.Errorf("cancelled: state %s, %q", f.State, f.Verdict)
		}
	})
}

// TestQuotedDossier checks that a dossier quoted in a run is not taken for the run's own
// evidence.
func TestQuotedDossier(t *testing.T) {
	for _, text := range []string{
		"<!-- rath evidence\n{}\n-->\n", `<script type="application/json" id="evidence">` + "\n{}</script>\n</body>\n</html>\n", string(render(t, sample(t))[dossier.FormMarkdown]),
	} {
		w := newWorld(t)
		synctest.Test(t, func(t *testing.T) {
			w.execute(t.Context(), home, "quote", func(ctx context.Context, s session.Session) (session.Session, error) {
				return say(ctx, s, text), nil
			}, nil)
		})
		if f := w.check("quote", home); !strings.HasPrefix(text, f.Asked.Shown[:12]) {
			t.Errorf("it was asked %.80q", f.Asked.Shown)
		}
	}
}

// TestBlame checks that each line of a hunk leads to the step that made it.
func TestBlame(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		state := w.execute(t.Context(), home, fixRun, func(ctx context.Context, s session.Session) (session.Session, error) {
			s = s.To("local", "testdata/work")
			lost := put(ctx, value(flow.Fork(ctx, s)), "f", "lost\n")
			if err := flow.Reject(ctx, lost, "worse"); err != nil {
				return s, err
			}
			b := value(flow.Fork(ctx, s))
			b = put(ctx, b, "f", "one\ntwo\nthree\n")
			b = put(ctx, b, "f", "one\nTWO\nthree\n")
			b = put(ctx, b, "gone", "never seen\n")
			b = put(ctx, b, "slug.sh", "echo\n")
			b = put(ctx, b, "f", "zero\none\nTWO\nthree")
			return flow.Adopt(ctx, s, b, "better")
		}, nil)
		if state != run.Succeeded {
			t.Fatalf("the run ended as %s", state)
		}
		f := w.check(fixRun, home)
		var got []string
		for _, c := range f.Changes.Files {
			for _, h := range c.Hunks {
				for _, l := range h.Lines {
					if l.Step == 0 {
						t.Errorf("%s: no step made %s%s", c.Path, l.Op, l.Text)
						continue
					}
					s := f.Steps[l.Step-1]
					if s.Kind != journal.StepTool || s.After == s.Before {
						t.Errorf("%s%s is blamed on step %d, which changed nothing", l.Op, l.Text, s.N)
					}
					got = append(got, fmt.Sprintf("%s %s %s%s", c.Path, s.Path, l.Op, l.Text))
				}
			}
		}
		// Steps: 0 and 2 fork, 1 rejects; each call is a step with its tool below.
		want := []string{
			"f 8.0 +zero", "f 4.0 +one", "f 5.0 +TWO", "f 8.0 +three ⟦no newline at the end⟧",
			"gone 6.0 +never seen",
			"slug.sh 7.0 -#!/bin/sh", "slug.sh 7.0 -# Turns a title into a slug.", "slug.sh 7.0 -title=$1",
			`slug.sh 7.0 -echo "$title" |`, "slug.sh 7.0 -  tr 'A-Z' 'a-z' |", "slug.sh 7.0 -  tr ' ' '-'", "slug.sh 7.0 +echo",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("blame (-want +got):\n%s", diff)
		}
	})
}

// TestContentsLeftOut checks that missing contents are listed, and that the document still
// verifies.
func TestContentsLeftOut(t *testing.T) {
	w, _ := played(t)
	for name, tt := range map[string]struct {
		blobs blob.Store
		limit int64
		want  string
	}{
		"no store":    {nil, 0, "the exporter had no blob store"},
		"empty store": {blob.NewMemory(), 0, "it is no longer stored"},
		"low limit":   {w.blobs, 700, "limit of contents is reached"},
	} {
		e, err := dossier.Collect(t.Context(), &w.log, tt.blobs, home, fixRun, &dossier.CollectOptions{Blobs: tt.limit})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for form, doc := range render(t, e) {
			if _, err := dossier.Verify(doc, nil); err != nil {
				t.Errorf("%s, %s: %v", name, form, err)
			}
			if form != dossier.FormJSON && !strings.Contains(string(doc), tt.want) {
				t.Errorf("%s: %s does not say that %q", name, form, tt.want)
			}
		}
	}
}

func TestCollectErrors(t *testing.T) {
	w, _ := played(t)
	if _, err := dossier.Collect(t.Context(), &w.log, nil, session.Key{Tenant: "acme", ID: "nowhere"}, fixRun, nil); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("no session: %v", err)
	}
	_, err := dossier.Collect(t.Context(), &w.log, nil, home, "nothing", nil)
	if f := failure(t, err); f.Kind != dossier.Missing {
		t.Errorf("no run: %v", err)
	}
	if _, err := dossier.Collect(t.Context(), &w.log, nil, home, fixRun, &dossier.CollectOptions{Commits: 1000}); !errors.Is(err, dossier.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dossier.Collect(ctx, &w.log, nil, home, fixRun, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestLateOutcome checks that an outcome of a superseded attempt after the end of the run
// is shown as evidence and not counted.
func TestLateOutcome(t *testing.T) {
	w, before := played(t)
	ev, err := journal.NewEvent(journal.KindStepCompleted, journal.StepCompleted{
		Run: fixRun, Attempt: 1, Path: "13.0", Kind: journal.StepTool, Name: "announce", Effect: "non_idempotent", Input: "x", Value: `"sent"`,
		Usage: session.Usage{Input: 1000},
	})
	w.must(err)
	store := journal.NewStore(&w.log, &journal.StoreOptions{Incarnation: "alpha-2"})
	_, err = store.Commit(t.Context(), journal.Batch{Session: home, Run: fixRun, Attempt: 1, Path: "13.0", Events: []session.Event{ev}})
	if !errors.Is(err, run.ErrSuperseded) {
		t.Fatalf("the late outcome is answered with %v", err)
	}
	was, err := dossier.Read(before)
	w.must(err)
	f := w.check(fixRun, home)
	if f.Numbers.ToolCalls != was.Numbers.ToolCalls || f.Numbers.Tokens != was.Numbers.Tokens || f.Numbers.Commits != was.Numbers.Commits+1 || f.State != run.Succeeded {
		t.Errorf("numbers %+v, before %+v, state %s", f.Numbers, was.Numbers, f.State)
	}
	late := f.Steps[len(f.Steps)-1]
	if !late.Late || late.Path != "13.0" || late.Body.Shown != `"sent"` {
		t.Errorf("the last line is %+v", late)
	}
	i := slices.IndexFunc(f.Steps, func(s dossier.Step) bool { return s.Path == "13.0" })
	want := []dossier.Attempt{{N: 1, What: "announced"}, {N: 3, What: "recorded"}, {N: 1, What: "evidence"}}
	if diff := cmp.Diff(want, f.Steps[i].Attempts); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}
