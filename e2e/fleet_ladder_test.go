//go:build e2e && linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/examples"
	"github.com/rathcluster/rath/examples/ladder"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/fleet"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
)

func init() {
	children["ladder-node"] = func() error {
		var offered []flow.Registration
		for _, r := range examples.Ladder() {
			offered = append(offered, r.Registration())
		}
		node.Main(offered...)
		return nil
	}
	children["ladder-server"] = func() error {
		ladder.Child(examples.Ladder()...)
		return fmt.Errorf("no example has the server %q", os.Args[1:])
	}
}

// ladderMost bounds the total time of all examples.
const ladderMost = 4 * time.Minute

// TestFleetLadder runs all examples on a fleet of three nodes concurrently. Each is held in
// the middle, at a model call. Then the nodes are killed with -9 one after the other, and
// their runs resume elsewhere. Every example has the same outcome as in one process.
func TestFleetLadder(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), ladderMost)
	defer cancel()
	dir, all := t.TempDir(), examples.Ladder()
	f := must.Get(fleet.Start(ctx, &fleet.Options{Dir: dir, Servers: 1}))(t)
	t.Cleanup(func() { must.Report(t, f.Close()) })
	models := newLadderModels(t, f.Self(), all)
	list := must.Get(ladder.Servers(dir, []string{"/usr/bin/env", childEnv + "=ladder-server"}, all...))(t)
	self := must.Get(os.Executable())(t)
	must.Do(t, f.AddNodes(ctx, 3, fleet.Program{
		Path: self, Args: []string{"-mcp", list},
		Env: []string{childEnv + "=ladder-node", openai.EnvKey + "=none", "OPENAI_BASE_URL=" + models.url},
	}))
	user, password := f.OperatorLogin()
	c := must.Get(client.Connect(ctx, f.URLs(0), &client.Options{User: user, Password: password}))(t)
	t.Cleanup(func() { must.Report(t, c.Close()) })

	type outcome struct {
		story string
		err   error
	}
	ends := map[string]chan outcome{}
	for _, r := range all {
		end := make(chan outcome, 1)
		ends[r.Dir] = end
		go func() {
			story, err := r.Submit(ctx, c, run.ID(r.Dir), "", nil)
			end <- outcome{story, err}
		}()
	}
	held := map[string][]ladder.Rung{} // by the address of the node
	for _, r := range all {
		select {
		case ip := <-models.at[r.Dir]:
			held[ip] = append(held[ip], r)
		case end := <-ends[r.Dir]:
			t.Fatalf("%s ends before its middle: %v", r.Dir, end.err)
		case <-ctx.Done():
			t.Fatalf("%s does not come to its middle", r.Dir)
		}
	}
	for _, p := range f.Nodes() {
		must.Do(t, p.Kill())
		for _, r := range held[p.IP()] {
			got := <-ends[r.Dir]
			if got.err != nil {
				t.Errorf("%s: %v", r.Dir, got.err)
				continue
			}
			if !strings.Contains(got.story, "resumes, attempt") {
				t.Errorf("%s was not interrupted:\n%s", r.Dir, got.story)
			}
			if diff := cmp.Diff(ladderGolden(t, r), ladder.Plain(got.story)); diff != "" {
				t.Errorf("%s comes to something else than in one process (-want +got):\n%s", r.Dir, diff)
			}
		}
		t.Logf("%s was killed in the middle of %d examples", p.Name, len(held[p.IP()]))
		must.Do(t, p.Start())
		must.Do(t, p.Up(ctx))
		delete(held, p.IP())
	}
	if len(held) > 0 {
		t.Errorf("requests came from elsewhere: %v", held)
	}
}

// ladderGolden returns the outcome of an example in one process.
func ladderGolden(t *testing.T, r ladder.Rung) string {
	t.Helper()
	data := must.Get(os.ReadFile(filepath.Join("..", "examples", "testdata", r.Dir+".txt")))(t)
	return string(data)
}

var ladderCalls = regexp.MustCompile(`succeeded, ([0-9]+) model calls?`)

// ladderModels is the model server of the examples, which holds each of them at the call in
// its middle.
type ladderModels struct {
	url     string
	scripts ladder.Scripts
	of      map[string]string      // examples by the names of models
	middle  map[string]int         // the call that is held, by example
	at      map[string]chan string // gets the address of the node that makes it

	mu   sync.Mutex
	seen map[string]int
}

func newLadderModels(t *testing.T, ip string, all []ladder.Rung) *ladderModels {
	t.Helper()
	scripts := must.Get(ladder.Models(all...))(t)
	m := &ladderModels{scripts: scripts, of: map[string]string{}, middle: map[string]int{}, at: map[string]chan string{}, seen: map[string]int{}}
	for _, r := range all {
		for _, name := range r.Answers() {
			m.of[name] = r.Dir
		}
		calls := ladderCalls.FindAllStringSubmatch(ladderGolden(t, r), -1)
		if len(calls) == 0 {
			t.Fatalf("%s makes no model call to be killed at", r.Dir)
		}
		n := must.Get(strconv.Atoi(calls[len(calls)-1][1]))(t) // the last line is about the whole run
		m.middle[r.Dir], m.at[r.Dir] = (n+1)/2, make(chan string, 1)
	}
	l := must.Get(net.Listen("tcp", net.JoinHostPort(ip, "0")))(t)
	m.url = fmt.Sprintf("http://%s/v1", l.Addr())
	server := &http.Server{Handler: m, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { must.Report(t, server.Close()) })
	return m
}

// ServeHTTP answers by the script of the example. The call in the middle gets no answer: it
// ends with the node that made it.
func (m *ladderModels) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request struct {
		Model string `json:"model"`
	}
	if err == nil {
		err = json.Unmarshal(body, &request)
	}
	script := m.scripts[request.Model]
	if err != nil || script == nil {
		http.Error(w, fmt.Sprintf("model %q: %v", request.Model, err), http.StatusBadRequest)
		return
	}
	example := m.of[request.Model]
	m.mu.Lock()
	m.seen[example]++
	hold := m.seen[example] == m.middle[example]
	m.mu.Unlock()
	if hold {
		ip, _, _ := net.SplitHostPort(r.RemoteAddr)
		m.at[example] <- ip
		<-r.Context().Done()
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	script.ServeHTTP(w, r)
}
