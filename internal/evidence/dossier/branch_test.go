package dossier_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// drive runs a workflow with its branches, as the nodes of a fleet would. A
// question is answered by answer.
func (w *world) drive(ctx context.Context, f flow.Func, answer func(journal.Wait) journal.SignalReceived) run.State {
	w.t.Helper()
	var d inprocess.Driver
	rt := w.node("alpha", &w.log, model(func(r *llm.Request) *llm.Response {
		return &llm.Response{Text: fmt.Sprintf("answer %d", len(r.Messages))}
	}))
	var asked []journal.Wait
	rt.Store = journal.NewStore(&w.log, &journal.StoreOptions{Incarnation: "alpha-1", Values: rt.Values, OnCommit: func(e commitlog.Entry) {
		d.Committed(e)
		for _, ev := range e.Commit.Events {
			if s, err := journal.Decode[journal.RunWaiting](ev); ev.Kind == journal.KindRunWaiting && err == nil && s.For[0].Kind == run.WaitApproval {
				asked = append(asked, s.For[0])
				go func() {
					v := answer(s.For[0])
					v.Run, v.Path = s.Run, s.For[0].Path
					w.must(rt.Store.Apply(ctx, journal.Signal{To: home, Run: s.Run, Received: &v}))
				}()
			}
		}
	}})
	g := flow.Registration{Name: "shape", Revision: "r1", New: func() flow.Workflow { return f }}
	_, state, err := d.Run(ctx, rt, g, journal.Task{ID: fixRun, Workflow: "shape", Revision: "r1", Session: home})
	if err != nil && !errors.Is(err, errUnlucky) {
		w.t.Logf("the run ends with %v", err)
	}
	return state
}

var errUnlucky = errors.New("no luck")

// three branches: one changes a file, one fails, one is too slow.
func three(quick string) []flow.Branch {
	return []flow.Branch{
		{Name: "good", Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			return put(ctx, say(ctx, s.To("local", "testdata/work"), "try"), "notes.md", quick+"\n"), nil
		})},
		{Name: "bad", Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			return s, errUnlucky
		})},
		{Name: "slow", Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Do(ctx, "dawdle", func(ctx context.Context) (int, error) {
				select {
				case <-time.After(time.Hour):
				case <-ctx.Done():
				}
				return 0, ctx.Err()
			}, tool.ReadOnly)
			return s, err
		})},
	}
}

func publish(ctx context.Context, s session.Session) (session.Session, error) {
	s = say(ctx, s, "go")
	j, err := flow.FanOut(ctx, s, three("quick"), &flow.FanOutOptions{Quorum: 1})
	if err != nil {
		return s, err
	}
	if s, err = flow.Merge(ctx, j, flow.Pick(0)); err != nil {
		return s, err
	}
	a, err := flow.Approve(ctx, "Publish?", &flow.AwaitOptions{Detail: "notes.md " + hostile, Timeout: 24 * time.Hour})
	switch {
	case err != nil:
		return s, err
	case !a.Approved:
		return s, errUnlucky
	}
	return say(ctx, s, "published"), nil
}

func TestBranches(t *testing.T) {
	w := newWorld(t)
	var f *dossier.Facts
	synctest.Test(t, func(t *testing.T) {
		state := w.drive(t.Context(), publish, func(q journal.Wait) journal.SignalReceived {
			time.Sleep(time.Hour)
			return journal.SignalReceived{Kind: journal.Approve, By: "ana", Reason: "looks good " + hostile}
		})
		if state != run.Succeeded {
			t.Fatalf("the run ended as %s", state)
		}
		synctest.Wait()
		f = w.check(fixRun, home)
	})
	var got []string
	for _, b := range f.Branches {
		got = append(got, fmt.Sprintf("%s: %s, %s %q, on %v, %d tokens", b.Name, b.State, b.End, b.Reason, b.Nodes, b.Tokens))
		if b.Step == 0 || b.In == 0 || b.Decided == 0 || f.Steps[b.Step-1].Kind != journal.StepFanOut {
			t.Errorf("branch %+v", b)
		}
	}
	want := []string{
		`good: succeeded, adopted "", on [alpha-1], 500 tokens`,
		`bad: failed, failed "failed: no luck", on [alpha-1], 0 tokens`,
		`slow: cancelled, cancelled "the join was decided without it", on [alpha-1], 0 tokens`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("branches (-want +got):\n%s", diff)
	}
	if f.Numbers.Sessions != 4 || f.Numbers.ModelCalls != 3 {
		t.Errorf("numbers %+v", f.Numbers)
	}
	var rejected []string
	for _, r := range f.Rejections {
		rejected = append(rejected, r.State)
	}
	slices.Sort(rejected)
	if diff := cmp.Diff([]string{"cancelled", "failed"}, rejected); diff != "" {
		t.Errorf("rejections (-want +got):\n%s", diff)
	}
	var decisions []string
	for _, d := range f.Decisions {
		decisions = append(decisions, d.What+" by "+d.By)
		if !strings.HasSuffix(d.What, "Publish?") {
			continue
		}
		if s := f.Steps[d.Step-1]; s.Path == "" || s.Session != home.ID {
			t.Errorf("decision of %+v", s)
		}
	}
	wantDecisions := []string{"asked: Publish? by run " + string(fixRun), "approved: Publish? by ana"}
	if diff := cmp.Diff(wantDecisions, decisions); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	if !strings.Contains(f.Verdict, "succeeded") || !strings.Contains(f.Verdict, "adopted") {
		t.Errorf("verdict %q", f.Verdict)
	}
	if len(f.Changes.Files) != 1 || f.Changes.Files[0].Path != "notes.md" {
		t.Errorf("changes %+v", f.Changes)
	}
}

