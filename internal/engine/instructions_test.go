package engine_test

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// putBlobs counts the puts of blobs.
type putBlobs struct {
	blob.Store
	puts int
}

// text returns the bytes of a blob.
func (b *putBlobs) text(t *testing.T, d blob.Digest) string {
	t.Helper()
	rc, err := b.Get(t.Context(), d)
	check(t, err)
	defer rc.Close()
	return string(must(io.ReadAll(rc)))
}

// instructions returns the parts that a step's list names.
func (b *putBlobs) instructions(t *testing.T, s *journal.StepCompleted) journal.Instructions {
	t.Helper()
	if s.Given.IsZero() {
		t.Fatalf("step %s names no instructions", s.Path)
	}
	list, ok := journal.ReadInstructions([]byte(b.text(t, s.Given)))
	if !ok {
		t.Fatalf("step %s names %s", s.Path, b.text(t, s.Given))
	}
	return list
}

func (b *putBlobs) Put(ctx context.Context, r io.Reader) (blob.Ref, error) {
	b.puts++
	return b.Store.Put(ctx, r)
}

// TestInstructions: each record of a model's call names the list of its prompt and its
// tools, whose texts are stored once and have no credentials.
func TestInstructions(t *testing.T) {
	var w world
	blobs := &putBlobs{Store: blob.NewMemory()}
	rt := w.runtime(model(func(r *llm.Request) *llm.Response {
		if len(r.Messages) < 4 {
			return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: "a", Name: "words", Args: `{"text":"one two"}`}}}
		}
		return &llm.Response{Text: "two", Finish: llm.FinishStop}
	}))
	rt.Runtime.Blobs = func(session.Tenant) blob.Store { return blobs }
	agent := &flow.Agent{Name: "counter", Prompt: "Count. The key is sk-live-abcdef123456.", Tools: []tool.Tool{words}}
	ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
		return agent.Forward(ctx, s.With(session.UserText("count this")))
	})
	forward(t, t.Context(), ex, run.Succeeded)
	var calls int
	for _, s := range w.steps(t, home) {
		if s.Kind != journal.StepModel {
			continue
		}
		calls++
		in := blobs.instructions(t, &s)
		if got := blobs.text(t, in.Prompt); !strings.HasPrefix(got, "Count. The key is "+llm.Redacted) || strings.Contains(got, "abcdef") {
			t.Errorf("prompt %q", got)
		}
		var tools []struct {
			Name, Description string
			Schema            struct{ Properties map[string]any }
		}
		check(t, json.Unmarshal([]byte(blobs.text(t, in.Tools)), &tools))
		if len(tools) != 1 || tools[0].Name != "words" || tools[0].Description != "Count words." || tools[0].Schema.Properties["text"] == nil {
			t.Errorf("tools %+v", tools)
		}
	}
	if calls != 2 || blobs.puts != 3 {
		t.Errorf("%d model calls, %d puts; want 2 and 3", calls, blobs.puts)
	}
}

// TestInstructionsWithoutBlobs: if instructions cannot be stored no model is asked, and
// the attempt ends, not the run.
func TestInstructionsWithoutBlobs(t *testing.T) {
	var w world
	asked := 0
	blobs := &awayBlobs{Store: blob.NewMemory(), put: true}
	process := func() *inprocess.Runtime {
		rt := w.runtime(model(func(*llm.Request) *llm.Response {
			asked++
			return &llm.Response{Text: "yes", Finish: llm.FinishStop}
		}))
		rt.Runtime.Blobs = func(session.Tenant) blob.Store { return blobs }
		return rt
	}
	work := func(ctx context.Context, s session.Session) (session.Session, error) {
		return (&flow.Agent{Name: "a", Prompt: "Answer."}).Forward(ctx, s.With(session.UserText("well?")))
	}
	if state, err := start(t, process(), work).Forward(t.Context()); state != run.Running || err == nil || asked != 0 {
		t.Fatalf("state %s after %d requests: %v", state, asked, err)
	}
	blobs.put = false
	forward(t, t.Context(), start(t, process(), work, resume), run.Succeeded)
	if asked != 1 {
		t.Errorf("%d requests", asked)
	}
}

// keyed is a client whose server has a key.
type keyed struct{ model }

const serverKey = "letmein4711"

func (k keyed) Client(context.Context, llm.Provider) (llm.Client, error) { return k, nil }

func (keyed) Redact(text string) string { return llm.Redact(text, serverKey) }

