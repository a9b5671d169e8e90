package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/chain"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// spender is a model that calls a tool in each answer and never ends. Its server reports
// a cost, or none.
func spender(asked *int, states int64) client {
	return func(context.Context, *llm.Request) (*llm.Response, error) {
		*asked++
		return &llm.Response{
			Calls: []session.ToolCall{{ID: fmt.Sprint("c", *asked), Name: "nothing", Args: "{}"}}, Finish: llm.FinishTools, Model: "m-2026",
			Usage: session.Usage{Input: 1000, Output: 100, MicroUSD: states},
		}, nil
	}
}

func spend(ctx context.Context, s session.Session) (session.Session, error) {
	nothing := tool.Func("nothing", "Does nothing.", func(context.Context, struct{}) (string, error) { return "", nil }, &tool.FuncOptions{Effect: tool.ReadOnly})
	return (&flow.Agent{Name: "a", Tools: []tool.Tool{nothing}, Provider: llm.Provider{Model: "m"}}).Forward(ctx, s.With(session.UserText("go")))
}

// offering returns the given choices of a node's list for every call.
func offering(all ...chain.Choice) func(llm.Provider) ([]chain.Choice, error) {
	return func(llm.Provider) ([]chain.Choice, error) { return all, nil }
}

// fiveForThousand charges 5 micro-USD for a thousand input tokens, and no output.
func fiveForThousand(u session.Usage) int64 { return u.Input / 200 }

// TestMoneyBudgetStops: a budget of money ends a run within one call of its limit,
// whether the server or the node's list provides the cost of calls. If neither does, the
// run ends because the budget cannot be enforced.
func TestMoneyBudgetStops(t *testing.T) {
	for name, tt := range map[string]struct {
		states  int64
		choices func(llm.Provider) ([]chain.Choice, error)
		asked   int
		cost    string // in the record of the first call
		spent   int64
		says    string
	}{
		"the server states it":             {states: 5, asked: 4, cost: "stated", spent: 20, says: "20 of 18 micro-USD used"},
		"the list has prices":              {choices: offering(chain.Choice{Name: "m", Cost: "priced", Price: fiveForThousand}), asked: 4, cost: "priced", spent: 20, says: "20 of 18 micro-USD used"},
		"the server knows better":          {states: 9, choices: offering(chain.Choice{Name: "m", Cost: "priced", Price: fiveForThousand}), asked: 2, cost: "stated", spent: 18, says: "18 of 18"},
		"nothing says it":                  {asked: 1, says: "the cost of calls of model m-2026 is unknown"},
		"the list says nothing":            {choices: offering(chain.Choice{Name: "m"}), says: "the cost of calls of model m is unknown"},
		"the list says nothing of another": {choices: offering(chain.Choice{Name: "m", Cost: "free"}, chain.Choice{Name: "n"}), says: "the cost of calls of model n is unknown"},
		"the server does not as promised":  {choices: offering(chain.Choice{Name: "m", Cost: "stated"}), asked: 1, says: "the cost of calls of model m is unknown"},
		"it is free":                       {choices: offering(chain.Choice{Name: "m", Cost: "free"}), asked: 16, cost: "free", says: "the same calls with the same results"},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			asked := 0
			rt := w.runtime(spender(&asked, tt.states))
			rt.Runtime.Choices = tt.choices
			state, err := start(t, rt, spend, func(task *journal.Task) { task.Budget.MicroUSD = 18 }).Forward(t.Context())
			if state != run.Failed || errors.Is(err, run.ErrBudget) == (tt.cost == "free") || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("state %s: %v; want %q", state, err, tt.says)
			}
			if asked != tt.asked {
				t.Errorf("asked %d times, want %d", asked, tt.asked)
			}
			if e := ended(t, &w); e.Usage.MicroUSD != tt.spent {
				t.Errorf("the run cost %d, want %d", e.Usage.MicroUSD, tt.spent)
			}
			if d := facts[journal.StepCompleted](t, &w, journal.KindStepCompleted)[0]; d.Cost != tt.cost {
				t.Errorf("the first call says its cost is %q, want %q", d.Cost, tt.cost)
			}
		})
	}
}

