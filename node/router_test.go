package node

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// witnessed is a scripted model with a log of its requests.
type witnessed struct {
	*scripted.Model
	mu      sync.Mutex
	log     bytes.Buffer
	longest atomic.Int64 // of the last messages of all requests, in bytes
}

// Write takes an entry of the log.
func (w *witnessed) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

// Client implements llm.Models.
func (w *witnessed) Client(context.Context, llm.Provider) (llm.Client, error) { return w, nil }

// Complete implements llm.Client.
func (w *witnessed) Complete(ctx context.Context, r *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	n := int64(len(r.Messages[len(r.Messages)-1].Text))
	for old := w.longest.Load(); n > old && !w.longest.CompareAndSwap(old, n); old = w.longest.Load() {
	}
	return w.Model.Complete(ctx, r, sink)
}

func newWitnessed(t *testing.T, script string) *witnessed {
	t.Helper()
	w := &witnessed{}
	w.Model = scriptOf(t, script, &scripted.Options{Log: w})
	return w
}

// asked returns how often each rule answered.
func (w *witnessed) asked(t *testing.T) map[string]int {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	n := map[string]int{}
	for lines := bufio.NewScanner(bytes.NewReader(w.log.Bytes())); lines.Scan(); {
		var e scripted.Entry
		must.Do(t, json.Unmarshal(lines.Bytes(), &e))
		n[e.Rule]++
	}
	return n
}

// writers are the workflows of a pool beside the routers'.
func writers() []flow.Registration {
	agent := func(name, prompt string) func() flow.Workflow {
		return func() flow.Workflow { return &flow.Agent{Name: name, Prompt: prompt} }
	}
	return []flow.Registration{
		{Name: "write", Description: "Writes a draft.", Revision: "1", New: agent("writer", "You write.")},
		{Name: "review", Description: "Reads a draft and says what is wrong.", Revision: "1", New: agent("reviewer", "You review.")},
	}
}

// autoInput excludes the workflow "agent", which is not part of these tests.
const autoInput = `{"prompt":"write a note","exclude":["agent"]}`

// member starts a node of a fleet on external servers.
func member(t *testing.T, srv *natsserver.Server, o Options) *Instance {
	t.Helper()
	o.NATS.URL, o.NATS.Level, o.Store = srv.URL(), "lazy", t.TempDir()
	o.NATS.User, o.NATS.Password = srv.Node()
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	return begin(t, &o).started(t)
}

// records returns the lineage of a tree until as many runs in it have ended.
func records(t *testing.T, c *client.Client, name string, runs int) []messages.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	var all []messages.Record
	for r, err := range c.Lineage.Tail(ctx, name, "") {
		if err != nil {
			t.Fatalf("after %d records: %v", len(all), err)
		}
		all = append(all, r.Record)
		if r.Record.Kind == messages.KindEnded {
			if runs--; runs == 0 {
				return all
			}
		}
	}
	return all
}

// events returns the events in a session's log.
func events(t *testing.T, n *Instance, id session.ID) iter.Seq[session.Event] {
	t.Helper()
	return func(yield func(session.Event) bool) {
		for e, err := range n.Log().Read(t.Context(), session.Key{Tenant: session.DefaultTenant, ID: id}, commitlog.Position{}) {
			must.Do(t, err)
			for _, ev := range e.Commit.Events {
				if !yield(ev) {
					return
				}
			}
		}
	}
}

// TestRouters has two routers and a node of another pool work side by side: each choice
// is made once, by a router, and the chosen workflow runs elsewhere.
func TestRouters(t *testing.T) {
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	model := newWitnessed(t, "auto.txtar")
	worker := member(t, srv, Options{Fleet: Fleet{Pool: "writing", Routing: RouteElsewhere}, Models: Models{Source: model}, Workflows: writers()})
	routers := []string{
		member(t, srv, Options{Fleet: Fleet{Routing: RouteOnly}, Models: Models{Source: model}}).Incarnation(),
		member(t, srv, Options{Fleet: Fleet{Routing: RouteOnly}, Models: Models{Source: model}}).Incarnation(),
	}
	c := must.Get(worker.Client(t.Context()))(t)
	defer c.Close()
	on := must.Get(c.Workflows(t.Context()))(t)
	for _, w := range on {
		if routing := w.Name == "auto" || w.Name == "fanout"; routing != (w.Pool == RouterPool) {
			t.Errorf("workflow %s is on offer in pool %s", w.Name, w.Pool)
		}
	}

	const runs = 8
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	results := make([]messages.Result, runs)
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			var err error
			results[i], err = c.Do(ctx, "auto", messages.Task{ID: run.ID(fmt.Sprintf("auto-%d", i)), Input: json.RawMessage(autoInput), Model: "big"}, nil)
			must.Report(t, err)
		})
	}
	wg.Wait()
	for _, r := range results {
		if r.State != run.Succeeded || r.Output != "The draft is fine." {
			t.Errorf("%+v", r)
		}
	}
	want := map[string]int{"first": runs, "second": runs, "done": runs, "write": runs, "review": runs}
	if got := model.asked(t); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the model was asked %v, want %v", got, want)
	}

	selected, elsewhere := 0, 0
	for _, r := range records(t, c, string(results[0].Session), 3) {
		switch {
		case r.Kind == messages.KindSelected:
			selected++
			if r.Usage.Calls != 1 || r.Usage.Input == 0 || r.Model == "" || r.Reason == "" || fmt.Sprint(r.Candidates) != "[review write]" {
				t.Errorf("a choice is told as %+v", r)
			}
		case r.Kind == messages.KindClaimed && r.Workflow == "auto":
			if !slices.Contains(routers, r.Node) {
				t.Errorf("auto was claimed by %s, the routers are %v", r.Node, routers)
			}
		case r.Kind == messages.KindClaimed:
			elsewhere++
			if r.Node != worker.Incarnation() {
				t.Errorf("%s was claimed by %s, the worker is %s", r.Workflow, r.Node, worker.Incarnation())
			}
		}
	}
	if selected != 3 || elsewhere != 2 {
		t.Errorf("%d choices and %d runs of what was chosen", selected, elsewhere)
	}

	// The journal's record of the first choice.
	var decided []string
	for e := range events(t, worker, results[0].Session) {
		if d, err := journal.Decode[journal.StepCompleted](e); e.Kind == journal.KindStepCompleted && err == nil && d.Kind == journal.StepSelection {
			decided = append(decided, d.Value)
		}
	}
	if len(decided) != 3 || decided[0] != `{"answer":"I choose 1.","candidates":["review","write"],"choice":1}` {
		t.Errorf("the choices are recorded as %q", decided)
	}
}

