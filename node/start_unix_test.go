//go:build unix

package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestStarterKilled kills a node, with kill -9, while a run starts others. Another node
// continues: each is started once.
func TestStarterKilled(t *testing.T) {
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	key := cluster.NewKey()
	keyFile, ledger := filepath.Join(t.TempDir(), "key"), filepath.Join(t.TempDir(), "ledger")
	must.Do(t, os.WriteFile(keyFile, []byte(key.Text()), 0o600))
	t.Setenv(ledgerOf, ledger)
	at := func() string { return "127.0.0.1:" + strconv.Itoa(natstest.FreePort(t)) }
	first := at()
	gossip := func(bind string) *Gossip { return &Gossip{Bind: bind, Join: []string{first}, Key: key.Text()} }
	router := member(t, srv, Options{Fleet: Fleet{Routing: RouteOnly, Gossip: gossip(first)}})

	user, password := srv.Node()
	victim := exec.CommandContext(t.Context(), must.Get(os.Executable())(t), "-nats", srv.URL(), "-user", user, "-level", "lazy", "-store", t.TempDir(),
		"-gossip", at(), "-join", first, "-gossip-key-file", keyFile)
	victim.Env = append(os.Environ(), asNode+"=starts", "NATS_PASSWORD="+password)
	must.Do(t, victim.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = victim.Wait() // it is killed
	}()
	defer func() {
		_ = victim.Process.Kill() // if the test failed before
		<-ended
	}()

	c := must.Get(router.Client(t.Context()))(t)
	defer c.Close()
	for offered := false; !offered; time.Sleep(10 * time.Millisecond) {
		offered = slices.ContainsFunc(must.Get(c.Workflows(t.Context()))(t), func(w messages.Workflow) bool { return w.Name == "loop" })
	}
	must.Get(c.Submit(t.Context(), "loop", messages.Task{ID: "loop-1"}))(t)
	for {
		if i, err := c.Runs.Get(t.Context(), "loop-1"); err == nil && len(i.Starts) >= 10 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	must.Do(t, victim.Process.Kill())
	member(t, srv, Options{Fleet: Fleet{Gossip: gossip(at())}, Workflows: looping()})
	r := must.Get(c.Wait(t.Context(), "loop-1"))(t)
	if r.State != run.Succeeded || r.Output != strconv.Itoa(loopStarts) {
		t.Errorf("the starter: %+v", r)
	}
	ids := map[string]bool{}
	for id := range strings.FieldsSeq(string(must.Get(os.ReadFile(ledger))(t))) {
		ids[id] = true
	}
	if len(ids) != loopStarts {
		t.Errorf("%d runs were started, want %d", len(ids), loopStarts)
	}
}
