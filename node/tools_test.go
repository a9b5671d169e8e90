package node

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/client/toolserver"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// scriptOf is a model that answers from a file of this package.
func scriptOf(t *testing.T, name string, o *scripted.Options) *scripted.Model {
	t.Helper()
	data := must.Get(os.ReadFile("testdata/" + name))(t)
	s := must.Get(scripted.Parse(name, data))(t)
	m := must.Get(scripted.New(s, o))(t)
	return m
}

// toolProgram connects to a node's server as a program that has tools.
func toolProgram(t *testing.T, n *Instance) (*client.Client, *api.Conn) {
	t.Helper()
	user, password := n.link.server.Tool()
	conn := must.Get(api.Connect(t.Context(), &streams.Options{Options: conn.Options{Dialer: n.link.server.Dial, Name: "program", User: user, Password: password}, Client: true}))(t)
	t.Cleanup(func() { must.Report(t, conn.Conn.Close()) })
	c := must.Get(client.Connect(t.Context(), "", &client.Options{Dialer: n.link.server.Dial, User: user, Password: password}))(t)
	t.Cleanup(func() { must.Report(t, c.Close()) })
	return c, conn
}

// toolTexts returns the results of a session's tools.
func toolTexts(t *testing.T, c *client.Client, id session.ID) []string {
	t.Helper()
	s := must.Get(c.Sessions.Get(t.Context(), string(id)))(t)
	var all []string
	for _, chunk := range s.Chunks {
		if chunk.Kind == session.ToolResult {
			all = append(all, chunk.Text)
		}
	}
	return all
}

func TestToolsOfOtherPrograms(t *testing.T) {
	t.Parallel()
	n := begin(t, &Options{
		Store: t.TempDir(), NATS: NATS{Level: "lazy"}, Models: Models{Source: scriptOf(t, "tools.txtar", nil)}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}).started(t)
	mine := must.Get(n.Client(t.Context()))(t)
	defer mine.Close()
	program, conn := toolProgram(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	ask := func(input string, tools ...string) messages.Result {
		t.Helper()
		text := must.Get(json.Marshal(input))(t)
		r := must.Get(mine.Do(ctx, "agent", messages.Task{Input: text, Tools: tools}, nil))(t)
		return r
	}

	if r := ask("weather", "weather"); r.Code != run.CodeNotFound || !strings.Contains(r.Error, `there is no tool "weather"`) || !strings.Contains(r.Error, "read_workspace_file") {
		t.Errorf("a tool that nobody announced: %+v", r)
	}

	// A program in Go serves one.
	var mu sync.Mutex
	var calls []string
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		served <- toolserver.Serve(serving, program, tool.Func("weather", "Weather of a city.", func(ctx context.Context, in struct {
			City string `json:"city"`
		},
		) (map[string]string, error) {
			call, _ := tool.Current(ctx)
			mu.Lock()
			calls = append(calls, call.ID+" "+string(call.Args))
			mu.Unlock()
			return map[string]string{in.City: "sunny"}, nil
		}, &tool.FuncOptions{Effect: tool.ReadOnly}), 0)
	}()
	announced(t, mine, "weather")
	r := ask("weather", "weather")
	if r.State != run.Succeeded || r.Output != "It is sunny in Rome." {
		t.Fatalf("the run: %+v", r)
	}
	mu.Lock()
	if len(calls) != 1 || !strings.HasSuffix(calls[0], ` {"city":"Rome"}`) || strings.HasPrefix(calls[0], " ") {
		t.Errorf("the program was called with %q", calls)
	}
	mu.Unlock()
	// Arguments that do not match the schema never reach the program.
	if got := toolTexts(t, mine, ask("weather wrong", "weather").Session); len(got) != 1 || !strings.Contains(got[0], "invalid_tool_arguments") {
		t.Errorf("wrong arguments: %q", got)
	}
	mu.Lock()
	if len(calls) != 1 {
		t.Errorf("the program was called with wrong arguments: %q", calls)
	}
	mu.Unlock()
	stop()
	if err := <-served; err != nil {
		t.Errorf("the program ended with %v", err)
	}
	// No program answers any more: the model gets an error, the run continues.
	r = ask("weather", "weather")
	if got := toolTexts(t, mine, r.Session); r.State != run.Succeeded || len(got) != 1 || !strings.Contains(got[0], "tool_unavailable") {
		t.Errorf("nobody answers: %+v %q", r, got)
	}

	// A program that speaks only NATS.
	for _, tt := range []struct{ name, answer, want string }{
		{"plain", `{"body":{"sky":"grey"}}`, `{"sky":"grey"}`},
		{"failed", `{"body":"no such city","is_error":true}`, `no such city`},
		{"malformed", `grey`, `gave an answer that is none`},
		{"unknown", `{"result":1}`, `unknown`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			raw := rawResponder(t, n, messages.ToolSubject(session.DefaultTenant, "weather"), tt.answer)
			defer raw()
			r := ask("weather", "weather")
			got := toolTexts(t, mine, r.Session)
			if r.State != run.Succeeded || len(got) != 1 {
				t.Fatalf("%+v %q", r, got)
			}
			if !strings.Contains(got[0], tt.want) {
				t.Errorf("the model reads %q, want %q", got[0], tt.want)
			}
		})
	}

	// A program that accepts a call and never answers.
	must.Do(t, conn.Requests.AnnounceTool(ctx, session.DefaultTenant, messages.Tool{Name: "weather", Description: "Slow.", Input: json.RawMessage(`{"type":"object"}`), TimeoutMS: 300}))
	raw := rawResponder(t, n, messages.ToolSubject(session.DefaultTenant, "weather"), "")
	defer raw()
	r = ask("weather", "weather")
	if got := toolTexts(t, mine, r.Session); r.State != run.Succeeded || len(got) != 1 || !strings.Contains(got[0], "timeout") || !strings.Contains(got[0], "whether it did its work is not known") {
		t.Errorf("no answer: %+v %q", r, got)
	}

	must.Do(t, program.Tools.Withdraw(ctx, "weather"))
	if all, err := mine.Tools.List(ctx); err != nil || len(all) != 0 {
		t.Errorf("after it was withdrawn: %v, %v", all, err)
	}
}