// TestOneNodeRoutes checks that a single process suffices to route.
func TestOneNodeRoutes(t *testing.T) {
	model := newWitnessed(t, "auto.txtar")
	n := begin(t, &Options{Store: t.TempDir(), NATS: NATS{Level: "lazy"}, Models: Models{Source: model}, Workflows: writers()}).started(t)
	c, err := n.Client(t.Context())
	must.Do(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	r, err := c.Do(ctx, "auto", messages.Task{Input: json.RawMessage(autoInput)}, nil)
	if err != nil || r.State != run.Succeeded || r.Output != "The draft is fine." {
		t.Fatalf("auto: %+v, %v", r, err)
	}
	r, err = c.Do(ctx, "fanout", messages.Task{Input: json.RawMessage(`{"prompt":"go","branches":[{"name":"w","workflow":"write","count":256}],"join":{"quorum":250}}`)}, nil)
	if err != nil || r.State != run.Succeeded || r.Output != "A draft of the note." {
		t.Fatalf("fanout: %+v, %v", r, err)
	}
	for input, want := range map[string]string{
		`{"branches":[]}`: "field branches: there are none",
		`{"branches":[{"name":"a","workflow":"write"}],"join":{"quorum":3}}`: "choose 1 to 1",
	} {
		r, err := c.Do(ctx, "fanout", messages.Task{Input: json.RawMessage(input)}, nil)
		if err != nil || r.State != run.Failed || r.Code != run.CodeMalformed || !strings.Contains(r.Error, want) {
			t.Errorf("%s: %+v, %v", input, r, err)
		}
	}
	r, err = c.Do(ctx, "fanout", messages.Task{Input: json.RawMessage(`{"branches":[{"name":"a","workflow":"nowhere"}]}`)}, nil)
	if err != nil || r.State != run.Failed || r.Code != run.CodeNotFound {
		t.Errorf("a workflow that no node offers: %+v, %v", r, err)
	}
}

// TestServedBefore: a router yields to a pool that offers its workflows and comes first by
// name; a node that is dead, of a later pool or without auto does not count.
func TestServedBefore(t *testing.T) {
	auto := []string{"agent@1", "auto@1", "fanout@1"}
	for name, tt := range map[string]struct {
		nodes []messages.Node
		want  string
	}{
		"beside a node that does all":  {[]messages.Node{{Name: "w", Pools: []string{"work"}}, {Name: "d", Pools: []string{"default"}, Offers: auto}}, "d"},
		"beside nodes that leave both": {[]messages.Node{{Name: "d", Pools: []string{"default"}, Offers: []string{"agent@1", "autopilot@1"}}}, ""},
		"a later pool":                 {[]messages.Node{{Name: "z", Pools: []string{"zoo"}, Offers: auto}}, ""},
		"routers":                      {[]messages.Node{{Name: "r", Pools: []string{RouterPool}, Offers: auto}}, ""},
		"a dead node":                  {[]messages.Node{{Name: "d", Dead: true, Pools: []string{"default"}, Offers: auto}}, ""},
	} {
		if o, ok := servedBefore(tt.nodes, RouterPool); o.Name != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %s, want %q", name, o.Name, tt.want)
		}
	}
}