// TestUnpricedIsKnownAgain: the next attempt of a run whose calls have no known cost
// makes no call.
func TestUnpricedIsKnownAgain(t *testing.T) {
	var w world
	asked := 0
	twice := func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := (&flow.Agent{Name: "a", MaxRounds: 1}).Forward(ctx, s.With(session.UserText("go")))
		if err != nil && !errors.Is(err, flow.ErrMaxRounds) {
			return s, err
		}
		if err := flow.Sleep(ctx, 1); err != nil {
			return s, err
		}
		return (&flow.Agent{Name: "a"}).Forward(ctx, s)
	}
	model := client(func(context.Context, *llm.Request) (*llm.Response, error) {
		asked++
		return &llm.Response{Text: "x", Finish: llm.FinishStop, Usage: session.Usage{Input: 10}}, nil
	})
	synctest.Test(t, func(t *testing.T) {
		forward(t, t.Context(), start(t, w.runtime(model), twice, func(task *journal.Task) { task.Budget.MicroUSD = 1000 }), run.Waiting)
		rt := w.runtime(model)
		check(t, rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Tick: true}))
		state, err := start(t, rt, twice, resume).Forward(t.Context())
		if state != run.Failed || !errors.Is(err, run.ErrBudget) || asked != 1 {
			t.Errorf("state %s after %d calls: %v", state, asked, err)
		}
	})
}

// fallbacks is a model that answers by the model of each request.
type fallbacks struct {
	answers map[string][]error // of each model; after the last one it answers
	asked   []string
}

func (m *fallbacks) Client(_ context.Context, p llm.Provider) (llm.Client, error) {
	if p.KeyRef == "none" {
		return nil, &llm.Error{Code: llm.CodeNoKey, Message: "no key"}
	}
	return m, nil
}

func (m *fallbacks) Complete(_ context.Context, r *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	model := r.Provider.Model
	m.asked = append(m.asked, model)
	if all := m.answers[model]; len(all) > 0 {
		m.answers[model] = all[1:]
		sink(llm.Delta{Text: "half"})
		return nil, all[0]
	}
	return &llm.Response{Text: "by " + model, Finish: llm.FinishStop, Model: model + "-1", Usage: session.Usage{Input: 1000}}, nil
}

func named(names ...string) func(llm.Provider) ([]chain.Choice, error) {
	var all []chain.Choice
	for _, name := range names {
		c := chain.Choice{Name: name, Provider: llm.Provider{Model: "id-" + name}, Cost: "free"}
		switch name {
		case "keyless":
			c.Provider.KeyRef = "none"
		case "small":
			c.Context = 1
		}
		all = append(all, c)
	}
	return offering(all...)
}

