package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/transcript"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestEditedCallIsShown: a model that gets the result of a call with arguments changed by
// an approver also gets the change, in the same text: in the run, after a crash, on a
// fork, from a compressor and in a later run. Other calls stay unchanged.
func TestEditedCallIsShown(t *testing.T) {
	type in struct {
		N int `json:"n"`
	}
	pay := tool.Func("pay", "Pays.", func(_ context.Context, v in) (int, error) {
		if v.N == 50 {
			return 0, errors.New("too much")
		}
		return v.N, nil
	}, nil)
	var w world
	var stop context.CancelCauseFunc
	var seen [][]llm.Message // the requests with a result
	models := client(func(ctx context.Context, r *llm.Request) (*llm.Response, error) {
		if !slices.ContainsFunc(r.Messages, func(m llm.Message) bool { return m.Role == llm.Tool }) {
			var calls []session.ToolCall
			for i, args := range []string{`{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n": 4}`, `{"n":5}`} {
				calls = append(calls, session.ToolCall{ID: string(rune('a' + i)), Name: "pay", Args: args})
			}
			return &llm.Response{Finish: llm.FinishTools, Calls: calls}, nil
		}
		seen = append(seen, r.Messages)
		if len(seen) == 1 {
			stop(run.ErrShutdown)
			return nil, context.Cause(ctx)
		}
		return &llm.Response{Text: "done", Finish: llm.FinishStop}, nil
	})
	agent := &flow.Agent{Name: "a", Tools: []tool.Tool{pay}, Approve: func(_ tool.Spec, args json.RawMessage) bool {
		return !strings.Contains(string(args), "1")
	}}
	work := func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := agent.Forward(ctx, s.With(session.UserText("go")))
		if err != nil {
			return s, err
		}
		fork, err := flow.Fork(ctx, s)
		if err != nil {
			return s, err
		}
		if fork, err = agent.Forward(ctx, fork); err != nil {
			return s, err
		}
		if err := flow.Reject(ctx, fork, "seen"); err != nil {
			return s, err
		}
		short, err := (&flow.Compressor{Name: "c"}).Forward(ctx, s)
		if err != nil {
			return s, err
		}
		return s, flow.Reject(ctx, short, "seen")
	}
	rt := w.runtime(models)
	forward(t, t.Context(), start(t, rt, work), run.Waiting)
	for path, value := range map[run.Path]string{
		"0.1.approval": "{\n  \"n\": 20\n}", "0.2.approval": "", "0.3.approval": `{ "n":4 }`, "0.4.approval": `{"n":50}`,
	} {
		check(t, talk(t, rt, journal.SignalReceived{Kind: journal.Approve, Path: path, By: "ana", Value: value}))
	}
	var ctx context.Context
	ctx, stop = context.WithCancelCause(t.Context())
	defer stop(nil)
	forward(t, ctx, start(t, w.runtime(models), work, resume), run.Queued)
	forward(t, t.Context(), start(t, w.runtime(models), work, resume), run.Succeeded)
	later := start(t, w.runtime(models), func(ctx context.Context, s session.Session) (session.Session, error) {
		return agent.Forward(ctx, s.With(session.UserText("and now?")))
	}, func(task *journal.Task) { task.ID = "later" })
	forward(t, t.Context(), later, run.Succeeded)
	if len(seen) != 5 {
		t.Fatalf("%d requests", len(seen))
	}
	const line = "The arguments of this call were changed to "
	var rows []session.Chunk
	for _, c := range later.Result().Chunks() {
		if c.Kind() == session.ToolResult {
			rows = append(rows, c)
		}
	}
	shown := []string{"1", line + `{"n":20}` + "\n20", "3", "4", line + `{"n":50}` + "\n" + rows[4].Text()}
	if rows[1].Text() != "20" || !rows[4].Failed() || rows[1].CallCount() != 0 {
		t.Errorf("the rows say %q, %q", rows[1].Text(), rows[4].Text())
	}
	for i, messages := range seen {
		var got []string
		for _, m := range messages {
			if m.Role == llm.Tool {
				got = append(got, m.Text)
			}
		}
		if !slices.Equal(got, shown) {
			t.Errorf("request %d says %q, want %q", i, got, shown)
		}
	}
}

// TestToolText: a line shows changed arguments, even if they are long or malformed.
func TestToolText(t *testing.T) {
	row := session.Result("c", "pay", `{"ok":true}`, false)
	long := `{"text":"` + strings.Repeat("é", 4<<10) + `"}`
	for _, tt := range []struct{ args, want string }{
		{"", `{"ok":true}`},
		{"{\n\"n\": 2}", "The arguments of this call were changed to {\"n\":2}\n" + `{"ok":true}`},
		{"two\nlines", "The arguments of this call were changed to \"two\\nlines\"\n" + `{"ok":true}`},
	} {
		if got := transcript.ToolText(row.WithArgs(tt.args)); got != tt.want {
			t.Errorf("%q is shown as %q", tt.args, got)
		}
	}
	line, rest, _ := strings.Cut(transcript.ToolText(row.WithArgs(long)), "\n")
	if len(line) > 5<<10 || !strings.HasSuffix(line, "… (8203 bytes in all)") || rest != `{"ok":true}` {
		t.Errorf("%d bytes: %s", len(line), line[len(line)-40:])
	}
}

// TestSummaryOfSearches: the step of a search is summarised as a search.
func TestSummaryOfSearches(t *testing.T) {
	type in struct {
		Pattern string `json:"pattern"`
		Path    string `json:"path,omitempty"`
	}
	var tools []tool.Tool
	for _, name := range []string{tool.Grep, tool.Glob} {
		tools = append(tools, tool.Func(name, "Searches.", func(context.Context, in) (int, error) { return 1, nil }, nil))
	}
	m := model(func(r *llm.Request) *llm.Response {
		if r.Messages[len(r.Messages)-1].Role == llm.Tool {
			return &llm.Response{Text: "found", Finish: llm.FinishStop}
		}
		return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{
			{ID: "1", Name: tool.Grep, Args: `{"pattern":"func f","path":"a/"}`}, {ID: "2", Name: tool.Glob, Args: `{"pattern":"*.go"}`},
		}}
	})
	var w world
	if _, _, state, err := w.run1(t, m, &flow.Agent{Name: "a", Tools: tools}, nil); err != nil || state != run.Succeeded {
		t.Fatalf("the run is %s: %v", state, err)
	}
	var did []string
	for _, s := range w.steps(t, home) {
		if s.Kind == journal.StepTool {
			did = append(did, s.Summary)
		}
	}
	slices.Sort(did)
	if want := []string{`searches for "func f" in a`, `searches for files "*.go"`}; !slices.Equal(did, want) {
		t.Errorf("the steps say %q, want %q", did, want)
	}
}
