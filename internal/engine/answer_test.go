package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// asks is a workflow that asks for a T, and prints the answer.
func asks[T any](ctx context.Context, s session.Session) (session.Session, error) {
	v, err := flow.Await[T](ctx, "what", &flow.AwaitOptions{Title: "What is it?"})
	if err != nil {
		return s, err
	}
	return s.With(session.UserText(fmt.Sprintf("%v", v))), nil
}

type stars struct {
	Stars int    `json:"stars"`
	Why   string `json:"why,omitempty"`
}

// even decodes itself, by a rule that no schema can express.
type even int

func (e *even) UnmarshalJSON(b []byte) error {
	var n int
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	if *e = even(n); n%2 != 0 {
		return fmt.Errorf("%d is odd", n)
	}
	return nil
}

// TestWrongAnswer: an answer that does not match the question's type is rejected before
// it is recorded, with the run, the question, the expected type and an example. The run
// keeps waiting, and the right answer ends the wait.
func TestWrongAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		f     flow.Func
		wrong []string
		says  string
		right string
		want  string
	}{
		"text":   {asks[string], []string{`2026`, `null`, `{"a":1}`, `["x"]`, `true`}, `for a text, and waits on: type: 2026 has type "integer", want "string": run: malformed; an answer is, for example: rath answer r 0 text`, `"2026"`, "2026"},
		"number": {asks[int], []string{`"many"`, `"5"`, `1.5`, `1e30`, `null`}, `for a whole number, and waits on: type: many has type "string", want "integer": run: malformed; an answer is, for example: rath answer r 0 1`, `2e1`, "20"},
		"bool":   {asks[bool], []string{`"yes"`, `1`}, `for true or false, and waits on: type: yes has type "string", want "boolean": run: malformed; an answer is, for example: rath answer r 0 true`, `false`, "false"},
		"time":   {asks[time.Time], []string{`"monday"`, `5`}, `for a time like 2026-11-20T09:00:00Z, and waits on: "monday" is no time`, `"2026-11-20T09:00:00Z"`, "2026-11-20 09:00:00 +0000 UTC"},
		"struct": {asks[stars], []string{`{"stars":"five"}`, `{}`, `{"stars":5,"wy":""}`, `5`}, `for an object {stars, why?}, and waits on: "stars": type: five has type "string", want "integer": run: malformed; an answer is, for example: rath answer r 0 '{"stars":1}'`, `{"stars":5,"why":"good"}`, "{5 good}"},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			rt := w.runtime(nil)
			forward(t, t.Context(), start(t, rt, tt.f), run.Waiting)
			for i, value := range tt.wrong {
				err := talk(t, rt, journal.SignalReceived{Kind: journal.Respond, Path: "0", Value: value})
				if !errors.Is(err, run.ErrMalformed) || !strings.HasPrefix(err.Error(), `run r asks "What is it?" at step 0 for `) || i == 0 && !strings.Contains(err.Error(), tt.says) {
					t.Fatalf("%s: %v; want %s", value, err, tt.says)
				}
			}
			check(t, talk(t, rt, journal.SignalReceived{Kind: journal.Respond, Path: "0", Value: tt.right}))
			ex := start(t, w.runtime(nil), tt.f, resume)
			forward(t, t.Context(), ex, run.Succeeded)
			last := must(rt.Runtime.Values.At(t.Context(), session.Ref{Key: home}))
			if c, _ := last.At(last.Len() - 1); c.Text() != tt.want {
				t.Errorf("it got %q, want %q", c.Text(), tt.want)
			}
		})
	}
}