// TestFallbacks: if a model fails the next one of its chain answers, and the record of
// the step names it, with the errors of those before.
func TestFallbacks(t *testing.T) {
	down, busy, late := llm.Rebuild(llm.CodeUnavailable, "down"), llm.Rebuild(llm.CodeRateLimited, "busy"), llm.Rebuild(llm.CodeRateLimited, "busy")
	late.RetryAfter = 20e9
	auth, wrong := llm.Rebuild(llm.CodeAuth, "no"), llm.Rebuild(llm.CodeInvalidRequest, "no")
	for name, tt := range map[string]struct {
		chain  []string
		a, b   []error
		asked  string
		passed string
		named  string
		code   llm.Code
		says   string // the error of the step
	}{
		"the first answers":                        {chain: []string{"a", "b"}, asked: "a", named: "a"},
		"the first answers at last":                {chain: []string{"a", "b"}, a: []error{busy}, asked: "a a", named: "a"},
		"the first is down":                        {chain: []string{"a", "b"}, a: []error{down, down}, asked: "a a b", passed: "a unavailable", named: "b"},
		"the first has no time":                    {chain: []string{"a", "b"}, a: []error{late}, asked: "a b", passed: "a rate_limited", named: "b"},
		"the first's key is wrong":                 {chain: []string{"a", "b"}, a: []error{auth}, asked: "a b", passed: "a auth", named: "b"},
		"the first's key is not there":             {chain: []string{"keyless", "b"}, asked: "b", passed: "keyless no_key", named: "b"},
		"the first is too small":                   {chain: []string{"small", "b"}, asked: "b", passed: "small context_length", named: "b"},
		"the request is wrong":                     {chain: []string{"a", "b"}, a: []error{wrong}, asked: "a", named: "a", code: llm.CodeInvalidRequest},
		"all are down":                             {chain: []string{"a", "b"}, a: []error{down, down}, b: []error{down, down, down, down}, asked: "a a b b b b", passed: "a unavailable", named: "b", code: llm.CodeUnavailable, says: "llm: unavailable: model a: down; then model b: down (tried 6 times)"},
		"a key is not there, and the next is down": {chain: []string{"keyless", "b"}, b: []error{down, down, down, down}, asked: "b b b b", passed: "keyless no_key", named: "b", code: llm.CodeUnavailable, says: "llm: unavailable: model keyless: no key; then model b: down (tried 4 times)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w world
				m := &fallbacks{answers: map[string][]error{"id-a": tt.a, "id-b": tt.b}}
				rt := w.runtime(m)
				rt.Runtime.Choices = named(tt.chain...)
				_, err := start(t, rt, agentOnce).Forward(t.Context())
				if llm.CodeOf(err) != tt.code {
					t.Errorf("%v; want code %q", err, tt.code)
				}
				if got := strings.ReplaceAll(strings.Join(m.asked, " "), "id-", ""); got != tt.asked {
					t.Errorf("asked %s, want %s", got, tt.asked)
				}
				d := facts[journal.StepCompleted](t, &w, journal.KindStepCompleted)[0]
				var passed []string
				for _, p := range d.Passed {
					passed = append(passed, p.Name+" "+string(p.Code))
				}
				if tt.says != "" && (d.Error != tt.says || err == nil || err.Error() != tt.says) {
					t.Errorf("the step says %q and returns %q; want %q", d.Error, err, tt.says)
				}
				if got := strings.Join(passed, ", "); got != tt.passed || d.Named != tt.named {
					t.Errorf("the record names %q and passed %q; want %q, %q", d.Named, got, tt.named, tt.passed)
				}
			})
		})
	}
}

// TestBreaker: a model that failed five times in a row is not asked for half a minute if
// another can answer; then one call tries it.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := llm.Rebuild(llm.CodeUnavailable, "down")
		m := &fallbacks{answers: map[string][]error{"id-a": {down, down, down, down, down, down}}}
		calls := func(ctx context.Context, s session.Session) (session.Session, error) {
			for i := range 8 {
				if i == 5 {
					time.Sleep(30 * time.Second)
				}
				var err error
				if s, err = agentOnce(ctx, s); err != nil {
					return s, err
				}
				m.asked = append(m.asked, "|")
			}
			return s, nil
		}
		var w world
		rt := w.runtime(m)
		rt.Runtime.Choices = named("a", "b")
		forward(t, t.Context(), start(t, rt, calls), run.Succeeded)
		if got, want := strings.ReplaceAll(strings.Join(m.asked, ""), "id-", ""), "aab|aab|aab|b|b|a|a|a|"; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
		last := facts[journal.StepCompleted](t, &w, journal.KindStepCompleted)[4]
		if len(last.Passed) != 1 || last.Passed[0].Name != "a" || last.Passed[0].Code != run.CodeUnavailable {
			t.Errorf("the call beside the open breaker passed %+v", last.Passed)
		}
	})
}

// TestCountedBeforeSent: near the end of a model's context the first request, which no
// server has counted, is counted in tokens: an estimate from bytes is too low for digits,
// and too high for long words.
func TestCountedBeforeSent(t *testing.T) {
	for name, tt := range map[string]struct {
		text    string
		context int64
		asked   string
	}{
		"digits":     {strings.Repeat("7 1 9 ", 200), 450, "id-b"}, // 600 tokens in 1200 bytes
		"long words": {strings.Repeat(" internationalization", 100), 300, "id-a"},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			m := &fallbacks{}
			rt := w.runtime(m)
			rt.Runtime.Choices = offering(
				chain.Choice{Name: "a", Provider: llm.Provider{Model: "id-a"}, Context: tt.context}, chain.Choice{Name: "b", Provider: llm.Provider{Model: "id-b"}})
			agent := &flow.Agent{Name: "a"}
			_, err := start(t, rt, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				return agent.Forward(ctx, s.With(session.UserText(tt.text)))
			})).Forward(t.Context())
			if err != nil || strings.Join(m.asked, " ") != tt.asked {
				t.Errorf("asked %v, want %s: %v", m.asked, tt.asked, err)
			}
		})
	}
}
