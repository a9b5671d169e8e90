package engine_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/anthropic"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/session"
)

// forked makes branches of one session ask a simulated server, each with its own text
// after their common part, and returns the uses of the server's cache and the usage of
// the run.
func forked(t *testing.T, n int, rules CacheRules, models llm.Models, kind string, shared ...session.Chunk) ([]CacheUse, session.Usage) {
	server := &CacheServer{Rules: rules, First: 20 * time.Millisecond}
	srv := httptest.NewServer(server)
	t.Cleanup(srv.Close)
	agent := &flow.Agent{Name: "a", Prompt: "You answer.", Provider: llm.Provider{Kind: kind, Model: "m1", BaseURL: srv.URL + "/v1"}}
	ways := make([]flow.Branch, n)
	for i := range ways {
		ways[i] = flow.Branch{Name: fmt.Sprintf("b%02d", i), Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			return agent.Forward(ctx, s.With(session.UserText(fmt.Sprintf("part %02d", i))))
		})}
	}
	log := &commitlog.Memory{}
	values := journal.NewValues(log)
	rt := &inprocess.Runtime{Runtime: engine.Runtime{Values: values, Models: models}}
	rt.Runtime.Store = journal.NewStore(log, &journal.StoreOptions{Values: values, OnCommit: rt.Committed})
	var used session.Usage
	must(rt.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s, ways, &flow.FanOutOptions{WarmFirst: true})
		if err != nil {
			return s, err
		}
		used = session.Usage{}
		for _, o := range j.Outcomes {
			used = used.Add(o.Session.Usage())
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	}), session.New(shared...)))
	asked := server.Asked()
	if len(asked) != n {
		t.Fatalf("%d requests of %d branches", len(asked), n)
	}
	return asked, used
}

// TestForkCost: N branches of a session with an uncached prefix pay 1.25 + 0.1 (N-1)
// times its price, if writing costs 1.25 and reading 0.1, within 5 %, in a SIMULATION of
// the caches' rules: requests and their order are real, the server is not.
func TestForkCost(t *testing.T) {
	const prefix = 20_000 // tokens, of four bytes
	context := strings.Repeat("A fact. ", prefix*4/8)
	one := []session.Chunk{session.UserText(context)}
	claude, gpt := anthropic.New(nil), openai.New(nil)
	for _, tt := range []struct {
		name        string
		rules       CacheRules
		models      llm.Models
		kind        string
		write, read float64
	}{
		{"anthropic", AnthropicCache, claude, "anthropic", 1.25, 0.1},
		{"openai", OpenAICache, gpt, "", 1.25, 0.1},
		{"blocks", BlockCache, gpt, "", 1.25, 0.1},
	} {
		for _, n := range []int{8, 64} {
			t.Run(fmt.Sprintf("%s/%d", tt.name, n), func(t *testing.T) {
				asked, used := forked(t, n, tt.rules, tt.models, tt.kind, one...)
				cost, sum := 0.0, session.Usage{}
				for _, u := range asked {
					cost += float64(u.Input-u.Read-u.Written) + tt.write*float64(u.Written) + tt.read*float64(u.Read)
					sum.Input, sum.CacheRead = sum.Input+int64(u.Input), sum.CacheRead+int64(u.Read)
				}
				cost /= prefix
				want := 1.25 + 0.1*float64(n-1)
				t.Logf("simulated: %d branches of a prefix of %d tokens cost %.3f prefixes; 1.25 + 0.1 (N-1) is %.3f, without a cache it is %d", n, prefix, cost, want, n)
				if cost > want*1.05 || cost < want*0.95 {
					t.Errorf("it cost %.3f prefixes, want %.3f within 5 %%: %+v", cost, want, asked[:4])
				}
				if used.Input != sum.Input || used.CacheRead != sum.CacheRead {
					t.Errorf("the run says that it used %+v, the server %+v", used, sum)
				}
			})
		}
	}
}