// TestInstructionsWithKey: the key of the model's server is masked before the digest, in
// the prompt and in the tools, and the model gets both unmasked.
func TestInstructionsWithKey(t *testing.T) {
	var w world
	blobs := &putBlobs{Store: blob.NewMemory()}
	rt := w.runtime(keyed{func(r *llm.Request) *llm.Response {
		if r.Messages[0].Text != "The key is "+serverKey || !strings.Contains(r.Tools[0].Description, serverKey) {
			t.Errorf("the model gets %q, %+v", r.Messages[0].Text, r.Tools)
		}
		return &llm.Response{Text: "yes", Finish: llm.FinishStop}
	}})
	rt.Runtime.Blobs = func(session.Tenant) blob.Store { return blobs }
	with := tool.Func("with", "Uses "+serverKey+".", func(context.Context, wordsIn) (int, error) { return 0, nil }, &tool.FuncOptions{Effect: tool.ReadOnly})
	forward(t, t.Context(), start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
		return (&flow.Agent{Name: "a", Prompt: "The key is " + serverKey, Tools: []tool.Tool{with}}).Forward(ctx, s.With(session.UserText("well?")))
	}), run.Succeeded)
	in := blobs.instructions(t, &w.steps(t, home)[0])
	if got := blobs.text(t, in.Prompt); got != "The key is "+llm.Redacted {
		t.Errorf("prompt %q", got)
	}
	if got := blobs.text(t, in.Tools); strings.Contains(got, serverKey) || !strings.Contains(got, "Uses "+llm.Redacted) {
		t.Errorf("tools %s", got)
	}
}

// TestInstructionsOfRemarks: the record of a request that asks the model to continue
// names only the remark that the model got.
func TestInstructionsOfRemarks(t *testing.T) {
	var w world
	blobs := &putBlobs{Store: blob.NewMemory()}
	var last []string
	rt := w.runtime(model(func(r *llm.Request) *llm.Response {
		last = append(last, r.Messages[len(r.Messages)-1].Text)
		if len(last) == 1 {
			return &llm.Response{Finish: llm.FinishStop}
		}
		return &llm.Response{Text: "yes", Finish: llm.FinishStop}
	}))
	rt.Runtime.Blobs = func(session.Tenant) blob.Store { return blobs }
	forward(t, t.Context(), start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
		return (&flow.Agent{Name: "a", Prompt: "Answer."}).Forward(ctx, s.With(session.UserText("well?")))
	}), run.Succeeded)
	steps := w.steps(t, home)
	a, b := blobs.instructions(t, &steps[0]), blobs.instructions(t, &steps[1])
	if len(last) != 2 || !a.Remark.IsZero() || b.Remark.IsZero() {
		t.Fatalf("%d requests, instructions %+v and %+v", len(last), a, b)
	}
	if got := blobs.text(t, b.Remark); got != last[1] || got == "well?" {
		t.Errorf("remark %q, the model got %q", got, last[1])
	}
	if a.Prompt != b.Prompt || a.Prompt.IsZero() {
		t.Errorf("instructions %+v and %+v", a, b)
	}
}

// TestInstructionsAreStoredAgain: a process relies on its own stored blobs for half a
// day. A sweep may remove an unreferenced blob a day after it was stored.
func TestInstructionsAreStoredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		blobs := &putBlobs{Store: blob.NewMemory()}
		rt := w.runtime(model(func(*llm.Request) *llm.Response { return &llm.Response{Text: "yes", Finish: llm.FinishStop} }))
		rt.Runtime.Blobs = func(session.Tenant) blob.Store { return blobs }
		for i, tt := range []struct {
			after time.Duration
			puts  int
		}{{0, 2}, {11 * time.Hour, 2}, {2 * time.Hour, 4}, {11 * time.Hour, 4}} {
			time.Sleep(tt.after)
			forward(t, t.Context(), start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
				return (&flow.Agent{Name: "a", Prompt: "Answer."}).Forward(ctx, s.With(session.UserText("well?")))
			}, func(task *journal.Task) { task.ID = run.ID(string(rune('a' + i))) }), run.Succeeded)
			if blobs.puts != tt.puts {
				t.Errorf("run %d: %d puts, want %d", i, blobs.puts, tt.puts)
			}
		}
	})
}

// TestInstructionsOfRecordedSteps: an execution that resumes a run makes no requests and
// stores no blobs for the recorded steps, even if the code has another prompt.
func TestInstructionsOfRecordedSteps(t *testing.T) {
	var w world
	blobs := &putBlobs{Store: blob.NewMemory()}
	process := func() *inprocess.Runtime {
		rt := w.runtime(model(func(*llm.Request) *llm.Response { return &llm.Response{Text: "yes", Finish: llm.FinishStop} }))
		rt.Runtime.Blobs = func(session.Tenant) blob.Store { return blobs }
		return rt
	}
	about := "Counts."
	work := func(ctx context.Context, s session.Session) (session.Session, error) {
		with := tool.Func("count", about, func(context.Context, wordsIn) (int, error) { return 0, nil }, &tool.FuncOptions{Effect: tool.ReadOnly})
		s, err := (&flow.Agent{Name: "a", Prompt: "Answer.", Tools: []tool.Tool{with}}).Forward(ctx, s.With(session.UserText("well?")))
		if err != nil {
			return s, err
		}
		_, err = flow.Await[string](ctx, "more", nil)
		return s, err
	}
	forward(t, t.Context(), start(t, process(), work), run.Waiting)
	before, puts := w.steps(t, home)[0].Given, blobs.puts
	about = "Counts words."
	forward(t, t.Context(), start(t, process(), work, resume), run.Waiting)
	if got := w.steps(t, home)[0].Given; got.IsZero() || got != before || blobs.puts != puts {
		t.Errorf("instructions %+v, before %+v; %d puts, before %d", got, before, blobs.puts, puts)
	}
}