// TestPoolForgets checks that a node which starts alone in its pool withdraws workflows
// that the pool no longer has, and that a node among others does not.
func TestPoolForgets(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	model := newWitnessed(t, "auto.txtar")
	offered := func(n *Instance) string {
		t.Helper()
		all := must.Get(n.link.conn.Dispatch.Registry.Workflows(t.Context()))(t)
		var names []string
		for _, w := range all {
			if w.Pool == "writing" && (w.Name == "write" || w.Name == "review" || w.Name == "auto") {
				names = append(names, w.Name)
			}
		}
		return strings.Join(names, " ")
	}
	first := member(t, srv, Options{Fleet: Fleet{Pool: "writing"}, Models: Models{Source: model}, Workflows: writers()})
	if got := offered(first); got != "auto review write" {
		t.Errorf("the first node's pool offers %q", got)
	}
	for end := time.Now().Add(soon); ; time.Sleep(5 * time.Millisecond) { // it announces itself in the background
		if all, err := first.link.conn.Nodes(t.Context()); err == nil && len(all) == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the node has no entry")
		}
	}
	second := member(t, srv, Options{Fleet: Fleet{Pool: "writing", Routing: RouteElsewhere}, Models: Models{Source: model}, Workflows: writers()[:1]})
	if got := offered(second); got != "auto review write" {
		t.Errorf("beside a second node that leaves auto to routers the pool offers %q", got)
	}
	must.Do(t, errors.Join(first.Close(), second.Close()))
	third := member(t, srv, Options{Fleet: Fleet{Pool: "writing"}, Models: Models{Source: model}, Workflows: writers()[:1]})
	if got := offered(third); got != "auto write" {
		t.Errorf("after a new start with less the pool offers %q", got)
	}
}

// TestManyWorkflowsOnOffer checks that a workflow on offer that no task names is only
// an entry in the registry, and that the menu of a choice among many stays small.
func TestManyWorkflowsOnOffer(t *testing.T) {
	model := newWitnessed(t, "auto.txtar")
	n := begin(t, &Options{Store: t.TempDir(), NATS: NATS{Level: "lazy"}, Models: Models{Source: model}, Workflows: writers()}).started(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*soon)
	defer cancel()
	c, err := n.Client(t.Context())
	must.Do(t, err)
	defer c.Close()
	nc, done := nodeConnection(t, n.link.server)
	defer done()
	consumers := func() int {
		info := must.Get(nc.AccountInfo())(t)
		return info.Consumers
	}
	// A run puts every service of the node to work.
	if r, err := c.Do(ctx, "auto", messages.Task{Input: json.RawMessage(autoInput)}, nil); err != nil || r.State != run.Succeeded {
		t.Fatalf("%+v, %v", r, err)
	}
	before, goroutines := consumers(), settled()
	many := make([]messages.Workflow, 1000)
	for i := range many {
		many[i] = messages.Workflow{Name: fmt.Sprintf("sort-%03d", i), Revision: "1", Description: strings.Repeat("Sorts invoices of customers by their numbers. ", 20)}
	}
	began := time.Now()
	must.Do(t, n.link.conn.Dispatch.Registry.Register(ctx, "sorting", many))
	t.Logf("1000 workflows were registered in %v", time.Since(began).Round(time.Millisecond))
	// Readers of the catalog and restarted followers of a stream have a second consumer
	// for a moment.
	for until := time.Now().Add(soon); consumers() > before; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d consumers with 1000 more workflows, %d before", consumers(), before)
		}
	}
	if after := settled(); after > goroutines+4 {
		t.Errorf("%d goroutines with 1000 more workflows, %d before", after, goroutines)
	}
	began = time.Now()
	r, err := c.Do(ctx, "auto", messages.Task{Input: json.RawMessage(`{"prompt":"write a draft, and let somebody read it","workflows":["review","write"]}`)}, nil)
	if err != nil || r.State != run.Succeeded {
		t.Fatalf("%+v, %v", r, err)
	}
	t.Logf("a run of 3 choices took %v", time.Since(began).Round(time.Millisecond))
	// The number that the script chooses is another one here; only the size of the
	// requests matters.
	if r, err := c.Do(ctx, "auto", messages.Task{Input: json.RawMessage(`{"prompt":"write a draft","rounds":1}`), Deadline: time.Now().Add(soon)}, nil); err != nil || !r.State.Terminal() {
		t.Errorf("%+v, %v", r, err)
	}
	if most := model.longest.Load(); most > 24<<10 || most < 8<<10 {
		t.Errorf("the longest menu has %d bytes", most)
	}
}

// settled returns the number of goroutines once it stops falling.
func settled() int {
	least := runtime.NumGoroutine()
	for range 20 {
		time.Sleep(5 * time.Millisecond)
		least = min(least, runtime.NumGoroutine())
	}
	return least
}

// nodeConnection is a connection to JetStream with the rights of a node.
func nodeConnection(t *testing.T, srv *natsserver.Server) (nats.JetStreamContext, func()) {
	t.Helper()
	user, password := srv.Node()
	nc := must.Get(nats.Connect("", nats.InProcessServer(dialFunc(srv.Dial)), nats.UserInfo(user, password)))(t)
	js := must.Get(nc.JetStream())(t)
	return js, nc.Close
}
