//go:build e2e && linux

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// mockModule answers by the protocols of several providers, and is written by others.
const mockModule = "@copilotkit/aimock@1.43.0"

const mockFixtures = `{"fixtures": [
	{"match": {"userMessage": "look", "hasToolResult": false}, "response": {"reasoning": "I should look.", "content": "Let me see.", "toolCalls": [{"name": "list_workspace_files", "arguments": "{}"}]}},
	{"match": {"userMessage": "look", "hasToolResult": true}, "response": {"reasoning": "A note.", "content": "There is a note 🙂."}},
	{"match": {"userMessage": "Say ok.", "model": "broken"}, "response": {"content": "This answer does not come to its end."}, "chunkSize": 4, "latency": 20, "truncateAfterChunks": 6},
	{"match": {"userMessage": "Say ok."}, "response": {"content": "ok"}}
]}`

// startMock starts the mock until the test ends, and returns its address.
func startMock(t *testing.T) string {
	t.Helper()
	d := newDesk(t)
	installModules(t, d.dir, d.env, mockModule)
	d.file("fixtures.json", mockFixtures)
	port := natstest.FreePort(t)
	mock := d.begin(exec.Command(filepath.Join(d.dir, "node_modules/.bin/llmock"), "-p", fmt.Sprint(port), "-f", "fixtures.json", "--strict"))
	t.Cleanup(func() { mock.signal(syscall.SIGKILL) })
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	mock.until("mock", func() bool {
		resp, err := http.Get(url + "/v1/models")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	return url
}

// recorder passes requests on, and keeps their bodies by path.
type recorder struct {
	*httptest.Server
	mu    sync.Mutex
	asked map[string][]string
}

func record(t *testing.T, target string) *recorder {
	t.Helper()
	to := must.Get(url.Parse(target))(t)
	r := &recorder{asked: map[string][]string{}}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // an answer that breaks off is meant to
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		must.Report(t, err)
		r.mu.Lock()
		r.asked[req.URL.Path] = append(r.asked[req.URL.Path], string(body))
		r.mu.Unlock()
		req.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(r.Close)
	return r
}

// bodies returns the bodies of the requests at a path so far.
func (r *recorder) bodies(path string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked[path])
}

// TestMock asks a mock of others over each protocol: a run with a call of a tool and
// thoughts before it, a word from each model, and an answer that breaks off.
func TestMock(t *testing.T) {
	t.Parallel()
	mock := record(t, startMock(t))
	d := newDesk(t, "RATH_MODELS=models.yaml", "KEY=sk-mock")
	var list strings.Builder
	list.WriteString("models:\n")
	for name, m := range map[string][2]string{"chat": {"openai", "o3"}, "new": {"openai-responses", "o3"}, "claude": {"anthropic", "claude-sonnet-4-5"}} {
		for name, id := range map[string]string{name: m[1], name + "-broken": "broken"} {
			fmt.Fprintf(&list, "  %s: {kind: %s, url: %s/v1, key: env:KEY, id: %s, free: true}\n", name, m[0], mock.URL, id)
		}
	}
	d.file("models.yaml", list.String())
	d.file("note.txt", "hello")
	for name, path := range map[string]string{"chat": "/v1/chat/completions", "new": "/v1/responses", "claude": "/v1/messages"} {
		o := d.rath("run", "-C", ".", "--model", name, "-m", "look")
		o.want(t, 0, "There is a note 🙂.")
		asked := mock.bodies(path)
		if len(asked) != 2 {
			t.Errorf("%s: %d requests at %s: %v", name, len(asked), path, o)
			continue
		}
		if !strings.Contains(asked[1], "note.txt") {
			t.Errorf("%s: the tool's result is not there: %s", name, asked[1])
		}
		if name == "claude" && !strings.Contains(asked[1], `"signature":"aimock-placeholder-signature"`) {
			t.Errorf("the thought did not go back: %s", asked[1])
		}
	}
	o := d.rath("models", "test")
	o.want(t, 1)
	if strings.Count(o.stdout, "answers in") != 3 || strings.Count(o.stdout, "the answer broke off") != 3 {
		t.Errorf("%v", o)
	}
}
