package dossier_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// Limits of a dossier of 1,000 steps.
const (
	longSteps = 1000
	longBytes = 2 << 20
	longTime  = time.Second
)

// long returns the evidence of a run of ten agents with 1,000 steps: each of 500 answers
// calls a tool, and each of 500 calls writes a file.
func long(tb testing.TB, steps int, models func(model) llm.Models) *dossier.Evidence {
	tb.Helper()
	w := newWorld(tb)
	rounds := 0
	answers := models(func(*llm.Request) *llm.Response {
		rounds++
		return &llm.Response{Text: fmt.Sprintf("Part %d comes next.", rounds), Calls: []session.ToolCall{
			writes("w1", fmt.Sprintf("dir%d/part%d.txt", rounds%10, rounds%40), fmt.Sprintf("round %d\nThe quick brown fox jumps over the lazy dog.\n", rounds)),
		}}
	})
	write, _ := tool.ByName(tool.WriteWorkspaceFile)
	const agents = 10
	forward := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		s = s.With(session.UserText("Go through all parts.")).To("local", "testdata/work")
		var err error
		for n := range agents {
			a := &flow.Agent{Name: fmt.Sprintf("agent%d", n), Prompt: "Go on.", Tools: []tool.Tool{write}, MaxRounds: steps / agents / 2}
			if s, err = a.Forward(ctx, s); err != nil && !errors.Is(err, flow.ErrMaxRounds) {
				return s, err
			}
		}
		return s, nil
	})
	e, state := w.evidence("long", forward, answers)
	if state != run.Succeeded {
		tb.Fatalf("the run ends as %s", state)
	}
	return e
}

// atOnce is a model that does not wait, because a benchmark uses the real clock.
type atOnce model

func (m atOnce) Complete(_ context.Context, r *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	resp := m(r)
	resp.Model, resp.Finish, resp.Usage = "scripted-1", llm.FinishTools, session.Usage{Input: 400, Output: 60}
	return resp, nil
}

func (m atOnce) Client(context.Context, llm.Provider) (llm.Client, error) { return m, nil }

// evidence runs a workflow to its end in the home session.
func (w *world) evidence(id run.ID, forward flow.Workflow, m llm.Models) (*dossier.Evidence, run.State) {
	w.t.Helper()
	ctx := context.Background()
	g := flow.Registration{Name: "long", Revision: "r1", New: func() flow.Workflow { return forward }}
	var ex *engine.Execution
	ex, err := w.node("alpha", &w.log, m).Begin(ctx, g, journal.Task{ID: id, Workflow: "long", Revision: "r1", Session: home})
	w.must(err)
	state, err := ex.Forward(ctx)
	w.must(err)
	e, err := dossier.Collect(ctx, &w.log, w.blobs, home, id, nil)
	w.must(err)
	return e, state
}

// TestLong checks the dossier of a long run: its size, its folds, and its verification
// with compressed evidence.
func TestLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := long(t, longSteps, func(m model) llm.Models { return m })
		docs := render(t, e)
		page := docs[dossier.FormHTML]
		if len(page) > longBytes {
			t.Errorf("the page of %d steps has %d bytes, want at most %d", longSteps, len(page), longBytes)
		}
		f := must.Get(dossier.Read(e))(t)
		if n := f.Numbers.ModelCalls + f.Numbers.ToolCalls; n != longSteps {
			t.Errorf("%d calls, want %d", n, longSteps)
		}
		if n := len(f.Blocks); n > 30 {
			t.Errorf("%d lines are not folded", n)
		}
		if len(f.Spent) != 20 || f.Took < 10*time.Minute { // 500 answers of 1.2 s
			t.Errorf("%d rows of what was spent in %s", len(f.Spent), f.Took)
		}
		text, _, _ := strings.Cut(string(page), `<section id="timeline">`)
		if n := strings.Count(text, "\n"); n > 900 {
			t.Errorf("%d lines before the timeline", n)
		}
		for form, doc := range docs {
			if r, err := dossier.Verify(doc, nil); err != nil || r.Run != "long" {
				t.Errorf("%s: %v", form, err)
			}
			if form == dossier.FormJSON {
				continue
			}
			at := bytes.LastIndex(doc, []byte("evidence"))
			for _, damage := range []func([]byte) []byte{
				func(d []byte) []byte { d[at+2000] ^= 1; return d },
				func(d []byte) []byte { return bytes.Replace(d, []byte("agent3"), []byte("agent4"), 1) },
				func(d []byte) []byte { return append(d[:at+2000], d[at+2001:]...) },
				func(d []byte) []byte { return append(d[:at+4000], d[at+6000:]...) },
			} {
				if _, err := dossier.Verify(damage(bytes.Clone(doc)), nil); err == nil {
					t.Errorf("%s verifies after damage", form)
				}
			}
		}
	})
}

// TestBranchesFold checks that 64 branches are one line of the timeline, that the picture
// draws some, and that no section is empty.
func TestBranchesFold(t *testing.T) {
	f := dossier.Facts{Home: home.ID}
	at := time.Unix(1_800_000_000, 0)
	add := func(id session.ID, kind, actor string) {
		f.Steps = append(f.Steps, dossier.Step{N: len(f.Steps) + 1, Session: id, Kind: kind, Actor: actor, Time: at})
	}
	add(home.ID, journal.StepFanOut, "workflow")
	for i := range 64 {
		f.Branches = append(f.Branches, dossier.Branch{Name: fmt.Sprint("b", i), Session: session.ID(fmt.Sprint("s", i)), Step: 1})
	}
	for range 3 { // at the same time
		for i := range 64 {
			add(session.ID(fmt.Sprint("s", i)), journal.StepModel, "coder")
		}
	}
	add(home.ID, journal.StepGather, "workflow")
	got := dossier.Fold(&f)
	if len(got) != 3 || got[1].Title != "64 branches" || got[1].Steps != 192 || len(got[1].Blocks) != 64 || got[1].Open {
		t.Fatalf("%+v", got)
	}
	if b := got[1].Blocks[5]; b.Title != "branch b5" || b.ModelCalls != 3 || len(b.Blocks) != 1 || b.Blocks[0].Title != "coder" {
		t.Errorf("%+v", b)
	}
}

// TestNoEmptySections checks that the dossier of a minimal run has no empty sections.
func TestNoEmptySections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := newWorld(t).evidence("nothing", flow.Func(func(_ context.Context, s session.Session) (session.Session, error) { return s, nil }), model(script))
		docs := render(t, e)
		for form, want := range map[string]string{
			dossier.FormHTML:     "Timeline, The session and its hash chain, Environment and durability, Limits of this evidence, How to check this file",
			dossier.FormMarkdown: "Timeline, Sessions and their hash chains, Environment and durability, Limits of this evidence, How to check this file",
		} {
			var got []string
			for _, m := range regexp.MustCompile(`(?m)(?:<h2>|^## )([^<\n]+)`).FindAllStringSubmatch(string(docs[form]), -1) {
				got = append(got, m[1])
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("%s has the sections %s, want %s", form, strings.Join(got, ", "), want)
			}
		}
	})
}

// BenchmarkLong fails if the page of 1,000 steps takes longer than its limit.
func BenchmarkLong(b *testing.B) {
	e := long(b, longSteps, func(m model) llm.Models { return atOnce(m) })
	for b.Loop() {
		must.Get(dossier.HTML(e))(b)
	}
	if own := b.Elapsed() / time.Duration(b.N); own > longTime {
		b.Errorf("%s for %d steps, want at most %s", own, longSteps, longTime)
	}
}
