package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/scripted"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
	"github.com/rathcluster/rath/workspace"
)

// rooms are sandboxes with the command "note", which adds its argument to the file log.
// With loose, a process that a command starts may outlast it.
func rooms(loose bool, faults ...scripted.Fault) *scripted.Backend {
	return scripted.New(&scripted.Options{
		Name: "local", Faults: faults,
		Claims: &sandbox.Capabilities{
			Isolation: sandbox.IsolationKernel, Detail: "rooms", Networks: []string{"none", sandbox.NetworkList, sandbox.NetworkReadOnly}, Images: true, WholeTree: !loose,
			Limits: []string{sandbox.LimitMemory},
		},
		Commands: map[string]func(context.Context, *scripted.Call) int{"note": func(_ context.Context, c *scripted.Call) int {
			f, err := c.Open("log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
			if err == nil {
				_, err = fmt.Fprintln(f, c.Args[1])
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				return 1
			}
			return 0
		}},
	})
}

// note is the tool that runs the command; fail is an error of the tool after it.
func note(fail func() error, retry ...*tool.Retry) tool.Tool {
	o := tool.FuncOptions{Effect: tool.Sandboxed}
	if len(retry) > 0 {
		o.Retry = retry[0]
	}
	return tool.Func("note", "Notes a line.", func(ctx context.Context, in struct {
		Line string `json:"line"`
	},
	) (string, error) {
		c, _ := tool.Current(ctx)
		box, err := c.Sandbox(ctx)
		if err != nil {
			return "", err
		}
		if _, err := box.Exec(ctx, sandbox.Cmd{Argv: []string{"note", in.Line}}); err != nil {
			return "", err
		}
		return "noted", fail()
	}, &o)
}

func fine() error { return nil }

// noting begins a run that notes a line, by a task with its own terms.
func noting(t *testing.T, rt *inprocess.Runtime, id run.ID, fail func() error, ask func(*journal.Task)) *engine.Execution {
	t.Helper()
	task := journal.Task{ID: id, Workflow: "w", Session: home}
	if ask != nil {
		ask(&task)
	}
	forward := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		if s.Placement().Backend == "" {
			s = s.To("local", "")
		}
		s, r, err := flow.CallTool(ctx, s, note(fail), map[string]string{"line": string(id)})
		if err == nil && r.IsError {
			err = fmt.Errorf("%s", r.Body)
		}
		return s, err
	})
	return must(rt.Runtime.Begin(t.Context(), flow.Registration{Name: "w", New: func() flow.Workflow { return forward }}, task))
}

// placedRuntime is a runtime of the world with rooms as sandboxes.
func (w *world) placedRuntime(t *testing.T, r *scripted.Backend, store blob.Store) *inprocess.Runtime {
	rt := w.runtime(nil)
	rt.Runtime.Blobs = func(session.Tenant) blob.Store { return store }
	rt.Runtime.Leases = &lease.Kept{}
	rt.Runtime.Workspaces = lease.Workspaces{Dir: t.TempDir(), Backends: map[string]sandbox.Backend{"local": r}, Sandbox: sandbox.Limits{Memory: 1 << 30}}
	return rt
}

// lines returns the contents of the file log in a session's workspace.
func lines(t *testing.T, store blob.Store, s session.Session) string {
	t.Helper()
	data, err := workspace.Read(t.Context(), store, s.Placement().Head, "log")
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", " ")
}

