package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// mortal is a backend whose first sandbox is lost at one of its commands.
type mortal struct {
	sandbox.Backend
	opened, begun atomic.Int64
	at            int64
}

func (m *mortal) Open(ctx context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	box, err := m.Backend.Open(ctx, s)
	if err == nil && m.opened.Add(1) == 1 {
		box = &mortalBox{box, m}
	}
	return box, err
}

type mortalBox struct {
	sandbox.Sandbox
	of *mortal
}

func (b *mortalBox) Exec(ctx context.Context, c sandbox.Cmd) (sandbox.Exit, error) {
	if b.of.begun.Add(1) == b.of.at {
		return sandbox.Exit{}, fmt.Errorf("%w: its init process was killed", sandbox.ErrLost)
	}
	return b.Sandbox.Exec(ctx, c)
}

// scripted models.
type clientFunc func(*llm.Request) *llm.Response

func (f clientFunc) Complete(_ context.Context, r *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	return f(r), nil
}

func (f clientFunc) Client(context.Context, llm.Provider) (llm.Client, error) { return f, nil }

// TestLostDuringCalls: 200 calls run at once, and one of them loses the sandbox, so
// that it is closed under the others. Each call ends, with its result or with an error
// that names the loss; later calls have another sandbox, and no leftovers stay.
func TestLostDuringCalls(t *testing.T) {
	const calls = 200
	dir := t.TempDir()
	mark := filepath.Base(filepath.Dir(dir)) + "-lost-during-calls"
	m := &mortal{Backend: local.New(&local.Options{State: filepath.Join(dir, "boxes")}), at: 20}
	blobs := blob.NewMemory()
	asked := &llm.Response{Finish: llm.FinishTools}
	for i := range calls {
		asked.Calls = append(asked.Calls, session.ToolCall{ID: fmt.Sprint("c", i), Name: "look", Args: fmt.Sprintf(`{"n":%d}`, i)})
	}
	rt := &inprocess.Runtime{Runtime: engine.Runtime{
		Models: clientFunc(func(r *llm.Request) *llm.Response {
			if r.Messages[len(r.Messages)-1].Role == llm.Tool {
				return &llm.Response{Text: "done", Finish: llm.FinishStop}
			}
			return asked
		}),
		Blobs:      func(session.Tenant) blob.Store { return blobs },
		Workspaces: lease.Workspaces{Dir: filepath.Join(dir, "work"), Backends: map[string]sandbox.Backend{"local": m}, MinIsolation: sandbox.IsolationProcess},
	}}
	look := tool.Func("look", "Looks.", func(ctx context.Context, in struct {
		N int `json:"n"`
	},
	) (string, error) {
		c, _ := tool.Current(ctx)
		box, err := c.Sandbox(ctx)
		if err != nil {
			return "", err
		}
		exit, err := box.Exec(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", `sleep 0.3; echo "saw $1"`, mark, fmt.Sprint(in.N)}})
		return string(exit.Stdout.Bytes()), err
	}, &tool.FuncOptions{Effect: tool.ReadOnly, Retry: &tool.Retry{Times: 1}})
	before := runtime.NumGoroutine()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s := must.Get(rt.Run(ctx, &flow.Agent{Name: "a", Tools: []tool.Tool{look}}, session.New(session.UserText("go")).To("local", "")))(t)
	saw, lost, rows := 0, map[string]int{}, 0
	for _, c := range s.Chunks() {
		if c.Kind() != session.ToolResult {
			continue
		}
		var text string
		switch {
		case !c.Failed() && json.Unmarshal([]byte(c.Text()), &text) == nil && text == fmt.Sprintf("saw %d\n", rows):
			saw++
		default:
			lost[c.Text()]++
		}
		rows++
	}
	t.Logf("%d saw, %v, %v, %d sandboxes", saw, lost, time.Since(began), m.opened.Load())
	if rows != calls || saw < calls/2 {
		t.Errorf("%d rows, %d results", rows, saw)
	}
	for text := range lost {
		if !strings.Contains(text, `"error_kind":"sandbox_lost"`) && !strings.Contains(text, `"error_kind":"sandbox_closed"`) || !strings.Contains(text, "what the call did is unknown") {
			t.Errorf("a call came to %s", text)
		}
	}
	if n := m.opened.Load(); n != 2 {
		t.Errorf("%d sandboxes were opened, want 2", n)
	}
	for end := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		left := marked(t, mark)
		if n := runtime.NumGoroutine(); n <= before+2 && len(left) == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d goroutines of %d before, and the processes %q stay", n, before, left)
		}
	}
}

// marked returns the processes that have a mark among their arguments.
func marked(t *testing.T, mark string) (all []string) {
	t.Helper()
	files := must.Get(filepath.Glob("/proc/[0-9]*/cmdline"))(t)
	for _, name := range files {
		if text, err := os.ReadFile(name); err == nil && bytes.Contains(text, []byte(mark)) {
			all = append(all, string(text))
		}
	}
	return all
}
