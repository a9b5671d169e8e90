package node

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestCancelKillsCommand cancels a run during a command in a sandbox, which has started a
// process of a session of its own. When the run has ended, none of its processes and no file
// of it is left, and the session has the files from before the call.
func TestCancelKillsCommand(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Base(filepath.Dir(dir)) + "-cancel-kills-command"
	blobs, log := blob.NewMemory(), &commitlog.Memory{}
	values := journal.NewValues(log)
	rt := &engine.Runtime{
		Values: values, Store: journal.NewStore(log, &journal.StoreOptions{Values: values}), Blobs: func(session.Tenant) blob.Store { return blobs },
		Workspaces: lease.Workspaces{
			Dir:      filepath.Join(dir, "work"),
			Backends: map[string]sandbox.Backend{"local": local.New(&local.Options{State: filepath.Join(dir, "boxes")})}, MinIsolation: sandbox.IsolationProcess,
		},
	}
	sleep := tool.Func("sleep", "Sleeps.", func(ctx context.Context, _ struct{}) (string, error) {
		c, _ := tool.Current(ctx)
		box, err := c.Sandbox(ctx)
		if err != nil {
			return "", err
		}
		exit, err := box.Exec(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", `trap "" TERM; setsid sh -c "sleep 3000; :" "$1" & echo half > half; sleep 3000`, "sh", mark}})
		return string(exit.Stdout.Bytes()), err
	}, &tool.FuncOptions{Effect: tool.Sandboxed})
	home := session.Key{Tenant: session.DefaultTenant, ID: "home"}
	var after session.Session
	ex := must.Get(rt.Begin(t.Context(), flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			s, _, err := flow.CallTool(ctx, s.To("local", ""), sleep, struct{}{})
			after = s
			return s, err
		})
	}}, journal.Task{ID: "r", Workflow: "w", Session: home}))(t)
	started := make(chan time.Time, 1)
	go func() {
		for {
			half, err := filepath.Glob(filepath.Join(dir, "work", "*", "*", "*", "half"))
			if err != nil || len(half) > 0 && len(marked(t, mark)) >= 2 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		started <- time.Now()
		must.Report(t, rt.Store.Apply(context.WithoutCancel(t.Context()), journal.Signal{To: home, Run: "r", Cancel: &journal.CancelRequested{Reason: "enough"}}))
	}()
	state, err := ex.Forward(t.Context())
	t.Logf("it ended %v after the cancel", time.Since(<-started))
	if state != run.Cancelled {
		t.Errorf("the run is %s: %v", state, err)
	}
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("the processes %q are left", left)
	}
	if files := must.Get(filepath.Glob(filepath.Join(dir, "work", "*", "*")))(t); len(files) > 0 {
		t.Errorf("%q is left", files)
	}
	if head := after.Placement().Head; !head.IsZero() {
		t.Errorf("the session has the files %s", head.Short())
	}
}
