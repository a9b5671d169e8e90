package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestLimitsOfTheFleet: three nodes together ask a model, and models of one key, no
// more often than their list allows, per minute and concurrently. A run that waits for
// that reports it, and ends when it is cancelled; if the list names another model, the
// nodes ask that one.
func TestLimitsOfTheFleet(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked, release := map[string]int{}, make(chan struct{}, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Model string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		asked[in.Model]++
		mu.Unlock()
		if in.Model == "e" {
			<-release
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"choices":[{"delta":{"content":"yes"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	defer server.Close()
	count := func(model string) int {
		mu.Lock()
		defer mu.Unlock()
		return asked[model]
	}
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	var nodes []*Instance
	for range 3 {
		list := filepath.Join(t.TempDir(), "models.yaml") // the key is in another directory for each
		text := "models:\n  a: {url: URL, key: file:key, limits: {requests: 3}}\n  b: {url: URL, key: file:key}\n" +
			"  c: {url: URL, key: file:key, fallbacks: [d]}\n  d: {url: URL}\n  e: {url: URL, limits: {concurrency: 1}}\nkeys:\n  file:key: {limits: {requests: 4}}\n"
		for name, text := range map[string]string{list: strings.ReplaceAll(text, "URL", server.URL+"/v1"), filepath.Join(filepath.Dir(list), "key"): "sk-of-the-test"} {
			must.Do(t, os.WriteFile(name, []byte(text), 0o600))
		}
		nodes = append(nodes, member(t, srv, Options{Models: Models{List: list}, Slots: 2}))
	}
	cl, err := nodes[0].Client(t.Context())
	must.Do(t, err)
	defer cl.Close()
	submit := func(model string) run.ID {
		id := must.Get(cl.Submit(t.Context(), "agent", messages.Task{Model: model, Input: json.RawMessage(`"Do you hear me?"`)}))(t)
		return id
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(soon); !holds(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: asked %v", what, asked)
			}
		}
	}
	waits := func(ids []run.ID) (n int) {
		for _, id := range ids {
			if l, err := cl.Runs.Live(t.Context(), id); err == nil && len(l.Steps) == 1 && l.Steps[0].Doing == "waits" {
				n++
			}
		}
		return n
	}
	var ofA, ofB []run.ID
	for range 5 {
		ofA = append(ofA, submit("a"))
	}
	until("two runs wait for the limit of the model", func() bool { return count("a") == 3 && waits(ofA) == 2 })
	for range 2 {
		ofB = append(ofB, submit("b"))
	}
	until("a run waits for the limit of the key", func() bool { return count("b") == 1 && waits(ofB) == 1 })
	r, err := cl.Do(t.Context(), "agent", messages.Task{Model: "c", Input: json.RawMessage(`"And you?"`)}, nil)
	if err != nil || r.State != run.Succeeded || count("c") != 0 || count("d") != 1 {
		t.Errorf("with another model: %+v, %v; asked %v", r, err, asked)
	}
	for _, id := range append(ofA, ofB...) {
		_ = cl.Runs.Cancel(t.Context(), id, messages.Control{By: "test", Reason: "enough"}) // runs that have ended reject it
		if r, err := cl.Wait(t.Context(), id); err != nil || r.State != run.Succeeded && r.State != run.Cancelled {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
	}
	ofE := []run.ID{submit("e"), submit("e")}
	until("a run waits for the call of another one", func() bool { return count("e") == 1 && waits(ofE) == 1 })
	release <- struct{}{}
	until("it ended", func() bool { return count("e") == 2 })
	release <- struct{}{}
	for _, id := range ofE {
		if r, err := cl.Wait(t.Context(), id); err != nil || r.State != run.Succeeded {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
	}
	if count("a") != 3 || count("b") != 1 {
		t.Errorf("asked %v", asked)
	}
}
