package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/agents/mcp"
	"github.com/rathcluster/rath/internal/testkit/mcptest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

func TestMain(m *testing.M) {
	mcptest.Main()
	os.Exit(m.Run())
}

// server returns the entry of a server on the host.
func server(t *testing.T, kind, more string) *mcp.Server {
	t.Helper()
	l := must.Get(mcp.Parse("mcp.yaml", []byte("servers:\n  s: {command: "+mcptest.Command(kind)+", where: host"+more+"}\n")))(t)
	return l.All()[0]
}

func connect(t *testing.T, s *mcp.Server) *mcp.Conn {
	t.Helper()
	c := must.Get(s.Connect(t.Context(), os.Getenv, nil))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

func call(c *mcp.Conn, name, args string) tool.Outcome {
	res, err := c.Call(context.Background(), name, tool.Call{ID: "run/1", Args: json.RawMessage(args), Blobs: blob.NewMemory()})
	if err != nil {
		return tool.ErrorOutcome(err)
	}
	body, err := json.Marshal(res.Body)
	return tool.Outcome{Body: body, Images: res.Images, IsError: res.IsError, Err: err}
}

// TestTools lists a server's tools, under our names, with the effects of its hints.
func TestTools(t *testing.T) {
	specs, _ := must.Pair(connect(t, server(t, "banner", "")).Tools(t.Context()))(t)
	got := map[string]tool.Effect{}
	for _, s := range specs {
		got[s.Name] = s.Effect
	}
	for name, want := range map[string]tool.Effect{
		"s__echo": tool.Idempotent, "s__note": tool.NonIdempotent, "s__note_once": tool.Idempotent, "s__run_shell_command": tool.NonIdempotent,
	} {
		if e, ok := got[name]; !ok || e != want {
			t.Errorf("%s: %v, %v; want %v", name, e, ok, want)
		}
	}
	if _, err := tool.NewTable(tool.Builtins()...); err != nil {
		t.Error(err)
	}
}

// TestCall: each kind of content is carried, and a failure is the model's to read.
func TestCall(t *testing.T) {
	t.Setenv("SECRET_OF_THE_NODE", "hidden")
	t.Setenv("ALLOWED", "shown")
	c := connect(t, server(t, "good", ", env: [ALLOWED]"))
	for _, tt := range []struct {
		name, args, want string
		failed           bool
	}{
		{"s__echo", `{"text":"hi"}`, `{"text":"you said hi"}`, false},
		{"s__fails", `{"text":"x"}`, `{"ok":false,"text":"it failed: x"}`, true},
		{"s__mixed", `{}`, `{"content":[{"type":"text","text":"a picture"},{"type":"image","mime":"image/png","hidden":"no image that models see: it is no PNG, JPEG, GIF or WebP, or is damaged: convert it","bytes":4,"blob":"` + blob.Sum([]byte("\x89PNG")).String() + `"},` +
			`{"type":"resource","text":"inside","uri":"file:///a","mime":"text/plain"},{"type":"resource_link","name":"b","uri":"file:///b"},` +
			`{"type":"resource","name":"tape.bin","uri":"file:///d/tape.bin","mime":"application/octet-stream","bytes":2,"blob":"` + blob.Sum([]byte("\x00\x01")).String() + `"}],"structured":{"n":1}}`, false},
		{"s__large", `{}`, `"error_kind":"too_large"`, true},
		{"s__pieces", `{}`, `has 1001 pieces, at most 1000 are taken`, true},
		{"s__gone", `{}`, `does not have the tool s__gone any more`, true},
		{"s__environment", `{}`, `ALLOWED=shown`, false},
	} {
		o := call(c, tt.name, tt.args)
		if !strings.Contains(string(o.Body), tt.want) || o.IsError != tt.failed || strings.Contains(string(o.Body), "SECRET") {
			t.Errorf("%s: %.600s, %v; want %s", tt.name, o.Body, o.IsError, tt.want)
		}
	}
	// The bytes of an image determine its type.
	want := session.Image{Digest: blob.Sum(mcptest.Picture), Size: int64(len(mcptest.Picture)), Type: "image/gif"}
	if o := call(c, "s__picture", "{}"); !slices.Equal(o.Images, []session.Image{want, want}) || !strings.Contains(string(o.Body), `{"type":"resource","uri":"file:///c.gif","mime":"image/gif","bytes":`) || !strings.Contains(string(o.Body), `{"type":"image","mime":"image/svg+xml","hidden":"no image`) {
		t.Errorf("%v of %s", o.Images, o.Body)
	}
}

// TestProgress passes a call's progress to its Progress while it runs.
func TestProgress(t *testing.T) {
	c := connect(t, server(t, "good", ""))
	file := filepath.Join(t.TempDir(), "go on")
	said := make(chan string, 2)
	res, err := c.Call(t.Context(), "s__slow", tool.Call{Args: json.RawMessage(`{"unless":"` + file + `"}`), Progress: func(text string) {
		said <- text
		must.Report(t, os.WriteFile(file, nil, 0o600))
	}})
	if err != nil {
		t.Fatalf("%v, %v", res, err)
	}
	if text := <-said; text != "2 of 4: digging" || len(said) != 0 {
		t.Errorf("%q, and %d more", text, len(said))
	}
}

// TestCutOff: the effects of a call are unknown if the server dies during it or it takes
// too long. The process has ended afterwards.
func TestCutOff(t *testing.T) {
	for name, says := range map[string]string{"s__die": "exited with code 3", "s__hang": "gave no answer within 500ms"} {
		file := filepath.Join(t.TempDir(), "calls")
		c := connect(t, server(t, "good", ", call_ms: 500"))
		_, err := c.Call(t.Context(), name, tool.Call{Args: json.RawMessage(`{"file":"` + file + `"}`)})
		if !errors.Is(err, session.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", name, err, says)
		}
		if data, err := os.ReadFile(file); err != nil || string(data) != "\n" {
			t.Errorf("%s: called %q, %v", name, data, err)
		}
		if _, err := c.Call(t.Context(), "s__echo", tool.Call{}); err == nil {
			t.Errorf("%s: the connection goes on", name)
		}
	}
}

// TestSecrets: no error contains the node's variables that a server received.
func TestSecrets(t *testing.T) {
	const secret = "hunter2-of-the-node"
	t.Setenv("SECRET", secret)
	for kind, says := range map[string]string{"tells": "cannot go on with [redacted]", "prints": "logged in as [redacted]", "good": "no entry for [redacted]"} {
		s := server(t, kind, ", env: [SECRET]")
		c, err := s.Connect(t.Context(), os.Getenv, nil)
		if err == nil {
			_, err = c.Call(t.Context(), "s__refuses", tool.Call{})
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), secret[len(secret)-8:]) {
			t.Errorf("%s: %v; want %q", kind, err, says)
		}
	}
}

