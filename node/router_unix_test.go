//go:build unix

package node

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestRouterKilled kills a router while it asks for the second choice of a run. Another
// one continues: earlier choices and results are not requested again.
func TestRouterKilled(t *testing.T) {
	t.Parallel()
	model := newWitnessed(t, "auto.txtar")
	asking, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the router was killed
		}
		if bytes.Contains(body, []byte("Reads a draft")) && bytes.Contains(body, []byte("A draft of the note")) {
			first := false
			once.Do(func() { first = true })
			if first {
				close(asking)
				select {
				case <-free:
				case <-r.Context().Done():
				}
				return // the caller has ended
			}
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		model.ServeHTTP(w, r)
	}))
	defer server.Close()
	defer close(free)

	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	key := cluster.NewKey()
	keyFile := filepath.Join(t.TempDir(), "key")
	must.Do(t, os.WriteFile(keyFile, []byte(key.Text()), 0o600))
	at := func() string { return "127.0.0.1:" + strconv.Itoa(natstest.FreePort(t)) }
	first := at()
	env := func(name string) string {
		return map[string]string{openai.EnvBase: server.URL + "/v1", openai.EnvKey: "none"}[name]
	}
	gossip := func(bind string) *Gossip { return &Gossip{Bind: bind, Join: []string{first}, Key: key.Text()} }
	worker := member(t, srv, Options{Fleet: Fleet{Pool: "writing", Routing: RouteElsewhere, Gossip: gossip(first)}, Env: env, Models: Models{Default: "scripted"}, Workflows: writers()})

	exe, err := os.Executable()
	must.Do(t, err)
	user, password := srv.Node()
	said := new(bytes.Buffer)
	victim := exec.CommandContext(t.Context(), exe, "-nats", srv.URL(), "-user", user, "-level", "lazy", "-store", t.TempDir(),
		"-gossip", at(), "-join", first, "-gossip-key-file", keyFile, "-model", "scripted")
	victim.Env = append(os.Environ(), asNode+"=router", "NATS_PASSWORD="+password, openai.EnvBase+"="+server.URL+"/v1", openai.EnvKey+"=none")
	victim.Stderr = said
	must.Do(t, victim.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = victim.Wait() // it is killed
		if t.Failed() {
			t.Logf("the router that was killed said:\n%s", said.Bytes())
		}
	}()
	defer func() {
		_ = victim.Process.Kill() // if the test failed before
		<-ended
	}()

	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	c, err := worker.Client(t.Context())
	must.Do(t, err)
	defer c.Close()
	for offered := false; !offered; time.Sleep(10 * time.Millisecond) {
		on := must.Get(c.Workflows(ctx))(t)
		offered = slices.ContainsFunc(on, func(w messages.Workflow) bool { return w.Name == "auto" })
	}
	must.Get(c.Submit(ctx, "auto", messages.Task{ID: "auto-1", Input: json.RawMessage(autoInput)}))(t)
	early := make(chan messages.Result, 1)
	waiting, stop := context.WithTimeout(ctx, soon)
	defer stop()
	go func() {
		r, _ := c.Wait(waiting, "auto-1") // no result: it has not ended
		early <- r
	}()
	select {
	case <-asking:
	case r := <-early:
		t.Fatalf("the router did not come to its second choice: %+v; the model was asked %v", r, model.asked(t))
	}
	survivor := member(t, srv, Options{Fleet: Fleet{Routing: RouteOnly, Gossip: gossip(at())}, Env: env, Models: Models{Default: "scripted"}})
	must.Do(t, victim.Process.Kill())
	r, err := c.Wait(ctx, "auto-1")
	if err != nil || r.State != run.Succeeded || r.Output != "The draft is fine." {
		t.Fatalf("%+v, %v", r, err)
	}
	got := model.asked(t)
	for rule, n := range map[string]int{"first": 1, "second": 1, "done": 1, "write": 1, "review": 1} {
		if got[rule] != n {
			t.Errorf("rule %s answered %d times, want %d", rule, got[rule], n)
		}
	}
	var claims []string
	for e := range events(t, worker, r.Session) {
		if claim, err := journal.Decode[journal.Claimed](e); e.Kind == journal.KindClaimed && err == nil {
			claims = append(claims, claim.Incarnation)
		}
	}
	n := len(claims)
	if n < 3 || claims[0] != claims[1] || claims[n-1] != survivor.Incarnation() || claims[0] == claims[n-1] {
		t.Errorf("auto was claimed by %v, the survivor is %s", claims, survivor.Incarnation())
	}
}
