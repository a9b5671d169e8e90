package mcp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/agents/mcp"
	"github.com/rathcluster/rath/internal/testkit/mcptest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// peak returns a function that returns the most bytes of the heap, in megabytes, since.
func peak(t *testing.T) func() uint64 {
	read := func() uint64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
		metrics.Read(s)
		return (s[0].Value.Uint64() + s[1].Value.Uint64()) >> 20
	}
	stop, most := make(chan struct{}), make(chan uint64)
	go func() {
		var n uint64
		for {
			n = max(n, read())
			select {
			case <-stop:
				most <- n
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return func() uint64 { close(stop); return <-most }
}

// flooded returns a server with a URL that sends the message of a kind of mcptest.Floods
// without end during a call, or comments.
func flooded(t *testing.T, kind string) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
			}
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch m.Method {
		case "initialize":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}`, m.ID)
		case "tools/list":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}}`, m.ID)
		case "tools/call":
			w.Header().Set("Content-Type", "text/event-stream")
			before, after := "data: ", "\n\n"
			if kind == "comment" {
				before, after = ": ", "I am here\n\n"
			}
			_ = mcptest.Flood(w, kind, m.Params.Meta.ProgressToken, before, after)
		case "server/discover":
			w.WriteHeader(http.StatusBadRequest)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestFlood: endless unsolicited messages of a server fill no memory. The connection ends
// soon, and the call fails with a reason.
func TestFlood(t *testing.T) {
	kinds := slices.Clip(slices.Sorted(maps.Keys(mcptest.Floods)))
	for over, kinds := range map[string][]string{
		"lines": append(kinds, "loud"), "HTTP": append(kinds, "comment"), "sandbox": {"progress", "asks"},
	} {
		for _, kind := range kinds {
			t.Run(over+"/"+kind, func(t *testing.T) {
				var s *mcp.Server
				switch {
				case kind == "loud":
					s = server(t, kind, ", call_ms: 60_000")
				case over != "HTTP":
					s = server(t, "flood "+kind, ", call_ms: 60_000")
				default:
					l := must.Get(mcp.Parse("mcp.yaml", []byte("servers:\n  s: {url: "+flooded(t, kind)+", call_ms: 60_000}\n")))(t)
					s = l.All()[0]
				}
				var box sandbox.Sandbox
				if over == "sandbox" {
					l := must.Get(mcp.Parse("mcp.yaml", []byte("servers:\n  s: {command: "+mcptest.Command("flood "+kind)+", call_ms: 60_000}\n")))(t)
					s, box = l.All()[0], bare{}
				}
				c, err := s.Connect(t.Context(), os.Getenv, box)
				must.Do(t, err)
				most := peak(t)
				_, err = c.Call(t.Context(), "s__echo", tool.Call{Progress: func(string) {}})
				c.Close()
				if n := most(); n > 150 {
					t.Errorf("the flood took %d MB", n)
				}
				if !errors.Is(err, session.ErrUnavailable) || !strings.Contains(err.Error(), "MCP server s during s__echo: it ") ||
					!strings.Contains(err.Error(), "beyond the bound") && !strings.Contains(err.Error(), "did not take the answers") {
					t.Error(err)
				}
			})
		}
	}
}

// TestBusy: a server that reports its progress often is no flood.
func TestBusy(t *testing.T) {
	n := 0
	res, err := connect(t, server(t, "busy", "")).Call(t.Context(), "s__echo", tool.Call{Progress: func(string) { n++ }})
	if err != nil || n == 0 {
		t.Errorf("%v, %v, and %d reports", res.Body, err, n)
	}
}
