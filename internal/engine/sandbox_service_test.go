package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/scripted"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// daemons are sandboxes whose command "serve" runs until it is killed. It adds "up" to the
// file log, and "ready" exits with 0 while it runs.
type daemons struct {
	*scripted.Backend

	mu      sync.Mutex
	running map[string]context.CancelFunc // by their argument
	starts  int
}

func newDaemons(offered bool) *daemons {
	d := &daemons{running: map[string]context.CancelFunc{}}
	add := func(c *scripted.Call, line string) error {
		f, err := c.Open("log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = fmt.Fprintln(f, line)
			err = errors.Join(err, f.Close())
		}
		return err
	}
	d.Backend = scripted.New(&scripted.Options{
		Name: "local",
		Claims: &sandbox.Capabilities{
			Isolation: sandbox.IsolationKernel, Detail: "rooms", Networks: []string{"none", "list"}, WholeTree: true, Limits: []string{sandbox.LimitMemory}, Services: offered,
		},
		Commands: map[string]func(context.Context, *scripted.Call) int{
			"note": func(_ context.Context, c *scripted.Call) int {
				if add(c, c.Args[1]) != nil {
					return 1
				}
				return 0
			},
			"serve": func(ctx context.Context, c *scripted.Call) int {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				fmt.Fprintln(c.Stdout, "listens")
				if add(c, "up") != nil {
					return 1
				}
				d.mu.Lock()
				d.starts++
				d.running[c.Args[1]] = cancel
				d.mu.Unlock()
				<-ctx.Done()
				fmt.Fprintln(c.Stderr, "panic: out of ideas")
				d.mu.Lock()
				defer d.mu.Unlock()
				delete(d.running, c.Args[1])
				return 3
			},
			"ready": func(_ context.Context, c *scripted.Call) int {
				d.mu.Lock()
				defer d.mu.Unlock()
				if d.running[c.Args[1]] == nil {
					fmt.Fprintln(c.Stderr, "nothing listens")
					return 1
				}
				return 0
			},
			"flood": func(ctx context.Context, c *scripted.Call) int {
				for range 40 {
					if _, err := c.Stdout.Write(bytes.Repeat([]byte("0123456789abcde\n"), 64<<10)); err != nil {
						return 1
					}
				}
				return 4
			},
		},
	})
	return d
}

// kill ends a service, and waits until it has ended.
func (d *daemons) kill(name string) {
	d.mu.Lock()
	d.running[name]()
	d.mu.Unlock()
	for d.count(name) > 0 {
		time.Sleep(time.Millisecond)
	}
}

func (d *daemons) count(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running[name] == nil {
		return 0
	}
	return 1
}

const web = `[{"name":"web","command":["serve","web"],"ready":["ready","web"]}]`

func beside(services string) func(*journal.Task) {
	return func(task *journal.Task) { task.Sandbox.Services = services }
}

// TestServiceRunsBesideCalls: a service is ready before the first command, serves the next
// run of the session too, and dies with the lease.
func TestServiceRunsBesideCalls(t *testing.T) {
	var w world
	d, store := newDaemons(true), blob.NewMemory()
	rt := w.placedRuntime(t, d.Backend, store)
	first := noting(t, rt, "one", fine, beside(web))
	check(t, forward(t, t.Context(), first, run.Succeeded))
	if got := lines(t, store, first.Result()); got != "up one" {
		t.Errorf("the files say %q, want the service before the call", got)
	}
	var logs []string
	for _, d := range facts[journal.StepCompleted](t, &w, journal.KindStepCompleted) {
		for _, l := range d.Services {
			logs = append(logs, l.Name+": "+l.Log+", "+d.Summary)
		}
	}
	if len(logs) != 1 || !strings.HasPrefix(logs[0], "web: listens\n, ") || !strings.HasSuffix(logs[0], `, web says "listens"`) {
		t.Errorf("the records of the calls tell of the service %q", logs)
	}
	if got := first.Result().Placement().Services; got != web {
		t.Errorf("the session has the services %s", got)
	}
	if d.count("web") != 1 || !rt.Runtime.Leases.Has(home) {
		t.Error("the service ended with the run")
	}
	second := noting(t, rt, "two", fine, nil)
	check(t, forward(t, t.Context(), second, run.Succeeded))
	if got := lines(t, store, second.Result()); got != "up one two" || d.starts != 1 {
		t.Errorf("the files say %q after %d starts, want one", got, d.starts)
	}
	rt.Runtime.Leases.Close()
	if d.count("web") != 0 {
		t.Error("the service outlives its lease")
	}
}

