package mcp_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rathcluster/rath/internal/agents/mcp"
	"github.com/rathcluster/rath/internal/testkit/mcptest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestHTTPRequests: a server that sends requests during a call, and takes no answer, is sent a
// bounded number of answers and ended, and the end of the connection waits for none of them.
func TestHTTPRequests(t *testing.T) {
	var underway, most atomic.Int64
	stop := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		must.Report(t, json.NewDecoder(r.Body).Decode(&m))
		say := func(result string) { fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result) }
		w.Header().Set("Content-Type", "application/json")
		switch m.Method {
		case "initialize":
			say(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
		case "tools/list":
			say(`{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`)
		case "tools/call":
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 10_000 {
				fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"ping\"}\n\n", i)
			}
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "": // an answer
			n := underway.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			<-stop
		case "notifications/initialized", "notifications/cancelled":
			w.WriteHeader(http.StatusAccepted)
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer srv.Close()
	defer close(stop)
	l := must.Get(mcp.Parse("mcp.yaml", []byte("servers:\n  s: {url: "+srv.URL+", call_ms: 20_000}\n")))(t)
	c := connect(t, l.All()[0])
	if err := callAndClose(t, srv.URL, c); !errors.Is(err, session.ErrUnavailable) || !strings.Contains(err.Error(), "did not take the answers to 64 of them") {
		t.Error(err)
	}
	if n := most.Load(); n == 0 || n > 64 {
		t.Errorf("%d answers were under way", n)
	}
}

// TestHTTP sends the token of the server's entry, which may change, to a server with a URL.
// No error contains the token, and no other host gets it. The effects of a call whose
// connection breaks are unknown.
func TestHTTP(t *testing.T) {
	var token atomic.Value
	token.Store("first-secret")
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			elsewhere.Add(1)
		}
	}))
	defer other.Close()
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return mcptest.New("good") }, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token.Load().(string) {
			http.Error(w, "who is this?", http.StatusUnauthorized)
			return
		}
		body, err := io.ReadAll(r.Body)
		must.Report(t, err)
		if bytes.Contains(body, []byte(`"name":"hang"`)) {
			panic(http.ErrAbortHandler) // it breaks off without an answer
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		handler.ServeHTTP(w, r)
	})
	var sent atomic.Int64 // bytes of an answer that does not end by itself
	long := func(kind string, status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			part := []byte(`{"jsonrpc":"2.0","id":1,"result":{"x":"` + strings.Repeat("x", 1<<20))
			for range 256 {
				n, err := w.Write(part)
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		}
	}
	mux.HandleFunc("/long", long("application/json; charset=utf-8", http.StatusOK))
	mux.HandleFunc("/failing", long("text/event-stream", http.StatusBadRequest))
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	dir := t.TempDir()
	secret := func(text string) {
		t.Helper()
		must.Do(t, os.WriteFile(filepath.Join(dir, "token"), []byte(text), 0o600))
	}
	secret("first-secret\n")
	entry := func(path string) *mcp.Server {
		t.Helper()
		l := must.Get(mcp.Parse(filepath.Join(dir, "mcp.yaml"), []byte("servers:\n  s: {url: "+srv.URL+path+", token: file:token, call_ms: 10_000}\n")))(t)
		return l.All()[0]
	}

	c := connect(t, entry("/mcp"))
	if o := call(c, "s__echo", `{"text":"hi"}`); string(o.Body) != `{"text":"you said hi"}` {
		t.Errorf("%s, %v", o.Body, o.Err)
	}
	token.Store("second-secret")
	secret("second-secret")
	if o := call(c, "s__echo", `{"text":"again"}`); string(o.Body) != `{"text":"you said again"}` {
		t.Errorf("%s, %v", o.Body, o.Err)
	}
	_, err := c.Call(t.Context(), "s__hang", tool.Call{Args: json.RawMessage(`{}`)})
	if !errors.Is(err, session.ErrUnavailable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a call that broke off: %v", err)
	}

	secret("wrong-secret")
	for path, says := range map[string]string{
		"/mcp": "Unauthorized", "/away": "Temporary Redirect", "/long": "more than 16777216 bytes", "/failing": "Bad Request",
	} {
		sent.Store(0)
		c, err := entry(path).Connect(t.Context(), os.Getenv, nil)
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v; want %q", path, err, says)
		}
		// At most two requests, plus the buffers of sockets, which grow on a busy machine.
		if n := sent.Load(); n > 96<<20 {
			t.Errorf("%s: %d bytes of an answer were read", path, n)
		}
	}
	if elsewhere.Load() > 0 {
		t.Error("the token went to another host")
	}
	srv.Close()
	_, err = entry("/mcp").Connect(t.Context(), os.Getenv, nil)
	if f, ok := errors.AsType[*tool.Failure](err); !ok || f.Kind != tool.Unavailable || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a server that is gone: %v", err)
	}
}