// TestOwnDecoder: if the type's own decoder rejects an answer, the question is asked
// again, also by an execution that replays it.
func TestOwnDecoder(t *testing.T) {
	var w world
	rt := w.runtime(nil)
	forward(t, t.Context(), start(t, rt, asks[even]), run.Waiting)
	for i, path := range []run.Path{"0", "0.again.0", "0.again.1"} {
		check(t, talk(t, rt, journal.SignalReceived{Kind: journal.Respond, Path: path, Value: fmt.Sprint([]int{3, 5, 6}[i])}))
		state := run.Waiting
		if i == 2 {
			state = run.Succeeded
		}
		rt = w.runtime(nil)
		forward(t, t.Context(), start(t, rt, asks[even], resume), state)
		if i == 2 {
			break
		}
		open := must(rt.Runtime.Values.Recorded(t.Context(), home, "r")).Record.Suspended.For[0]
		if want := fmt.Sprintf("%d is odd", []int{3, 5}[i]); !strings.Contains(open.Detail, want) || strings.Count(open.Detail, "is odd") != 1 {
			t.Errorf("question %s says %q, want %q", open.Path, open.Detail, want)
		}
	}
	last := must(rt.Runtime.Values.At(t.Context(), session.Ref{Key: home}))
	if c, _ := last.At(last.Len() - 1); c.Text() != "6" {
		t.Errorf("it got %q", c.Text())
	}
}

// TestWrongEdit: arguments that an approver changes must match the schema of the tool; an
// approval may omit them.
func TestWrongEdit(t *testing.T) {
	paid := 0
	pay := tool.Func("pay", "Pays.", func(_ context.Context, in struct {
		Amount int `json:"amount"`
	},
	) (int, error) {
		paid = in.Amount
		return in.Amount, nil
	}, nil)
	agent := &flow.Agent{Name: "a", Tools: []tool.Tool{pay}, Approve: func(tool.Spec, json.RawMessage) bool { return true }}
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		return agent.Forward(ctx, s.With(session.UserText("go")))
	}
	m := client(func(_ context.Context, r *llm.Request) (*llm.Response, error) {
		if r.Messages[len(r.Messages)-1].Role == llm.Tool {
			return &llm.Response{Text: "done", Finish: llm.FinishStop}, nil
		}
		return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: "1", Name: "pay", Args: `{"amount":5}`}}}, nil
	})
	for edit, want := range map[string]int{"": 5, `{"amount":7}`: 7} {
		var w world
		rt := w.runtime(m)
		forward(t, t.Context(), start(t, rt, f), run.Waiting)
		for _, wrong := range []string{`{"amount":"much"}`, `{"amonut":7}`, `7`} {
			err := talk(t, rt, journal.SignalReceived{Kind: journal.Approve, Path: "0.0.approval", Value: wrong})
			if !errors.Is(err, run.ErrMalformed) || !strings.Contains(err.Error(), `rath answer r 0.0.approval yes --edit '{"amount":1}'`) {
				t.Errorf("%s: %v", wrong, err)
			}
		}
		check(t, talk(t, rt, journal.SignalReceived{Kind: journal.Approve, Path: "0.0.approval", Value: edit}))
		forward(t, t.Context(), start(t, w.runtime(m), f, resume), run.Succeeded)
		if paid != want {
			t.Errorf("it paid %d, want %d", paid, want)
		}
	}
}

// TestAskedInProcess: in process an answer of the wrong type is requested again, a few
// times, and then ends Run.
func TestAskedInProcess(t *testing.T) {
	for right, want := range map[int]string{3: "", 100: "for a whole number, and waits on"} {
		n := 0
		rt := &inprocess.Runtime{Answer: func(_ context.Context, q run.Question) (any, error) {
			if n++; (n > 1) != strings.Contains(q.Refused, "want \"integer\"") || q.Schema == "" {
				t.Errorf("try %d: %+v", n, q)
			}
			if n == right {
				return 5, nil
			}
			return "many", nil
		}}
		s, err := rt.Run(t.Context(), flow.Func(asks[int]), session.New())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || n != min(right, 8) || err == nil && s.Len() != 1 {
			t.Errorf("right at %d: %d tries, %v", right, n, err)
		}
	}
}