// announced waits until a tool is on offer.
func announced(t *testing.T, c *client.Client, name string) {
	t.Helper()
	for end := time.Now().Add(soon); ; time.Sleep(5 * time.Millisecond) {
		all := must.Get(c.Tools.List(t.Context()))(t)
		if len(all) == 1 && all[0].Name == name {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("on offer is %v", all)
		}
	}
}

func TestToolsThatAreRefused(t *testing.T) {
	t.Parallel()
	n := begin(t, &Options{Store: t.TempDir(), NATS: NATS{Level: "lazy"}}).started(t)
	_, program := toolProgram(t, n)
	good := messages.Tool{Name: "weather", Description: "Weather."}
	for _, tt := range []struct {
		change func(v *messages.Tool)
		want   string
	}{
		{func(v *messages.Tool) { v.Description = " " }, "field description"},
		{func(v *messages.Tool) { v.Effect = "sandboxed" }, "field effect"},
		{func(v *messages.Tool) { v.Effect = "safe" }, "field effect"},
		{func(v *messages.Tool) { v.TimeoutMS = 3_600_000 }, "field timeout_ms"},
		{func(v *messages.Tool) { v.Input = json.RawMessage(`{"type":"string"}`) }, "field input"},
		{func(v *messages.Tool) {
			v.Input = json.RawMessage(`{"type":"object","properties":{"a":{"$ref":"#/nowhere"}}}`)
		}, "field input"},
		{func(v *messages.Tool) { v.Description = strings.Repeat("x", 5000) }, "field description"},
	} {
		v := good
		tt.change(&v)
		if err := program.Requests.AnnounceTool(t.Context(), session.DefaultTenant, v); !errors.Is(err, run.ErrMalformed) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", v, err, tt.want)
		}
	}
	// A client without the right can neither announce nor serve.
	guest := must.Get(api.Connect(t.Context(), &streams.Options{Options: conn.Options{Dialer: n.link.server.Dial, Name: "guest"}, Client: true}))(t)
	defer guest.Conn.Close()
	if _, err := guest.Requests.ServeTool(t.Context(), session.DefaultTenant, "weather", nil); !errors.Is(err, conn.ErrDenied) {
		t.Errorf("a guest serves a tool: %v", err)
	}
}

// rawResponder answers a subject with fixed bytes, as a program in any language would;
// without bytes it receives requests and never answers.
func rawResponder(t *testing.T, n *Instance, subject, answer string) (stop func()) {
	t.Helper()
	user, password := n.link.server.Tool()
	nc := must.Get(nats.Connect("", nats.InProcessServer(dialFunc(n.link.server.Dial)), nats.UserInfo(user, password)))(t)
	sub := must.Get(nc.QueueSubscribe(subject, "rath.tool", func(m *nats.Msg) {
		if answer != "" {
			_ = m.Respond([]byte(answer))
		}
	}))(t)
	must.Do(t, nc.Flush())
	return func() {
		t.Helper()
		// The server notices a closed connection a moment later, and sends it calls
		// until then.
		must.Report(t, errors.Join(sub.Unsubscribe(), nc.Flush()))
		nc.Close()
	}
}

type dialFunc func() (net.Conn, error)

func (f dialFunc) InProcessConn() (net.Conn, error) { return f() }