// TestBranchesAtEveryMoment collects evidence while branches run, a question is open and
// signals are in transit.
func TestBranchesAtEveryMoment(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		w.drive(t.Context(), publish, func(journal.Wait) journal.SignalReceived {
			time.Sleep(time.Hour)
			return journal.SignalReceived{Kind: journal.Refuse, By: "ana", Reason: "not now"}
		})
		synctest.Wait()
	})
	states := map[run.State]bool{}
	for early := range w.moments() {
		f := early.check(fixRun, home)
		states[f.State] = true
		if f.State == run.Waiting && !strings.Contains(f.Verdict, "for 1 of 3 branches") && !strings.Contains(f.Verdict, "Publish?") {
			t.Errorf("while it waits the verdict is %q", f.Verdict)
		}
	}
	for _, want := range []run.State{run.Running, run.Waiting, run.Queued, run.Failed} {
		if !states[want] {
			t.Errorf("the run was never told as %s: %v", want, states)
		}
	}
}

// TestBranchByItself collects the evidence of a branch's own run.
func TestBranchByItself(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		w.drive(t.Context(), publish, func(journal.Wait) journal.SignalReceived {
			return journal.SignalReceived{Kind: journal.Approve, By: "ana"}
		})
		synctest.Wait()
		for _, b := range w.check(fixRun, home).Branches {
			f := w.check(run.ID(b.Session), session.Key{Tenant: home.Tenant, ID: b.Session})
			if f.Numbers.Sessions != 1 || f.State != b.State || f.Sessions[0].ID != b.Session {
				t.Errorf("branch %s: %+v, state %s", b.Name, f.Numbers, f.State)
			}
		}
	})
}

// TestGoldenBranches renders stored evidence of a fan-out with a question.
func TestGoldenBranches(t *testing.T) {
	if *record {
		w := newWorld(t)
		synctest.Test(t, func(t *testing.T) {
			w.drive(t.Context(), publish, func(journal.Wait) journal.SignalReceived {
				time.Sleep(time.Hour)
				return journal.SignalReceived{Kind: journal.Approve, By: "ana", Reason: "looks good " + hostile}
			})
			synctest.Wait()
			e, err := dossier.Collect(t.Context(), &w.log, w.blobs, home, fixRun, nil)
			w.must(err)
			doc, err := e.Encode()
			w.must(err)
			w.must(os.WriteFile(filepath.Join("testdata", "branches.json"), doc, 0o644))
		})
	}
	e := must.Get(dossier.Decode(read(t, "branches.json")))(t)
	docs := render(t, e)
	golden(t, "branches.html", docs[dossier.FormHTML])
	golden(t, "branches.md", docs[dossier.FormMarkdown])
	golden(t, "branches.json", docs[dossier.FormJSON])
	for form, doc := range docs {
		if r, err := dossier.Verify(doc, nil); err != nil || r.Run != fixRun || len(r.Sessions) != 4 {
			t.Errorf("%s: %+v, %v", form, r, err)
		}
	}
}

// TestWarmFirst checks that the evidence shows one fan-out, and the later start of the
// other branches.
func TestWarmFirst(t *testing.T) {
	w := newWorld(t)
	var f *dossier.Facts
	synctest.Test(t, func(t *testing.T) {
		w.drive(t.Context(), func(ctx context.Context, s session.Session) (session.Session, error) {
			answered := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) { return say(ctx, s, "try"), nil })
			j, err := flow.FanOut(ctx, say(ctx, s, "go"), flow.Repeat(3, answered), &flow.FanOutOptions{WarmFirst: true})
			if err != nil {
				return s, err
			}
			return flow.Merge(ctx, j, flow.Pick(0))
		}, nil)
		synctest.Wait()
		f = w.check(fixRun, home)
	})
	got := map[string]int{}
	for _, s := range f.Steps {
		got[s.Kind]++
		if s.Kind == "spread" && (s.Text != "spreads to 2 more branches" || s.Session != home.ID) {
			t.Errorf("step %+v", s)
		}
	}
	if got[journal.StepFanOut] != 1 || got["spread"] != 1 || len(f.Branches) != 3 {
		t.Errorf("%d branches, steps %v", len(f.Branches), got)
	}
}

// TestWithheldNotes checks that a dossier shows the notes that a recall found and
// withheld.
func TestWithheldNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		odd := session.Key{Tenant: home.Tenant, ID: "odd"}
		w.execute(t.Context(), odd, "odd", func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Remember(ctx, "m", "keys", "the key is under the mat")
			return s, err
		}, nil)
		w.must(w.node("beta", &w.log, nil).Store.Apply(t.Context(), journal.Signal{To: odd, Quarantine: &journal.Quarantined{Reason: "it read the key"}}))
		w.execute(t.Context(), home, fixRun, func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Recall(ctx, "m", "key", 4)
			return s, err
		}, nil)
		e, err := dossier.Collect(t.Context(), &w.log, w.blobs, home, fixRun, nil)
		w.must(err)
		const want = "1 note of session odd: the session is quarantined: it read the key"
		for name, form := range map[string]func(*dossier.Evidence) ([]byte, error){"HTML": dossier.HTML, "Markdown": dossier.Markdown} {
			text, err := form(e)
			w.must(err)
			if !strings.Contains(string(text), want) || strings.Contains(string(text), "under the mat") || strings.Contains(strings.ToLower(string(text)), "no note was found") {
				t.Errorf("the %s does not say %q, or what was withheld", name, want)
			}
		}
	})
}