// TestServiceStartsAgain: the call after the death of a service gets a report of it, as
// do the readers of the run, and finds another one.
func TestServiceStartsAgain(t *testing.T) {
	var w world
	d, store := newDaemons(true), blob.NewMemory()
	rt := w.placedRuntime(t, d.Backend, store)
	var bodies []string
	code := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		for i, body := range []any{struct{}{}, map[string]int{"n": 1}, "done", "done", "done"} {
			if i == 1 || i == 3 {
				d.kill("web")
			}
			var r tool.Result
			var err error
			if s, r, err = flow.CallTool(ctx, s, writing(body), map[string][]string{"paths": {"f"}}); err != nil {
				return s, err
			}
			bodies = append(bodies, string(r.Body.(tool.JSON)))
		}
		return s, nil
	})
	task := journal.Task{ID: "one", Workflow: "w", Session: home, Sandbox: journal.Sandbox{Services: web}}
	ex := must(rt.Runtime.Begin(t.Context(), flow.Registration{Name: "w", New: func() flow.Workflow { return code }}, task))
	check(t, forward(t, t.Context(), ex, run.Succeeded))
	rt.Runtime.Leases.Close()
	const told = `"services":{"ended":[{"how":"it exited with code 3","log":"listens\npanic: out of ideas","name":"web"}],"note":"` +
		"these services ended before or during this call; those that do not run are started again before the next command" + `"}}`
	want := []string{`{}`, `{"n":1,` + told, `"done"`, `{"result":"done",` + told, `"done"`}
	if strings.Join(bodies, "\n") != strings.Join(want, "\n") || d.starts != 3 {
		t.Errorf("after %d starts the calls tell\n%s\nwant\n%s", d.starts, strings.Join(bodies, "\n"), strings.Join(want, "\n"))
	}
	var said []string
	for _, f := range facts[journal.Warning](t, &w, journal.KindWarning) {
		said = append(said, f.Text)
	}
	const warning = `service web ended: it exited with code 3, "panic: out of ideas"`
	if strings.Join(said, "\n") != warning+"\n"+warning {
		t.Errorf("the log warns %q", said)
	}
}

// TestServiceNotReady: a call whose service does not become ready fails with the service,
// the reason and a remedy; no process is left. It runs in fake time: a service has
// written its output before its time is over, however busy the machine is.
func TestServiceNotReady(t *testing.T) {
	for _, tt := range []struct{ name, services, want string }{
		{
			"never", `[{"name":"web","command":["serve","web"],"ready":["ready","other"],"timeout_ms":80}]`,
			"service web is not ready: its ready command did not exit with 0 within 80ms (nothing listens); its log ends with \\\"listens\\\"; correct the service",
		},
		{
			"its ready hangs", `[{"name":"web","command":["serve","web"],"ready":"while :; do sleep 1; done","timeout_ms":80}]`,
			"service web is not ready: its ready command did not exit with 0 within 80ms; its log ends",
		},
		{
			"ended", `[{"name":"web","command":"echo cannot bind; exit 9","ready":["ready","web"]}]`,
			"service web is not ready: it exited with code 9 before it was ready; its log ends with \\\"cannot bind\\\"; correct its command, which has to stay in the foreground",
		},
		{"no program", `[{"name":"web","command":["no-such"],"ready":["ready","web"]}]`, "service web is not ready: it could not be started"},
		{"no ready program", `[{"name":"web","command":["serve","web"],"ready":["no-such"]}]`, "its ready command cannot be started"},
		{"a flood", `[{"name":"web","command":["flood"],"ready":["ready","web"]}]`, "it exited with code 4 before it was ready; its log ends with \\\"3456789abcde\\\\n0123"},
		{
			"the second", `[{"name":"web","command":["serve","web"],"ready":["ready","web"]},{"name":"db","command":["serve","db"],"ready":["ready","x"],"timeout_ms":80}]`,
			"service db is not ready",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w world
				d, store := newDaemons(true), blob.NewMemory()
				rt := w.placedRuntime(t, d.Backend, store)
				err := forward(t, t.Context(), noting(t, rt, "one", fine, beside(tt.services)), run.Failed)
				if err == nil || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 6<<10 {
					t.Errorf("the run failed with\n%v\nwant\n%s", err, tt.want)
				}
				if _, open := d.Opened(); open != 0 || d.count("web")+d.count("db") != 0 {
					t.Errorf("%d sandboxes are left, and %v", open, d.running)
				}
			})
		})
	}
}

