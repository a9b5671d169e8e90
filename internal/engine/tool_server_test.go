package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/engine/toolserver"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// toolServer is a server that can differ at each start.
type toolServer struct {
	starts int
	warned []string
	specs  func(start int) []tool.Spec
	call   func(start int) (tool.Result, error)
}

func (s *toolServer) Sandboxed() bool { return false }

func (s *toolServer) Connect(context.Context, sandbox.Sandbox) (toolserver.Conn, error) {
	s.starts++
	return &toolConn{s, s.starts}, nil
}

type toolConn struct {
	s  *toolServer
	at int
}

func (c *toolConn) Tools(context.Context) ([]tool.Spec, []string, error) {
	return c.s.specs(c.at), nil, nil
}
func (c *toolConn) Close() error { return nil }

func (c *toolConn) Call(context.Context, string, tool.Call) (tool.Result, error) {
	return c.s.call(c.at)
}

// serve runs an agent that calls the tool of a server calls times, and returns the result
// of each call.
func serve(t *testing.T, s *toolServer, calls int, pause time.Duration) (results []string) {
	t.Helper()
	s.warned = nil
	made := 0
	rt := &inprocess.Runtime{Runtime: engine.Runtime{
		OnWarning: func(_ run.ID, text string) { s.warned = append(s.warned, text) },
		Servers:   func(string) (toolserver.Server, error) { return s, nil },
		Models: client(func(_ context.Context, r *llm.Request) (*llm.Response, error) {
			time.Sleep(pause)
			if made++; made > calls {
				return &llm.Response{Text: "done", Finish: llm.FinishStop}, nil
			}
			return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: fmt.Sprint("c", made), Name: "s__act", Args: "{}"}}}, nil
		}),
	}}
	v := must(rt.Run(t.Context(), &flow.Agent{Name: "a", MCP: []string{"s"}}, session.New(session.UserText("go"))))
	for _, c := range v.Chunks() {
		if c.Kind() == session.ToolResult {
			results = append(results, c.Text())
		}
	}
	return results
}

func act(schema string, e tool.Effect) []tool.Spec {
	return []tool.Spec{{Name: "s__act", Effect: e, Schema: json.RawMessage(schema)}}
}

// TestServerIsNotStartedForEver: a server that dies in each call is started a limited
// number of times in a minute, and again in the next one.
func TestServerIsNotStartedForEver(t *testing.T) {
	const most, tries = 12, 3
	for pause, want := range map[time.Duration]int{0: most, 40 * time.Second: 1 + tries*10 - 1} {
		synctest.Test(t, func(t *testing.T) {
			s := &toolServer{
				specs: func(int) []tool.Spec { return act(`{"type":"object"}`, tool.Idempotent) },
				call: func(int) (tool.Result, error) {
					return tool.Result{}, fmt.Errorf("%w: it exited with code 3", session.ErrUnavailable)
				},
			}
			results := serve(t, s, 10, pause)
			if s.starts != want {
				t.Errorf("with a pause of %v it was started %d times, want %d", pause, s.starts, want)
			}
			if last := results[len(results)-1]; strings.Contains(last, "was started 12 times within a minute") != (pause == 0) {
				t.Errorf("with a pause of %v the last call came to %s", pause, last)
			}
		})
	}
}

// TestServerChanges: a tool whose arguments changed in a restart since the run found it
// is not called; a schema that differs only in order is the same.
func TestServerChanges(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"string"}}}`
	for name, tt := range map[string]struct {
		then []tool.Spec
		says string
	}{
		"the same":        {act(`{"type":"object","properties":{"a":{"type":"string"}}}`, tool.Idempotent), "called"},
		"another order":   {act(`{"properties": {"a": {"type": "string"}}, "type": "object"}`, tool.Idempotent), "called"},
		"other arguments": {act(`{"type":"object","properties":{"b":{"type":"string"}}}`, tool.Idempotent), "has other arguments than when this run found it"},
		"another effect":  {act(schema, tool.NonIdempotent), "has another effect than"},
		"gone":            {nil, "called"}, // the connection reports it
	} {
		calls := 0
		s := &toolServer{
			specs: func(start int) []tool.Spec {
				if start == 1 {
					return act(schema, tool.Idempotent)
				}
				return tt.then
			},
			call: func(start int) (tool.Result, error) {
				if start == 1 {
					return tool.Result{}, fmt.Errorf("%w: it exited", session.ErrUnavailable)
				}
				calls++
				return tool.Result{Body: "called"}, nil
			},
		}
		if results := serve(t, s, 1, 0); len(results) != 1 || !strings.Contains(results[0], tt.says) || calls != map[bool]int{true: 1}[tt.says == "called"] {
			t.Errorf("%s: %q after %d calls; want %q", name, results, calls, tt.says)
		}
		if differs := !strings.HasSuffix(name, "order") && name != "the same"; len(s.warned) != map[bool]int{true: 1}[differs] ||
			differs && !strings.Contains(s.warned[0], "MCP server s has other tools or descriptions than when this run found them") {
			t.Errorf("%s: warned of %q", name, s.warned)
		}
	}
}
