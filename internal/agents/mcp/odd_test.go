package mcp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/agents/mcp"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// odd returns a connection to a server with a URL, of these tools, whose calls have this result.
func odd(t *testing.T, tools, result string) *mcp.Conn {
	t.Helper()
	return connect(t, at(t, func(w http.ResponseWriter, m request) {
		switch m.Method {
		case "tools/list":
			m.answer(w, `{"tools":[`+tools+`]}`)
		case "tools/call":
			m.answer(w, result)
		}
	}))
}

type request struct {
	ID      json.RawMessage
	Method  string
	session string
}

func (m request) answer(w http.ResponseWriter, result string) {
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// at returns the entry of a server that greets, and answers the rest by answer.
func at(t *testing.T, answer func(http.ResponseWriter, request)) *mcp.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := request{session: r.Header.Get("Mcp-Session-Id")}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch m.Method {
		case "initialize":
			w.Header().Set("Mcp-Session-Id", "one")
			m.answer(w, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
		case "server/discover":
			w.WriteHeader(http.StatusBadRequest)
		case "tools/list", "tools/call":
			answer(w, m)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	t.Cleanup(srv.Close)
	l := must.Get(mcp.Parse("mcp.yaml", []byte("servers:\n  s: {url: "+srv.URL+"}\n")))(t)
	return l.All()[0]
}

const ping = `{"name":"ping","inputSchema":{"type":"object"}}`

// TestOddTools converts schemas to a form that model servers accept, and omits and names
// unusable tools. The others are listed.
func TestOddTools(t *testing.T) {
	for _, tt := range []struct{ tool, name, schema, remark string }{
		{`{"name":"a","inputSchema":{"type":"object","required":["p"],"properties":{"p":{"type":"string"}},"anyOf":[{"properties":{"q":{"type":"integer"}}}]}}`, "s__a", `{"properties":{"p":{"type":"string"},"q":{"type":"integer"}},"required":["p"],"type":"object"}`, ""},
		{`{"name":"a","inputSchema":{"type":"object","properties":{"items":{"type":"array"},"b":{"type":"object","properties":{"c":{"type":"array"}}}}}}`, "s__a", `{"properties":{"b":{"properties":{"c":{"items":{},"type":"array"}},"type":"object"},"items":{"items":{},"type":"array"}},"type":"object"}`, ""},
		{`{"name":"a","inputSchema":{"properties":{"p":{"type":"string"}}}}`, "s__a", `{"properties":{"p":{"type":"string"}},"type":"object"}`, ""},
		{`{"name":"a","inputSchema":{"type":["null","object"]}}`, "s__a", `{"properties":{},"type":"object"}`, ""},
		{`{"name":"a"}`, "s__a", `{"properties":{},"type":"object"}`, ""},
		{`{"name":"` + strings.Repeat("t", 70) + `","inputSchema":{"type":"object"}}`, "s__" + strings.Repeat("t", 52) + "_" + blob.Sum([]byte(strings.Repeat("t", 70))).String()[:8], `{"properties":{},"type":"object"}`, ""},
		{`{"name":"a","inputSchema":{"type":"string"}}`, "", "", `its tool "a" is omitted: the type of its schema is "string"`},
		{`{"name":"a","inputSchema":{"type":"object","properties":{"type":"object"}}}`, "", "", `its tool "a" is omitted: schema of "s__a"`},
		{`{"name":"a","inputSchema":7}`, "", "", `its tool "a" is omitted: its schema is no object`},
		{`{"name":"a","description":{},"inputSchema":{}}`, "", "", `its tool "a" is omitted: it cannot be read`},
		{`null`, "", "", `its tool "" is omitted: it cannot be read: it is no object`},
	} {
		specs, remarks, err := odd(t, ping+","+tt.tool, "").Tools(t.Context())
		if err != nil {
			t.Errorf("%s: %v", tt.tool, err)
			continue
		}
		names := map[string]string{}
		for _, s := range specs {
			names[s.Name] = string(s.Schema)
		}
		if names["s__ping"] == "" || tt.name != "" && (names[tt.name] != tt.schema || len(remarks) > 0) ||
			tt.remark != "" && (len(specs) != 1 || len(remarks) != 1 || !strings.HasPrefix(remarks[0], tt.remark)) {
			t.Errorf("%s: %v, %q; want %s %s, %q", tt.tool, names, remarks, tt.name, tt.schema, tt.remark)
		}
	}
}

// TestOddResults: the result names a piece that cannot be read, and has the others. An
// error without a text is still an error.
func TestOddResults(t *testing.T) {
	for _, tt := range []struct {
		result, want string
		failed       bool
	}{
		{`{"content":[{"type":"hologram","rays":1},{"type":"text","text":"pong"}]}`, `{"content":[{"type":"hologram","hidden":"this client does not read content of its type"},{"type":"text","text":"pong"}]}`, false},
		{`{"content":[{"type":"image","mimeType":"image/png","data":"_-_!"},{"type":"text","text":"pong"}]}`, `{"content":[{"type":"image","hidden":"its data is no base64"},{"type":"text","text":"pong"}]}`, false},
		{`{"content":[{"type":"audio","data":"data:audio/wav;base64,-_8="},{"type":"text","text":5},7]}`, `{"content":[{"type":"audio","mime":"audio/wav","bytes":2,"blob":"` + blob.Sum([]byte{0xfb, 0xff}).String() + `"},{"type":"text","hidden":"its text is no string"},{"type":"piece","hidden":"it is no object"}]}`, false},
		{`{"content":{"type":"text","text":"one"}}`, `{"text":"one"}`, false},
		{`{"content":"word","isError":"true"}`, `{"ok":false,"text":"word"}`, true},
		{`{"content":[],"isError":true}`, `{"ok":false,"text":"the tool reported an error without a text"}`, true},
		{`{"content":[{"type":"text","text":"row 7","annotations":5,"_meta":[]}],"isError":true}`, `{"ok":false,"text":"row 7"}`, true},
	} {
		if o := call(odd(t, ping, tt.result), "s__ping", `{}`); string(o.Body) != tt.want || o.IsError != tt.failed {
			t.Errorf("%s: %s, %v; want %s", tt.result, o.Body, o.IsError, tt.want)
		}
	}
}

// TestForgotten: a server that rejects a call because it lost the session did not execute
// it; a server whose connection breaks may have.
func TestForgotten(t *testing.T) {
	for _, tt := range []struct {
		status  int
		body    string
		notMade bool
	}{
		{404, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"Session not found"}}`, true},
		{404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`, true},
		{404, ``, true},
		{400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`, true},
		{400, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"unknown session"}}`, true},
		{500, `broken`, false},
	} {
		c := connect(t, at(t, func(w http.ResponseWriter, m request) {
			if m.Method == "tools/list" {
				m.answer(w, `{"tools":[`+ping+`]}`)
				return
			}
			w.WriteHeader(tt.status)
			fmt.Fprint(w, strings.ReplaceAll(tt.body, "%s", string(m.ID)))
		}))
		_, err := c.Call(t.Context(), "s__ping", tool.Call{})
		if !errors.Is(err, session.ErrUnavailable) || errors.Is(err, tool.ErrNotMade) != tt.notMade {
			t.Errorf("%d %s: %v; want not made %v", tt.status, tt.body, err, tt.notMade)
		}
	}
}

// TestPagesEnd: a page that names a page before it as the next is the last.
func TestPagesEnd(t *testing.T) {
	c := connect(t, at(t, func(w http.ResponseWriter, m request) {
		m.answer(w, `{"tools":[`+ping+`],"nextCursor":"again"}`)
	}))
	specs, remarks, err := c.Tools(t.Context())
	if err != nil || len(specs) != 1 || len(remarks) != 0 {
		t.Errorf("%v, %q, %v", specs, remarks, err)
	}
}

// TestStart: a server's entry sets its time to start.
func TestStart(t *testing.T) {
	s := server(t, "silent", ", start_ms: 200")
	if _, err := s.Connect(t.Context(), os.Getenv, nil); err == nil || !strings.Contains(err.Error(), "did not answer in time") {
		t.Error(err)
	}
}