// callAndClose calls a tool and closes the connection, and returns the error of the call.
func callAndClose(t *testing.T, what string, c *mcp.Conn) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Call(t.Context(), "s__echo", tool.Call{})
		c.Close()
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: it is waited for", what)
		return nil
	}
}

// TestHostileMessages: a message outside the protocol ends at most the call, in time and
// with the cause. It ends neither the node nor its wait for the server.
func TestHostileMessages(t *testing.T) {
	for kind, says := range map[string]string{
		"asks nothing": "", "asks null": "cannot be read", "odd result": "cannot unmarshal",
		"deaf": "beyond the bound", "pages": "does not have the tool s__echo",
	} {
		c, err := server(t, kind, "").Connect(t.Context(), os.Getenv, nil)
		must.Do(t, err)
		err = callAndClose(t, kind, c)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v; want %q", kind, err, says)
		}
	}
}

// TestHostileServers: an unusable server causes an error with the cause and a remedy, in
// time, and leaves no process.
func TestHostileServers(t *testing.T) {
	for kind, says := range map[string]string{
		"garbage": "it prints a line outside of the protocol", "exits": `it exited with code 1, with "there is no configuration" on standard error`,
	} {
		// Each message is detected, long before the caller's deadline.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		c, err := server(t, kind, "").Connect(ctx, os.Getenv, nil)
		if err == nil {
			_, _, err = c.Tools(ctx)
			c.Close()
		}
		cancel()
		if f, ok := errors.AsType[*tool.Failure](err); !ok || f.Kind != tool.Unavailable || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", kind, err, says)
		}
	}
	// An unusable tool is omitted and named, and the others are listed.
	for kind, says := range map[string]string{
		"many": "more of its tools are omitted: the limit is 1024 with 524288 bytes", "twins": `its tool "a/b" is omitted: its name collides with "a.b"`,
		"odd": `its tool "odd" is omitted: schema of "s__odd": `,
	} {
		specs, remarks, err := connect(t, server(t, kind, "")).Tools(t.Context())
		if err != nil || len(remarks) != 1 || !strings.Contains(remarks[0], says) || !slices.ContainsFunc(specs, func(s tool.Spec) bool { return s.Name == "s__echo" }) {
			t.Errorf("%s: %d tools, %q, %v; want %q", kind, len(specs), remarks, err, says)
		}
	}
	// One that is silent is given up when the caller's time is up.
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := server(t, "silent", "").Connect(ctx, os.Getenv, nil); err == nil {
		t.Error("a silent server is connected")
	}
	if c := connect(t, server(t, "many", ", tools: [echo, tool_7]")); c != nil {
		if specs, _, err := c.Tools(t.Context()); err != nil || len(specs) != 2 {
			t.Errorf("%d tools, %v", len(specs), err)
		}
	}
}