// TestNextRunFindsItsSandbox: the second run of a session works in the sandbox of the
// first, unless the epoch has ended or the terms differ.
func TestNextRunFindsItsSandbox(t *testing.T) {
	for _, tt := range []struct {
		name  string
		loose bool
		fail  func() error                 // of the first run's tool
		then  func(l *lease.Kept)          // between the runs
		ask   func(task *journal.Task)     // of the second run
		again bool                         // it opens another sandbox
		where func(session.Placement) bool // the second run ends there
	}{
		{name: "the same"},
		{name: "its epoch ended", then: func(l *lease.Kept) { l.End(home) }, again: true},
		{name: "processes may be left", loose: true, again: true},
		{name: "the call failed", fail: func() error { return tool.Permanent(errors.New("no")) }},
		{name: "the same limits again", ask: func(task *journal.Task) { task.Sandbox.Limits = "memory=1g" }},
		{
			name: "other limits", ask: func(task *journal.Task) { task.Sandbox.Limits = "memory=512m" }, again: true,
			where: func(p session.Placement) bool { return p.Limits == "memory=512m" },
		},
		{
			name: "an image", ask: func(task *journal.Task) { task.Sandbox.Image = "debian" }, again: true,
			where: func(p session.Placement) bool { return p.Image == "sha256:debian" },
		},
		{
			name: "a network", ask: func(task *journal.Task) { task.Sandbox.Network = "list:example.org" }, again: true,
			where: func(p session.Placement) bool { return p.Network == "list:example.org" },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w world
			r, store := rooms(tt.loose), blob.NewMemory()
			rt := w.placedRuntime(t, r, store)
			first := noting(t, rt, "one", cmpOr(tt.fail, fine), nil)
			state, err := first.Forward(t.Context())
			if state != run.Succeeded && tt.fail == nil {
				t.Fatalf("the first run %s: %v", state, err)
			}
			if tt.then != nil {
				tt.then(rt.Runtime.Leases)
			}
			second := noting(t, rt, "two", fine, tt.ask)
			check(t, forward(t, t.Context(), second, run.Succeeded))
			if got := lines(t, store, second.Result()); got != "one two" {
				t.Errorf("the files say %q, want what both runs noted", got)
			}
			if all, _ := r.Opened(); len(all) != 1 && !tt.again || tt.again && len(all) != 2 {
				t.Errorf("%d sandboxes were opened, again: %t", len(all), tt.again)
			}
			p := second.Result().Placement()
			if p.Isolation != string(sandbox.IsolationKernel) || p.Limits == "" || p.Network == "" || tt.where != nil && !tt.where(p) {
				t.Errorf("the second run ends at %+v", p)
			}
			rt.Runtime.Leases.Close()
			if _, now := r.Opened(); now != 0 {
				t.Errorf("%d sandboxes are left open", now)
			}
			if left, err := filepath.Glob(filepath.Join(rt.Runtime.Workspaces.Dir, "*", "*")); err != nil || len(left) > 0 {
				t.Errorf("left in the directory of workspaces: %v, %v", left, err)
			}
		})
	}
}

// TestNetworkOfNode: a session whose sandbox had a network on another node has it here
// only if this node allows it.
func TestNetworkOfNode(t *testing.T) {
	var w world
	r, store := rooms(false), blob.NewMemory()
	rt := w.placedRuntime(t, r, store)
	check(t, forward(t, t.Context(), noting(t, rt, "one", fine, func(task *journal.Task) { task.Sandbox.Network = "list:example.org" }), run.Succeeded))
	rt.Runtime.Leases.End(home)
	rt.Runtime.Workspaces.Network = "list:example.net"
	state, err := noting(t, rt, "two", fine, nil).Forward(t.Context())
	if state != run.Failed || err == nil || !strings.Contains(err.Error(), "example.org is not among them") {
		t.Errorf("the second run %s: %v", state, err)
	}
	if all, _ := r.Opened(); len(all) != 1 {
		t.Errorf("%d sandboxes were opened, want that of the first run", len(all))
	}
}

func cmpOr(f, other func() error) func() error {
	if f != nil {
		return f
	}
	return other
}

// TestCutOffCallLeavesNoSandbox: no head has the files of a call that was cut off, so the
// next execution begins with a fresh directory.
func TestCutOffCallLeavesNoSandbox(t *testing.T) {
	var w world
	r, store := rooms(false), blob.NewMemory()
	rt := w.placedRuntime(t, r, store)
	ctx, cancel := context.WithCancelCause(t.Context())
	state, err := noting(t, rt, "one", func() error { cancel(run.ErrShutdown); return run.ErrShutdown }, nil).Forward(ctx)
	if state != run.Queued {
		t.Fatalf("the run %s: %v", state, err)
	}
	again := noting(t, rt, "one", fine, resume)
	check(t, forward(t, t.Context(), again, run.Succeeded))
	if got := lines(t, store, again.Result()); got != "one" {
		t.Errorf("the files say %q, want the call once", got)
	}
	if all, _ := r.Opened(); len(all) != 2 {
		t.Errorf("%d sandboxes were opened, want 2", len(all))
	}
}

// TestLeasesAreBounded: of many idle sessions only the newest keep their sandboxes.
func TestLeasesAreBounded(t *testing.T) {
	var w world
	r, store := rooms(false), blob.NewMemory()
	rt := w.placedRuntime(t, r, store)
	for i := range lease.MaxKept + 5 {
		id := run.ID(fmt.Sprint("r", i))
		check(t, forward(t, t.Context(), noting(t, rt, id, fine, func(task *journal.Task) { task.Session.ID = session.ID(id) }), run.Succeeded))
	}
	if all, now := r.Opened(); now != lease.MaxKept || len(all) != lease.MaxKept+5 {
		t.Errorf("%d of %d sandboxes are open, want %d", now, len(all), lease.MaxKept)
	}
	for i := range lease.MaxKept + 5 {
		if k := (session.Key{Tenant: home.Tenant, ID: session.ID(fmt.Sprint("r", i))}); rt.Runtime.Leases.Has(k) != (i >= 5) {
			t.Errorf("the lease of session %d is kept: %t", i, i < 5)
		}
	}
}

