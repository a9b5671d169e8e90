package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// asker is a tool that does some work, asks a number of questions, and does the rest.
type asker struct {
	name   string
	effect tool.Effect
	times  int
	salt   func() string // is part of each question

	mu  *sync.Mutex
	did *[]string
}

func (a *asker) Spec() tool.Spec {
	return tool.Spec{Name: a.name, Description: "Asks.", Effect: a.effect, Schema: json.RawMessage(`{"type":"object"}`)}
}

func (a *asker) does(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*a.did = append(*a.did, a.name+" "+what)
}

func (a *asker) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	a.does("begins")
	var got []string
	for i := range a.times {
		action, content, err := c.Ask(ctx, fmt.Sprintf("%s %d?%s", a.name, i, a.salt()), json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","minimum":1}},"required":["n"]}`))
		if err != nil {
			return tool.Result{}, err
		}
		got = append(got, action+string(content))
	}
	a.does("ends")
	return tool.Result{Body: strings.Join(got, " ")}, nil
}

// TestCallsThatAsk: only the calls of a round that ask a question are repeated, with the
// answers; the calls after them in call order wait.
func TestCallsThatAsk(t *testing.T) {
	var mu sync.Mutex
	var did, asked []string
	salt, salted := "", 0
	made := func(name string, e tool.Effect, times int) *asker {
		return &asker{name: name, effect: e, times: times, mu: &mu, did: &did, salt: func() string {
			if salt == "" {
				return ""
			}
			salted++
			return fmt.Sprint(salt, salted)
		}}
	}
	tools := []tool.Tool{made("one", tool.NonIdempotent, 1), made("two", tool.NonIdempotent, 2), made("none", tool.NonIdempotent, 0), made("files", tool.Sandboxed, 0)}
	calls := []session.ToolCall{{ID: "1", Name: "one", Args: "{}"}, {ID: "2", Name: "two", Args: "{}"}, {ID: "3", Name: "none", Args: "{}"}, {ID: "4", Name: "files", Args: "{}"}}
	rt := &inprocess.Runtime{Runtime: engine.Runtime{
		Models: client(func(_ context.Context, r *llm.Request) (*llm.Response, error) {
			if r.Messages[len(r.Messages)-1].Role == llm.Tool {
				return &llm.Response{Text: "done", Finish: llm.FinishStop}, nil
			}
			return &llm.Response{Finish: llm.FinishTools, Calls: calls}, nil
		}),
	}, Answer: func(_ context.Context, q run.Question) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, string(q.Step)+" "+q.Title)
		n := len(asked)
		if refused := `"n" is missing`; (n == 2) != strings.Contains(q.Refused, refused) || !strings.Contains(q.Schema, `"minimum":1`) {
			t.Errorf("question %d comes with %q and the schema %s", n, q.Refused, q.Schema)
		}
		if n == 1 {
			return flow.Approval{Approved: true}, nil // without the value
		}
		if n == 3 {
			return flow.Approval{Reason: "no"}, nil
		}
		return flow.Approval{Approved: true, Value: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))}, nil
	}}
	results := func() (texts []string) {
		s := must(rt.Run(t.Context(), &flow.Agent{Name: "a", Tools: tools}, session.New(session.UserText("go"))))
		for _, c := range s.Chunks() {
			if c.Kind() == session.ToolResult {
				texts = append(texts, c.Text())
			}
		}
		return texts
	}
	got := results()
	if want := []string{`"accept{\"n\":2}"`, `"decline accept{\"n\":4}"`, `""`, `""`}; !slices.Equal(got, want) {
		t.Errorf("results %q, want %q", got, want)
	}
	if want := []string{"0.0.answer one asks: one 0?", "0.0.answer one asks: one 0?", "0.1.answer two asks: two 0?", "0.1.again.answer two asks: two 1?"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
	counts := map[string]int{}
	for _, what := range did {
		counts[what]++
	}
	for what, n := range map[string]int{"one begins": 2, "one ends": 1, "two begins": 3, "two ends": 1, "none begins": 1, "files begins": 1} {
		if counts[what] != n {
			t.Errorf("%s %d times, want %d: %q", what, counts[what], n, did)
		}
	}
	if last := did[len(did)-1]; last != "files ends" {
		t.Errorf("the last is %q of %q", last, did)
	}

	// A call that asks a new question each time ends.
	salt, did, asked = "at ", nil, []string{"", ""}
	calls = calls[:1]
	if got := results(); len(got) != 1 || !strings.Contains(got[0], "asked a person 16 times") || len(asked) != 2+16 {
		t.Errorf("%q after %d questions", got, len(asked)-2)
	}
}
