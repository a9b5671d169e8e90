//go:build unix

package node

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// TestAgentFilesKilled kills the node, with kill -9, on which an agent began. Two agents in
// files that it called, on three nodes, have each changed a file by then. Both changes are
// merged, each agent's call is paid for once, and a rule asks before the push.
func TestAgentFilesKilled(t *testing.T) {
	team, dir, rules := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "rules.yaml")
	for file, text := range map[string]string{
		filepath.Join(team, "writer.md"): "---\nname: writer\ndescription: Writes.\ntools: Write\n---\nYou write.",
		filepath.Join(team, "tester.md"): "---\nname: tester\ndescription: Tests.\ntools: Write\n---\nYou test.",
		filepath.Join(dir, "old.txt"):    "old\n",
		rules:                            "otherwise: allow\nrules:\n  - {verdict: ask, command: [\"git push *\"]}\n",
	} {
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	}
	model := scriptOf(t, "agentteam.txtar", nil)
	var mu sync.Mutex
	asked := map[string]int{} // by agent and number of results
	begun, survivors, arrived, killed := make(chan struct{}), make(chan struct{}), make(chan string, 10), make(chan struct{})
	hold := func(r *http.Request, until chan struct{}) {
		select {
		case <-until:
		case <-r.Context().Done():
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		who := ""
		for _, name := range []string{"do all", "write it", "test it"} {
			if strings.Contains(string(body), `"content":"`+name+`"`) {
				who = name
			}
		}
		results := strings.Count(string(body), `"role":"tool"`)
		mu.Lock()
		key := who + strings.Repeat("+", results)
		asked[key]++
		n := asked[key]
		mu.Unlock()
		switch {
		case key == "do all" && n == 1:
			close(begun)
			hold(r, survivors)
		case results == 1 && who != "do all":
			arrived <- who
			hold(r, killed)
		}
		model.ServeHTTP(w, r)
	}))
	defer server.Close()
	t.Setenv(openai.EnvBase, server.URL+"/v1")
	t.Setenv(openai.EnvKey, "none")

	w := newVictim(t, "none", "-agents", team, "-rules", rules, "-model", "scripted", "-unsafe")
	c := w.client(t, "writer")
	head := must.Get(workspace.Snapshot(t.Context(), w.router.Blobs(session.DefaultTenant), dir, blob.Digest{}, workspace.Limits{}))(t).String()
	must.Get(c.Submit(t.Context(), "agent", messages.Task{ID: "team", Workspace: head, Input: []byte(`{"prompt":"do all","agents":["writer","tester"]}`)}))(t)
	<-begun
	for range 2 {
		member(t, w.srv, Options{Fleet: Fleet{Gossip: w.gossip(w.at())}, Env: os.Getenv, Models: Models{Default: "scripted"}, Agents: team, Rules: rules, Sandbox: Sandbox{Unsafe: true}})
	}
	close(survivors)
	for both := map[string]bool{}; len(both) < 2; {
		both[<-arrived] = true
	}
	w.kill(t)
	close(killed)
	for {
		qs := must.Get(c.Questions.List(t.Context()))(t)
		if len(qs) == 1 {
			if call, err := c.Questions.Call(t.Context(), qs[0]); err != nil || !strings.Contains(call.Args, "git push origin") {
				t.Fatalf("asked about %+v, %v", call, err)
			}
			must.Do(t, c.Questions.Approve(t.Context(), "team", messages.Control{Step: qs[0].Step}))
			break
		}
		if r, err := c.Runs.Result(t.Context(), "team"); err == nil {
			t.Fatalf("it ended without a question: %+v", r)
		}
		time.Sleep(10 * time.Millisecond)
	}
	r, err := c.Wait(t.Context(), "team")
	if err != nil || r.State != run.Succeeded || r.Output != "pushed" {
		t.Fatalf("%+v, %v", r, err)
	}
	s := must.Get(c.Sessions.Get(t.Context(), string(r.Session)))(t)
	merged := filepath.Join(t.TempDir(), "files")
	must.Do(t, workspace.Restore(t.Context(), w.router.Blobs(session.DefaultTenant), s.Placement.Head, merged))
	for file, want := range map[string]string{"a.txt": "written\n", "b.txt": "tested\n", "old.txt": "old\n"} {
		if text, err := os.ReadFile(filepath.Join(merged, file)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", file, text, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for key, most := range map[string]int{"do all": 1, "write it": 1, "test it": 1, "do all++": 1, "do all++++": 1, "write it+": 2, "test it+": 2} {
		if n := asked[key]; n < 1 || n > most { // the requests that were cut off are repeated
			t.Errorf("%q was asked %d times, at most %d are allowed: %v", key, n, most, asked)
		}
	}
}