// TestTaskBringsFilesToSession: a task of an existing session works on the files that it
// brings, with its own terms for the sandbox.
func TestTaskBringsFilesToSession(t *testing.T) {
	var w world
	r, store := rooms(false), blob.NewMemory()
	rt := w.placedRuntime(t, r, store)
	check(t, forward(t, t.Context(), noting(t, rt, "one", fine, nil), run.Succeeded))
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "log"), []byte("brought\n"), 0o644))
	head := must(workspace.Snapshot(t.Context(), store, dir, blob.Digest{}, workspace.Limits{}))
	second := noting(t, rt, "two", fine, func(task *journal.Task) { task.Workspace = head })
	check(t, forward(t, t.Context(), second, run.Succeeded))
	if got := lines(t, store, second.Result()); got != "brought two" {
		t.Errorf("the files say %q", got)
	}
	more := noting(t, rt, "three", fine, func(task *journal.Task) { task.Sandbox.Limits = "memory=2g" })
	state, err := more.Forward(t.Context())
	if state != run.Failed || !strings.Contains(err.Error(), "more than the node allows") {
		t.Errorf("the run that asks for more than the node has %s: %v", state, err)
	}
}

// TestAskThatCannotBeMet: a run whose task requests a sandbox that the node does not have
// fails, though a model could have continued without it.
func TestAskThatCannotBeMet(t *testing.T) {
	for _, ask := range []journal.Sandbox{{Backend: "docker"}, {Limits: "memory=2g"}, {Network: "open"}} {
		var w world
		rt := w.placedRuntime(t, rooms(false), blob.NewMemory())
		forward := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			s, _, err := flow.CallTool(ctx, s, note(fine), map[string]string{"line": "x"})
			return s, err
		})
		ex := must(rt.Runtime.Begin(t.Context(), flow.Registration{Name: "w", New: func() flow.Workflow { return forward }},
			journal.Task{ID: "one", Workflow: "w", Session: home, Sandbox: ask}))
		if state, err := ex.Forward(t.Context()); state != run.Failed || err == nil {
			t.Errorf("a run that asks for %+v %s: %v", ask, state, err)
		}
	}
}

// TestForkKeepsItsFiles: a run on a fork with other limits works on the files of the
// forked session.
func TestForkKeepsItsFiles(t *testing.T) {
	var w world
	r, store := rooms(false), blob.NewMemory()
	rt := w.placedRuntime(t, r, store)
	first := noting(t, rt, "one", fine, nil)
	check(t, forward(t, t.Context(), first, run.Succeeded))
	from := first.Result().Ref()
	fork := noting(t, rt, "two", fine, func(task *journal.Task) {
		task.Session.ID, task.ForkOf, task.Sandbox.Limits = "fork", &from, "memory=512m"
	})
	check(t, forward(t, t.Context(), fork, run.Succeeded))
	if got := lines(t, store, fork.Result()); got != "one two" {
		t.Errorf("the files say %q, want those of the session and the fork's own", got)
	}
	if p := fork.Result().Placement(); p.Limits != "memory=512m" {
		t.Errorf("the fork works at %+v", p)
	}
}

// TestLostSandbox: a call whose sandbox dies is made again in another sandbox, with the
// files from before. Without a further try the run gets an error for the call, and its
// next call has those files.
func TestLostSandbox(t *testing.T) {
	t.Run("once", func(t *testing.T) {
		lostSandbox(t, &tool.Retry{Times: 1}, []bool{false, true, false}, "one three")
	})
	t.Run("by default", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { lostSandbox(t, nil, []bool{false, false, false}, "one two three") })
	})
}

func lostSandbox(t *testing.T, retry *tool.Retry, fails []bool, files string) {
	t.Helper()
	var w world
	store := blob.NewMemory()
	rt := w.placedRuntime(t, rooms(false, scripted.Fault{Kind: scripted.Lost, Call: 2}), store)
	var failed []bool
	code := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		s = s.To("local", "")
		for _, line := range []string{"one", "two", "three"} {
			var r tool.Result
			var err error
			if s, r, err = flow.CallTool(ctx, s, note(fine, retry), map[string]string{"line": line}); err != nil {
				return s, err
			}
			failed = append(failed, r.IsError)
		}
		return s, nil
	})
	ex := must(rt.Runtime.Begin(t.Context(), flow.Registration{Name: "w", New: func() flow.Workflow { return code }}, journal.Task{ID: "one", Workflow: "w", Session: home}))
	check(t, forward(t, t.Context(), ex, run.Succeeded))
	if !slices.Equal(failed, fails) {
		t.Errorf("of the calls failed %v, want %v", failed, fails)
	}
	if got := lines(t, store, ex.Result()); got != files {
		t.Errorf("the files say %q", got)
	}
	rt.Runtime.Leases.Close()
}
