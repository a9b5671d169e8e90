package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

const nodesOfTheFleet = 3

// till is a model's server whose every answer calls a tool, and which counts the cost
// of its answers at the prices of the test's list: 0.25, 0.025 and 2 dollars for a
// million tokens of input, of cached input and of output. It answers once all nodes
// have asked: the branches are more than two of them have slots for.
type till struct {
	all      chan struct{} // closed when they have
	mu       sync.Mutex
	requests map[string]int // by the model
	nodes    map[string]int
	cost     int64 // in micro-USD
	dearest  int64 // of one answer
}

func (s *till) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct{ Model string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	n := int64(s.requests[in.Model])
	s.requests[in.Model]++
	node := strings.Split(r.URL.Path, "/")[1]
	if s.nodes[node]++; s.nodes[node] == 1 && len(s.nodes) == nodesOfTheFleet {
		close(s.all)
	}
	input, cached, output := 1000+37*n, 311*(n%4), 40+n%13
	// A millionth of a micro-USD is counted, and rounded up for each answer.
	fine := (input-cached)*250_000 + cached*25_000 + output*2_000_000
	cost := (fine + 999_999) / 1_000_000
	s.cost, s.dearest = s.cost+cost, max(s.dearest, cost)
	s.mu.Unlock()
	select {
	case <-s.all:
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c%d\",\"function\":{\"name\":\"look\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n"+
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"prompt_tokens_details\":{\"cached_tokens\":%d}}}\n\ndata: [DONE]\n\n", n, input, output, cached)
}

// counted returns the counts and resets them.
func (s *till) counted() (requests map[string]int, cost, dearest int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests, cost, dearest = maps.Clone(s.requests), s.cost, s.dearest
	s.requests, s.cost, s.dearest = map[string]int{}, 0, 0
	return requests, cost, dearest
}

// TestMoneyOfTheFleet: eight branches on three nodes share one budget of money. With
// prices each of them stops within one call of its part, and result and dossier agree
// with the model server's counts, to the micro-USD. Without prices the task is
// rejected, and a branch whose agent names such a model makes no call.
func TestMoneyOfTheFleet(t *testing.T) {
	const branches, budget = 8, 40_000
	server := &till{all: make(chan struct{}), requests: map[string]int{}, nodes: map[string]int{}}
	web := httptest.NewServer(server)
	defer web.Close()
	text := "default: priced\nmodels:\n  priced: {url: URL, prices: {date: 2026-11-01, input: 0.25, cached_input: 0.025, output: 2}}\n  unpriced: {url: URL}\n"
	look := tool.Func("look", "Looks.", func(context.Context, map[string]any) (string, error) { return "nothing", nil }, &tool.FuncOptions{Effect: tool.ReadOnly})
	fan := func(name, model string) flow.Registration {
		agent := &flow.Agent{Name: "spender", Provider: llm.Provider{Model: model}, Tools: []tool.Tool{look}, MaxRounds: 1000}
		return flow.Registration{Name: name, Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				j, err := flow.FanOut(ctx, s.With(session.UserText("Look around.")), flow.Repeat(branches, agent), nil)
				if err != nil {
					return s, err
				}
				return flow.Merge(ctx, j, flow.SinceAncestor())
			})
		}}
	}
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	var nodes []*Instance
	for i := range nodesOfTheFleet {
		list := filepath.Join(t.TempDir(), "models.yaml")
		must.Do(t, os.WriteFile(list, []byte(strings.ReplaceAll(text, "URL", fmt.Sprintf("%s/node-%d/v1", web.URL, i))), 0o600))
		nodes = append(nodes, member(t, srv, Options{Models: Models{List: list}, Slots: 3, Workflows: []flow.Registration{fan("spend", ""), fan("spend_unpriced", "unpriced")}}))
	}
	c := must.Get(nodes[0].Client(t.Context()))(t)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	do := func(workflow, model string) (messages.Result, *dossier.Facts) {
		t.Helper()
		r := must.Get(c.Do(ctx, workflow, messages.Task{Model: model, Budget: messages.Budget{MicroUSD: budget}}, nil))(t)
		if r.Code == run.CodeMalformed {
			return r, nil // it is in no log
		}
		home := must.Get(c.Runs.Get(ctx, r.Run))(t)
		e := must.Get(dossier.Collect(ctx, nodes[1].Log(), nodes[1].Blobs(c.Tenant()), session.Key{Tenant: c.Tenant(), ID: home.Session}, r.Run, nil))(t)
		f := must.Get(dossier.Read(e))(t)
		return r, f
	}

	r, f := do("spend", "")
	requests, cost, dearest := server.counted()
	ended := func(f *dossier.Facts, says string) {
		t.Helper()
		n := 0
		for i := range f.Steps {
			if s := &f.Steps[i]; s.Kind == journal.StepModel && s.Code == run.CodeBudget && strings.Contains(s.Error.Shown, says) {
				n++
			}
		}
		if n != branches || len(f.Branches) != branches {
			t.Errorf("%d calls of %d branches were refused because of %q", n, len(f.Branches), says)
		}
	}
	ended(f, "of 5000 micro-USD used")
	if source := lineage.CostText(f.Spent); source != "by prices of 2026-11-01" {
		t.Errorf("the dossier says of the cost %q", source)
	}
	if f.Numbers.MicroUSD != cost || r.Usage.MicroUSD != cost || r.Lost != (session.Usage{}) {
		t.Errorf("the dossier has %d micro-USD and the result %d, of which are lost %+v; the server counted %d", f.Numbers.MicroUSD, r.Usage.MicroUSD, r.Lost, cost)
	}
	if cost <= budget-branches*dearest || cost > budget+branches*dearest {
		t.Errorf("%d branches used %d of %d micro-USD; one call costs up to %d", branches, cost, budget, dearest)
	}
	t.Logf("%d requests, %d of %d micro-USD, nodes %v", requests["priced"], cost, budget, server.nodes)

	if r, _ := do("spend", "unpriced"); r.Code != run.CodeMalformed || !strings.Contains(r.Error, "the cost of calls of model unpriced is unknown") {
		t.Errorf("a task with a model without prices: %+v", r)
	}
	if r, f := do("spend_unpriced", ""); r.State != run.Failed || f.Numbers.MicroUSD != 0 {
		t.Errorf("a workflow whose agent names a model without prices: %+v", r)
	} else {
		ended(f, "unpriced")
	}
	if requests, _, _ := server.counted(); len(requests) > 0 {
		t.Errorf("requests without prices: %v", requests)
	}
}
