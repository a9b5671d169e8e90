package node

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// branchBodies collects the requests of branches. None is answered before all have
// arrived, so that no node runs one branch after the other.
type branchBodies struct {
	mu   sync.Mutex
	all  []string
	keys []string       // of the cache
	from map[string]int // branches by the node that asked
	full chan struct{}
}

func (b *branchBodies) add(node, body string, want int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, body)
	b.from[node]++
	if len(b.all) == want {
		close(b.full)
	}
}

// keyed records the cache keys of requests to models.
type keyed struct {
	llm.Models
	to *branchBodies
}

func (k keyed) Client(ctx context.Context, p llm.Provider) (llm.Client, error) {
	c, err := k.Models.Client(ctx, p)
	return keyedClient{c, k.to}, err
}

type keyedClient struct {
	llm.Client
	to *branchBodies
}

func (k keyedClient) Complete(ctx context.Context, r *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	k.to.mu.Lock()
	k.to.keys = append(k.to.keys, r.CacheKey)
	k.to.mu.Unlock()
	return k.Client.Complete(ctx, r, sink)
}

// TestPrefixAcrossNodes: the requests of branches on different nodes to a model server
// have the same bytes except for each branch's own text, so that the provider's cache
// serves all of them.
func TestPrefixAcrossNodes(t *testing.T) {
	const branches, slots = 6, 4 // more than one node has room for
	bodies := &branchBodies{from: map[string]int{}, full: make(chan struct{})}
	model := scriptOf(t, "prefix.txtar", nil)
	look := tool.Func("look", "Looks & counts.", func(context.Context, map[string]any) (string, error) {
		return "<two>\n\"of\" them: à", nil
	}, &tool.FuncOptions{Effect: tool.ReadOnly})
	agent := &flow.Agent{Name: "a", Prompt: "You answer & count.", Tools: []tool.Tool{look}}
	var ways []flow.Branch
	for i := range branches {
		ways = append(ways, flow.Branch{Name: fmt.Sprintf("n%d", i), Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			return agent.Forward(ctx, s.With(session.UserText(fmt.Sprintf("part %d", i))))
		})})
	}
	parts := flow.Registration{Name: "parts", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			s, err := agent.Forward(ctx, s.With(session.UserText("Look <there>: "+strings.Repeat("context ", 500))))
			if err != nil {
				return s, err
			}
			j, err := flow.FanOut(ctx, s, ways, nil)
			if err != nil {
				return s, err
			}
			return flow.Merge(ctx, j, flow.SinceAncestor())
		})
	}}

	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	var first *Instance
	for _, name := range []string{"one", "two"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			must.Report(t, err)
			if strings.Contains(string(body), `"part `) {
				bodies.add(name, string(body), branches)
				select {
				case <-bodies.full:
				case <-r.Context().Done():
					return
				}
			}
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			model.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		models := openai.New(&llm.ServerOptions{BaseURL: server.URL + "/v1", DefaultModel: "m"})
		n := member(t, srv, Options{Name: name, Models: Models{Source: keyed{models, bodies}}, Workflows: []flow.Registration{parts}, Slots: slots})
		if first == nil {
			first = n
		}
	}
	c := must.Get(first.Client(t.Context()))(t)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	if r, err := c.Do(ctx, "parts", messages.Task{}, nil); err != nil || r.State != run.Succeeded {
		t.Fatalf("parts: %+v, %v", r, err)
	}

	bodies.mu.Lock()
	defer bodies.mu.Unlock()
	if len(bodies.all) != branches || len(bodies.from) != 2 {
		t.Fatalf("%d requests of branches, by node %v; want %d of two", len(bodies.all), bodies.from, branches)
	}
	slices.Sort(bodies.keys)
	if keys := slices.Compact(bodies.keys); len(keys) != 1 || keys[0] == "" {
		t.Errorf("the requests have the keys %q, want one", keys)
	}
	before, after, _ := strings.Cut(bodies.all[0], `"part `)
	if len(before) < 4000 || !strings.Contains(before, `"tool_calls"`) || !strings.Contains(before, `"role":"tool"`) {
		t.Fatalf("what comes before a branch's own words is not the conversation: %.400q", before)
	}
	own := map[string]bool{}
	for _, body := range bodies.all {
		b, a, _ := strings.Cut(body, `"part `)
		own[a[:1]] = true
		if b != before || a[1:] != after[1:] {
			t.Errorf("two branches sent\n%s\n%s", bodies.all[0], body)
		}
	}
	if len(own) != branches {
		t.Errorf("the branches said %v", own)
	}
}