// TestServicesAfterCrash: before a call that was cut off is repeated, the files are
// restored and the services restarted on them. A service with state outside of the
// workspace makes the call wait for an operator instead.
func TestServicesAfterCrash(t *testing.T) {
	for _, tt := range []struct {
		name, services string
		again          run.State
	}{
		{"in the workspace", web, run.Succeeded},
		{"outside", strings.Replace(web, "}]", `,"state":"outside"}]`, 1), run.NeedsReview},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w world
			d, store := newDaemons(true), blob.NewMemory()
			rt := w.placedRuntime(t, d.Backend, store)
			ctx, cancel := context.WithCancelCause(t.Context())
			state, err := noting(t, rt, "one", func() error { cancel(run.ErrShutdown); return run.ErrShutdown }, beside(tt.services)).Forward(ctx)
			if state != run.Queued && state != run.NeedsReview {
				t.Fatalf("the run %s: %v", state, err)
			}
			if d.count("web") != 0 {
				t.Error("the service outlives its sandbox")
			}
			rt = w.placedRuntime(t, d.Backend, store)
			again := noting(t, rt, "one", fine, resume)
			state, err = again.State(), nil
			if state == run.Running {
				state, err = again.Forward(t.Context())
			}
			if state != tt.again {
				t.Fatalf("the run is %s, want %s: %v", state, tt.again, err)
			}
			if tt.again != run.Succeeded {
				return
			}
			if got := lines(t, store, again.Result()); got != "up one" || d.starts != 2 {
				t.Errorf("the files say %q after %d starts, want the service and the call once", got, d.starts)
			}
			rt.Runtime.Leases.Close()
		})
	}
}

// TestServicesRefused: if a sandbox has no network of its own, a run that requests
// services fails with that reason.
func TestServicesRefused(t *testing.T) {
	var w world
	d, store := newDaemons(false), blob.NewMemory()
	err := forward(t, t.Context(), noting(t, w.placedRuntime(t, d.Backend, store), "one", fine, beside(web)), run.Failed)
	if err == nil || !strings.Contains(err.Error(), "services") {
		t.Errorf("services that the sandbox does not have: %v", err)
	}
}

// TestServiceChangesFiles: a service that continuously replaces and removes files does
// not make the calls beside it fail.
func TestServiceChangesFiles(t *testing.T) {
	var w world
	d, store := newDaemons(true), blob.NewMemory()
	rt := w.placedRuntime(t, d.Backend, store)
	code := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		for range 20 {
			var r tool.Result
			var err error
			if s, r, err = flow.CallTool(ctx, s, writing("done"), map[string][]string{"paths": {"f"}}); err != nil {
				return s, err
			} else if r.IsError {
				return s, fmt.Errorf("%s", r.Body)
			}
		}
		return s, nil
	})
	churn := `[{"name":"churn","command":"while :; do for n in a b c d; do echo $n > $n.new; mv $n.new $n; done; rm a b; done"}]`
	task := journal.Task{ID: "one", Workflow: "w", Session: home, Sandbox: journal.Sandbox{Services: churn}}
	ex := must(rt.Runtime.Begin(t.Context(), flow.Registration{Name: "w", New: func() flow.Workflow { return code }}, task))
	check(t, forward(t, t.Context(), ex, run.Succeeded))
	rt.Runtime.Leases.Close()
}

// elsewhere are sandboxes whose files are stored elsewhere: each Sync adds "synced" to
// the file log.
type elsewhere struct{ *daemons }

type elsewhereBox struct {
	sandbox.Sandbox
	dir string
}

func (e elsewhere) Open(ctx context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	box, err := e.daemons.Open(ctx, s)
	return elsewhereBox{box, s.Dir}, err
}

func (b elsewhereBox) Sync(context.Context) error {
	f, err := os.OpenFile(filepath.Join(b.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, "synced")
	return errors.Join(err, f.Close())
}

// TestServiceFilesElsewhere: files that a service wrote are copied to the directory
// before a call and before the snapshot after it. Without services no copy is made.
func TestServiceFilesElsewhere(t *testing.T) {
	for services, want := range map[string]string{web: "up synced one synced", "": "one"} {
		var w world
		d, store := newDaemons(true), blob.NewMemory()
		rt := w.placedRuntime(t, d.Backend, store)
		rt.Runtime.Workspaces.Backends["local"] = elsewhere{d}
		ex := noting(t, rt, "one", fine, beside(services))
		check(t, forward(t, t.Context(), ex, run.Succeeded))
		if got := lines(t, store, ex.Result()); got != want {
			t.Errorf("the files say %q, want %q", got, want)
		}
		rt.Runtime.Leases.Close()
	}
}
