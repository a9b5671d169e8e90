//go:build unix

package node

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// victim is a fleet of a router and a node in a process of its own, which the test kills.
type victim struct {
	srv    *natsserver.Server
	router *Instance
	ledger string
	at     func() string
	gossip func(bind string) *Gossip
	kill   func(t *testing.T)
}

// newVictim starts a fleet whose node has the workflows of a value of asNode, and further
// arguments.
func newVictim(t *testing.T, workflows string, args ...string) *victim {
	t.Helper()
	w := &victim{srv: natstest.Start(t, &natsserver.Options{Port: -1}), ledger: filepath.Join(t.TempDir(), "ledger")}
	key := cluster.NewKey()
	keyFile := filepath.Join(t.TempDir(), "key")
	must.Do(t, os.WriteFile(keyFile, []byte(key.Text()), 0o600))
	t.Setenv(ledgerOf, w.ledger)
	w.at = func() string { return "127.0.0.1:" + strconv.Itoa(natstest.FreePort(t)) }
	first := w.at()
	w.gossip = func(bind string) *Gossip { return &Gossip{Bind: bind, Join: []string{first}, Key: key.Text()} }
	w.router = member(t, w.srv, Options{Fleet: Fleet{Routing: RouteOnly, Gossip: w.gossip(first)}})

	user, password := w.srv.Node()
	args = append(args, "-nats", w.srv.URL(), "-user", user, "-level", "lazy", "-store", t.TempDir(),
		"-gossip", w.at(), "-join", first, "-gossip-key-file", keyFile)
	node := exec.CommandContext(t.Context(), must.Get(os.Executable())(t), args...)
	node.Env = append(os.Environ(), asNode+"="+workflows, "NATS_PASSWORD="+password)
	must.Do(t, node.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = node.Wait() // it is killed
	}()
	t.Cleanup(func() {
		_ = node.Process.Kill() // if the test failed before
		<-ended
	})
	w.kill = func(t *testing.T) { t.Helper(); must.Do(t, node.Process.Kill()) }
	return w
}

// client returns a client once a workflow is on offer.
func (w *victim) client(t *testing.T, workflow string) *client.Client {
	t.Helper()
	c := must.Get(w.router.Client(t.Context()))(t)
	t.Cleanup(func() { must.Report(t, c.Close()) })
	for offered := false; !offered; time.Sleep(10 * time.Millisecond) {
		offered = slices.ContainsFunc(must.Get(c.Workflows(t.Context()))(t), func(w messages.Workflow) bool { return w.Name == workflow })
	}
	return c
}

// noted returns the lines that runs have added to the ledger.
func (w *victim) noted(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(w.ledger)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}

// TestStarterKilled kills a node, with kill -9, while a run starts others. Another node
// continues: each is started once.
func TestStarterKilled(t *testing.T) {
	w := newVictim(t, "starts")
	c := w.client(t, "loop")
	must.Get(c.Submit(t.Context(), "loop", messages.Task{ID: "loop-1"}))(t)
	for {
		if i, err := c.Runs.Get(t.Context(), "loop-1"); err == nil && len(i.Starts) >= 10 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	w.kill(t)
	member(t, w.srv, Options{Fleet: Fleet{Gossip: w.gossip(w.at())}, Workflows: looping()})
	r := must.Get(c.Wait(t.Context(), "loop-1"))(t)
	if r.State != run.Succeeded || r.Output != strconv.Itoa(loopStarts) {
		t.Errorf("the starter: %+v", r)
	}
	ids := map[string]bool{}
	for id := range strings.FieldsSeq(w.noted(t)) {
		ids[id] = true
	}
	if len(ids) != loopStarts {
		t.Errorf("%d runs were started, want %d", len(ids), loopStarts)
	}
}

// TestLimitHolderKilled kills a node, with kill -9, while its runs hold the grants of their
// keys and others wait. Another node continues: of each key one run at a time.
func TestLimitHolderKilled(t *testing.T) {
	const keys, runs = 4, 8
	w := newVictim(t, "limits")
	c := w.client(t, "bill")
	id := func(key, n int) run.ID { return run.ID(fmt.Sprintf("bill-%d-%d", key, n)) }
	for n := range runs {
		for key := range keys {
			must.Get(c.Submit(t.Context(), "bill", messages.Task{ID: id(key, n), Tags: run.Tags{"customer": fmt.Sprint("c", key)}}))(t)
		}
	}
	for strings.Count(w.noted(t), "end ") < runs {
		time.Sleep(time.Millisecond)
	}
	w.kill(t)
	member(t, w.srv, Options{Fleet: Fleet{Gossip: w.gossip(w.at())}, Workflows: limited()})
	for n := range runs {
		for key := range keys {
			if r := must.Get(c.Wait(t.Context(), id(key, n)))(t); r.State != run.Succeeded {
				t.Errorf("%+v", r)
			}
		}
	}
	holds := map[string]string{} // by key
	for line := range strings.Lines(w.noted(t)) {
		what, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		key := id[:len("bill-0")]
		switch {
		case what == "begin" && holds[key] != "" && holds[key] != id:
			t.Errorf("%s began while %s had its key", id, holds[key])
		case what == "begin":
			holds[key] = id
		case holds[key] == id:
			holds[key] = ""
		}
	}
}

// TestWaitingForEventsKilled kills a node, with kill -9, while its runs wait for events and
// events come. Another node continues: each run gets each event once, in order.
func TestWaitingForEventsKilled(t *testing.T) {
	const runs, events = 6, 8
	w := newVictim(t, "events")
	c := w.client(t, "pay")
	id := func(n int) run.ID { return run.ID(fmt.Sprint("pay-", n)) }
	for n := range runs {
		paying(t, c, id(n), events)
	}
	var want []string
	for n := range events {
		if n == events/2 {
			for i := range runs { // all have begun
				for must.Get(c.Runs.Get(t.Context(), id(i)))(t).Attempt < 3 {
					time.Sleep(time.Millisecond)
				}
			}
			w.kill(t)
		}
		must.Do(t, c.Publish(t.Context(), "invoice.paid", "4711", messages.Control{Value: json.RawMessage(fmt.Sprint(n)), ID: fmt.Sprint("e", n)}))
		want = append(want, fmt.Sprint(" ", n))
	}
	member(t, w.srv, Options{Fleet: Fleet{Gossip: w.gossip(w.at())}, Workflows: payments()})
	for n := range runs {
		if r := must.Get(c.Wait(t.Context(), id(n)))(t); r.State != run.Succeeded || r.Output != strings.Join(want, "") {
			t.Errorf("run %d: %s %s %q, want %q", n, r.State, r.Error, r.Output, want)
		}
	}
}
