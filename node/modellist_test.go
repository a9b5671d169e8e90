package node

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestModelList: a task names a model of the node's list, its key and its prices come
// from the list, and a budget of money holds. A task whose budget could not be kept is
// rejected before it begins, and so is a name that the list does not have.
func TestModelList(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		body, err := io.ReadAll(r.Body)
		var in struct{ Model string }
		if err != nil || json.Unmarshal(body, &in) != nil || in.Model != "example-mini" || r.Header.Get("Authorization") != "Bearer sk-of-the-test" {
			http.Error(w, `{"error":{"message":"who is this?"}}`, http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\ndata: %s\n\ndata: [DONE]\n\n",
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"list_workspace_files","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`,
			`{"choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":100}}`)
	}))
	defer server.Close()
	dir := t.TempDir()
	list := filepath.Join(dir, "models.yaml")
	text := "default: fast\nmodels:\n  fast: {id: example-mini, url: " + server.URL + "/v1, key: file:key, prices: {date: 2026-11-01, input: 0.25, output: 2}}\n" +
		"  unpriced: {id: example-mini, url: " + server.URL + "/v1, key: file:key}\n" +
		"  locked: {url: " + server.URL + "/v1, key: file:no/such/key, free: true}\n"
	for name, text := range map[string]string{list: text, filepath.Join(dir, "key"): "sk-of-the-test\n"} {
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
	}
	n := must.Get(Start(t.Context(), &Options{Store: filepath.Join(dir, "store"), NATS: NATS{Level: "lazy"}, Models: Models{List: list}}))(t)
	defer n.Close()
	c := must.Get(n.Client(t.Context()))(t)
	defer c.Close()
	for _, tt := range []struct {
		name    string
		task    messages.Task
		code    run.Code
		says    string
		asked   int64
		dollars int64
	}{
		{"the budget holds", messages.Task{Budget: messages.Budget{MicroUSD: 1000}}, run.CodeBudget, "1350 of 1000 micro-USD used", 3, 1350},
		{"nothing says the cost", messages.Task{Model: "unpriced", Budget: messages.Budget{MicroUSD: 1000}}, run.CodeMalformed, "budget.micro_usd: the cost of calls of model unpriced is unknown", 0, 0},
		{"no such model", messages.Task{Model: "fsat"}, run.CodeMalformed, `field model: there is no model "fsat" in the list of models models.yaml; name one of fast, unpriced, locked`, 0, 0},
		{"no key", messages.Task{Model: "locked"}, run.Code(llm.CodeNoKey), "llm: no_key: the file key, which models.yaml names for the key, cannot be read where this node runs: no such file", 0, 0},
	} {
		asked.Store(0)
		tt.task.Input = json.RawMessage(`"go"`)
		r, err := c.Do(t.Context(), "agent", tt.task, nil)
		if err != nil || r.State != run.Failed || r.Code != tt.code || !strings.Contains(r.Error, tt.says) {
			t.Errorf("%s: %+v, %v; want %s and %q", tt.name, r, err, tt.code, tt.says)
			continue
		}
		if strings.Contains(r.Error, dir) {
			t.Errorf("%s: a client is told where the node's files are: %s", tt.name, r.Error)
		}
		if asked.Load() != tt.asked || r.Usage.MicroUSD != tt.dollars {
			t.Errorf("%s: %d requests cost %d; want %d, %d", tt.name, asked.Load(), r.Usage.MicroUSD, tt.asked, tt.dollars)
		}
	}
}

// TestModelListRetries: the list sets how often a model is asked for one answer.
func TestModelListRetries(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.Error(w, `{"error":{"message":"come again"}}`, http.StatusServiceUnavailable)
	}))
	defer server.Close()
	dir := t.TempDir()
	list := filepath.Join(dir, "models.yaml")
	text := "retries: {attempts: 3, pause: 10ms}\nmodels:\n  a: {url: " + server.URL + "/v1, free: true}\n  b: {url: " + server.URL + "/v1, free: true, retries: {attempts: 1}}\n"
	must.Do(t, os.WriteFile(list, []byte(text), 0o600))
	n := must.Get(Start(t.Context(), &Options{Store: filepath.Join(dir, "store"), NATS: NATS{Level: "lazy"}, Models: Models{List: list}}))(t)
	defer n.Close()
	c := must.Get(n.Client(t.Context()))(t)
	defer c.Close()
	for model, want := range map[string]int64{"a": 3, "b": 1} {
		asked.Store(0)
		r, err := c.Do(t.Context(), "agent", messages.Task{Model: model, Input: json.RawMessage(`"go"`)}, nil)
		if err != nil || r.State != run.Failed || asked.Load() != want {
			t.Errorf("model %s: %d requests, want %d; %+v, %v", model, asked.Load(), want, r, err)
		}
	}
}

// TestModelListIsChecked: a node with a wrong list does not start.
func TestModelListIsChecked(t *testing.T) {
	list := filepath.Join(t.TempDir(), "models.yaml")
	must.Do(t, os.WriteFile(list, []byte("models:\n  a: {prize: 1}\n"), 0o600))
	n, err := Start(t.Context(), &Options{Store: t.TempDir(), NATS: NATS{Level: "lazy"}, Models: Models{List: list}})
	if err == nil {
		n.Close()
	}
	if err == nil || !strings.Contains(err.Error(), `models.yaml:2: model a: unknown field "prize"`) {
		t.Errorf("%v", err)
	}
}
