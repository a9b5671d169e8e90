package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine/chain"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// TestPool: in a pool of servers a session's requests go to one server, whichever node
// makes them; sessions are spread; and those of a failing server go to the others, while
// all others keep their server.
func TestPool(t *testing.T) {
	servers := []string{"http://a/v1", "http://b/v1", "http://c/v1", "http://d/v1"}
	pool := func(order []string) func(llm.Provider) ([]chain.Choice, error) {
		var all []chain.Choice
		for _, url := range order {
			all = append(all, chain.Choice{Name: "m", Provider: llm.Provider{Model: "id", BaseURL: url}})
		}
		return offering(all...)
	}
	ask := func(name, down string, order []string) (asked []string) {
		var w world
		rt := w.runtime(client(func(_ context.Context, r *llm.Request) (*llm.Response, error) {
			url := r.Provider.BaseURL
			if asked = append(asked, strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/v1")); url == down {
				return nil, &llm.Error{Code: llm.CodeQuota}
			}
			return &llm.Response{Text: "ok", Finish: llm.FinishStop, Usage: session.Usage{Input: 1}}, nil
		}))
		rt.Runtime.Choices = pool(order)
		_, err := start(t, rt, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			s, err := (&flow.Agent{Name: "a"}).Forward(ctx, s.With(session.UserText(name)))
			if err != nil {
				return s, err
			}
			return (&flow.Agent{Name: "a"}).Forward(ctx, s.With(session.UserText("more")))
		})).Forward(t.Context())
		if err != nil {
			t.Error(err)
		}
		return asked
	}
	backwards := slices.Clone(servers)
	slices.Reverse(backwards)
	spread, moved := map[string]int{}, map[string]int{}
	for i := range 60 {
		name := fmt.Sprintf("session %d", i)
		first := ask(name, "", servers)
		if len(first) != 2 || first[0] != first[1] || !slices.Equal(ask(name, "", backwards), first) {
			t.Fatalf("%s was asked at %v, and by another node at %v", name, first, ask(name, "", backwards))
		}
		spread[first[0]]++
		after := ask(name, servers[0], servers)
		switch {
		case first[0] != "a":
			if !slices.Equal(after, first) {
				t.Errorf("%s went from %v to %v though its server works", name, first, after)
			}
		case len(after) != 4 || after[0] != "a" || after[1] == "a" || after[3] != after[1]:
			t.Errorf("%s was asked at %v", name, after)
		default:
			moved[after[1]]++
		}
	}
	if len(spread) != 4 || slices.Min([]int{spread["a"], spread["b"], spread["c"], spread["d"]}) < 5 || len(moved) < 2 {
		t.Errorf("60 sessions are spread as %v, those of a went to %v", spread, moved)
	}
}

// TestPoolTooLong: a request that is too long for a model is not sent to each of its
// servers.
func TestPoolTooLong(t *testing.T) {
	var w world
	var asked []string
	rt := w.runtime(client(func(_ context.Context, r *llm.Request) (*llm.Response, error) {
		if asked = append(asked, r.Provider.Model); r.Provider.Model == "small" {
			return nil, &llm.Error{Code: llm.CodeContextLength}
		}
		return &llm.Response{Text: "ok", Finish: llm.FinishStop, Usage: session.Usage{Input: 1}}, nil
	}))
	at := func(name, url string) chain.Choice {
		return chain.Choice{Name: name, Provider: llm.Provider{Model: name, BaseURL: url}}
	}
	rt.Runtime.Choices = offering(at("small", "http://a"), at("small", "http://b"), at("large", "http://c"))
	if _, err := start(t, rt, agentOnce).Forward(t.Context()); err != nil || !slices.Equal(asked, []string{"small", "large"}) {
		t.Errorf("asked %v: %v", asked, err)
	}
}
