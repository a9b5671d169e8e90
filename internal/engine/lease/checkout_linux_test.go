package lease_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/sandbox/overlay"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/scripted"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
	"github.com/rathcluster/rath/workspace"
)

// forkable are sandboxes whose commands are shell scripts.
func forkable() *scripted.Backend {
	return scripted.New(&scripted.Options{Name: "local", Claims: &sandbox.Capabilities{
		Isolation: sandbox.IsolationKernel, Detail: "forkable", Networks: []string{"none"}, WholeTree: true, Mounts: true,
	}})
}

// script is a tool that runs a shell script; before is called once its sandbox is open.
func script(before func()) tool.Tool {
	return tool.Func("script", "Runs a script.", func(ctx context.Context, in struct {
		Text string `json:"text"`
	},
	) (string, error) {
		c, _ := tool.Current(ctx)
		box, err := c.Sandbox(ctx)
		if err != nil {
			return "", err
		}
		before()
		e, err := box.Exec(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", in.Text}})
		if err == nil && e.Code != 0 {
			err = fmt.Errorf("%s%s", e.Stdout.Bytes(), e.Stderr.Bytes())
		}
		return string(e.Stdout.Bytes()), err
	}, &tool.FuncOptions{Effect: tool.Sandboxed})
}

// runs returns a workflow that runs scripts, each of which must succeed.
func runs(before func(), scripts ...string) flow.Workflow {
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		for _, text := range scripts {
			next, r, err := flow.CallTool(ctx, s, script(before), map[string]string{"text": text})
			if err == nil && r.IsError {
				err = fmt.Errorf("%s", r.Body)
			}
			if s = next; err != nil {
				return s, err
			}
		}
		return s, nil
	})
}

// eachWay runs a test with copied directories and, if possible, with directories that
// share a checkout; all of them are below dir.
func eachWay(t *testing.T, f func(t *testing.T, dir string, forks *lease.Forks)) {
	t.Run("copied", func(t *testing.T) { f(t, t.TempDir(), nil) })
	t.Run("shared", func(t *testing.T) {
		dir := t.TempDir()
		forks, err := lease.NewForks(filepath.Join(dir, "forks"))
		if errors.Is(err, overlay.ErrUnsupported) && os.Geteuid() != 0 {
			t.Skip(err)
		}
		must.Do(t, err)
		t.Cleanup(func() { must.Report(t, lease.ClearForks(dir)) })
		f(t, dir, forks)
	})
}

// mountsBelow returns the number of mounts below a directory.
func mountsBelow(t *testing.T, dir string) (n int) {
	t.Helper()
	data := must.Get(os.ReadFile("/proc/self/mounts"))(t)
	return strings.Count(string(data), " "+dir+"/")
}

// TestForksOfFiles: branches that begin at one head, and change it concurrently in all
// ways, have the same files in the end whether they share a checkout or have copies, and
// leave no files on the host.
func TestForksOfFiles(t *testing.T) {
	scripts := map[string][]string{
		"edits":   {"echo new > d/e/deep; echo more >> top", "cat d/e/deep top"},
		"moves":   {"mv d moved; mkdir d; echo other > d/f", "test ! -e d/e && cat moved/e/deep"},
		"removes": {"rm -r d; rm top", "echo back > top; mkdir d"},
		"guarded": {"echo no > .github/workflows/ci.yml; rm -r .vscode; echo yes > yes", "cat .github/workflows/ci.yml"},
		"nothing": {"cat top"},
	}
	names := []string{"edits", "moves", "removes", "guarded", "nothing"}
	results := map[bool][]blob.Digest{}
	eachWay(t, func(t *testing.T, dir string, forks *lease.Forks) {
		store := blob.NewMemory()
		rt := &inprocess.Runtime{Runtime: engine.Runtime{
			Blobs:      func(session.Tenant) blob.Store { return store },
			Workspaces: lease.Workspaces{Dir: filepath.Join(dir, "work"), Backends: map[string]sandbox.Backend{"local": forkable()}, Forks: forks},
		}}
		var mu sync.Mutex
		open, most, shared := 0, 0, 0
		all := make(chan struct{})
		together := func() { // until the sandbox of each branch is open
			mu.Lock()
			if open++; open == len(names) {
				most = mountsBelow(t, dir)
				left, _ := os.ReadDir(filepath.Join(dir, "forks"))
				shared = len(left)
				close(all)
			}
			mu.Unlock()
			select {
			case <-all:
			case <-time.After(20 * time.Second):
				t.Error("the branches do not run at the same time")
			}
		}
		start := t.TempDir()
		for _, p := range []string{".github/workflows/ci.yml", ".vscode/tasks.json"} {
			must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(start, p)), 0o755), os.WriteFile(filepath.Join(start, p), []byte("old\n"), 0o644)))
		}
		w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			s, err := runs(func() {}, "mkdir -p d/e; echo old > d/e/deep; echo old > d/f; echo old > top").Forward(ctx, s.To("local", start))
			if err != nil {
				return s, err
			}
			var bs []flow.Branch
			for _, n := range names {
				bs = append(bs, flow.Branch{Name: n, Workflow: runs(together, scripts[n]...)})
			}
			j, err := flow.FanOut(ctx, s, bs, nil)
			if err != nil {
				return s, err
			}
			for i, o := range j.Outcomes {
				if o.Err != nil {
					t.Errorf("%s: %v", names[i], o.Err)
					continue
				}
				tree, err := manifest.Load(ctx, store, o.Session.Placement().Head)
				if err != nil {
					return s, err
				}
				results[forks != nil] = append(results[forks != nil], tree.Digest())
			}
			return flow.Merge(ctx, j, flow.WithFiles(flow.SinceAncestor(), flow.TakeOurs, nil))
		})
		s := must.Get(rt.Run(t.Context(), w, session.New(session.UserText("go"))))(t)
		tree := must.Get(manifest.Load(t.Context(), store, s.Placement().Head))(t)
		results[forks != nil] = append(results[forks != nil], tree.Digest())
		if forks != nil && (most != len(names) || shared != len(names)+1) {
			t.Errorf("%d directories were mounted and %d there, of %d branches", most, shared, len(names))
		}
		if n := mountsBelow(t, dir); n != 0 {
			t.Errorf("%d mounts are left", n)
		}
		for _, d := range []string{"work", "forks"} {
			_ = filepath.WalkDir(filepath.Join(dir, d), func(p string, e os.DirEntry, err error) error {
				if err == nil && !e.IsDir() {
					t.Errorf("left is %s", p)
				}
				return nil
			})
		}
	})
	if len(results) == 2 && (len(results[true]) != len(names)+1 || !slices.Equal(results[true], results[false])) {
		t.Errorf("shared: %v\ncopied: %v", results[true], results[false])
	}
}

// TestForksWithoutMounts: if no further mount is possible each fork has a copy.
func TestForksWithoutMounts(t *testing.T) {
	eachWay(t, func(t *testing.T, dir string, forks *lease.Forks) {
		if forks == nil {
			return
		}
		lower, changes := filepath.Join(dir, "lower"), filepath.Join(dir, "changes")
		if err := errors.Join(os.Mkdir(lower, 0o700), os.Mkdir(changes, 0o700), overlay.Mount(lower, changes, filepath.Join(dir, "forks"))); err != nil {
			t.Fatal(err) // upon that no overlay can be mounted
		}
		rt := &inprocess.Runtime{Runtime: engine.Runtime{
			Workspaces: lease.Workspaces{Dir: filepath.Join(dir, "work"), Backends: map[string]sandbox.Backend{"local": forkable()}, Forks: forks},
		}}
		most := 0
		s, err := rt.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			s, err := runs(func() {}, "echo old > f").Forward(ctx, s.To("local", ""))
			if err != nil {
				return s, err
			}
			j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "a", Workflow: runs(func() { most = mountsBelow(t, dir) }, "cat f; echo new > f")}}, nil)
			if err != nil {
				return s, err
			}
			return flow.Merge(ctx, j, flow.WithFiles(flow.SinceAncestor(), flow.TakeOurs, nil))
		}), session.New(session.UserText("go")))
		must.Do(t, err)
		data, err := workspace.Read(t.Context(), rt.Runtime.Blobs(s.Key().Tenant), s.Placement().Head, "f")
		if err != nil || string(data) != "new\n" || most != 1 {
			t.Errorf("f is %q, %v, with %d mounts", data, err, most)
		}
		if left, err := os.ReadDir(filepath.Join(dir, "forks")); err != nil || len(left) != 0 {
			t.Errorf("left is %v, %v", left, err)
		}
	})
}

// stubborn is a store that delays its reads until it is released, or the context ends.
type stubborn struct {
	blob.Store
	reads      atomic.Int32
	let, asked chan struct{}
}

func (s *stubborn) Get(ctx context.Context, d blob.Digest) (io.ReadCloser, error) {
	if s.reads.Add(1) == 1 {
		close(s.asked)
	}
	select {
	case <-s.let:
		return s.Store.Get(ctx, d)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestForkOfCancelledCheckout: a caller that waits for another one's checkout, which is
// cancelled, makes it itself. The last fork that ends removes it.
func TestForkOfCancelledCheckout(t *testing.T) {
	eachWay(t, func(t *testing.T, dir string, forks *lease.Forks) {
		if forks == nil {
			return
		}
		mem := blob.NewMemory()
		head := headOf(t, mem, map[string]string{"a": "1", "d/b": "2"})
		store := &stubborn{Store: mem, let: make(chan struct{}), asked: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		work := filepath.Join(dir, "work")
		must.Do(t, os.Mkdir(work, 0o700))
		first := make(chan error)
		go func() {
			_, _, err := forks.Open(ctx, store, "t", head, filepath.Join(work, "first"))
			first <- err
		}()
		<-store.asked
		second := make(chan func() error)
		go func() {
			take, remove, err := forks.Open(t.Context(), store, "t", head, filepath.Join(work, "second"))
			if err != nil {
				t.Error(err)
			} else if now, _, err := take(t.Context(), head, workspace.Limits{}, nil); err != nil || now != head {
				t.Errorf("the fork holds %s, %v", now.Short(), err)
			}
			second <- remove
		}()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
		close(store.let)
		remove := <-second
		if _, _, err := forks.Open(t.Context(), mem, "another", head, filepath.Join(work, "third")); err != nil {
			t.Error(err) // with a checkout of its own
		}
		if left, err := os.ReadDir(filepath.Join(dir, "forks")); err != nil || len(left) != 4 {
			t.Errorf("two forks of two tenants have %v, %v", left, err)
		}
		must.Report(t, remove())
		if left, err := os.ReadDir(filepath.Join(dir, "forks")); err != nil || len(left) != 2 {
			t.Errorf("the fork that is left has %v, %v", left, err)
		}
	})
}

// headOf returns the head of a directory with some files.
func headOf(t testing.TB, b blob.Store, files map[string]string) blob.Digest {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)))
	}
	head := must.Get(workspace.Snapshot(t.Context(), b, dir, blob.Digest{}, workspace.Limits{}))(t)
	return head
}

// BenchmarkFork opens and removes forks of a head of 5,000 files of 10 KiB beside copies
// of its directory, as cp makes them. It fails if a fork takes more than its share of the
// time of a copy, each at its best.
func BenchmarkFork(b *testing.B) {
	const (
		files = 5000
		bar   = 0.1
	)
	dir := b.TempDir()
	forks, err := lease.NewForks(filepath.Join(dir, "forks"))
	if err != nil {
		b.Skip(err)
	}
	store, all := blob.NewMemory(), map[string]string{}
	for i := range files {
		all[fmt.Sprintf("d%02d/%04d.txt", i%100, i)] = strings.Repeat(fmt.Sprintf("%09d ", i), 1024)
	}
	head := headOf(b, store, all)
	_, remove, err := forks.Open(b.Context(), store, "t", head, filepath.Join(dir, "first"))
	must.Do(b, err)
	fork, copied, ended, unread := time.Hour, time.Hour, time.Hour, time.Hour
	for b.Loop() {
		began := time.Now()
		take, remove := must.Pair(forks.Open(b.Context(), store, "t", head, filepath.Join(dir, "fork")))(b)
		fork, began = min(fork, time.Since(began)), time.Now()
		if now, _, err := take(b.Context(), head, workspace.Limits{}, nil); err != nil || now != head {
			b.Fatalf("the fork holds %s, %v", now.Short(), err)
		}
		unread, began = min(unread, time.Since(began)), time.Now()
		must.Do(b, remove())
		ended, began = min(ended, time.Since(began)), time.Now()
		to := filepath.Join(dir, "copy")
		if out, err := exec.Command("cp", "-a", filepath.Join(dir, "first"), to).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		copied = min(copied, time.Since(began))
		must.Do(b, os.RemoveAll(to))
	}
	must.Do(b, remove())
	b.ReportMetric(float64(copied.Microseconds())/1000, "ms-copy")
	b.ReportMetric(float64(fork.Microseconds())/1000, "ms-fork")
	b.ReportMetric(float64(ended.Microseconds())/1000, "ms-end")
	b.ReportMetric(float64(unread.Microseconds())/1000, "ms-snapshot")
	b.ReportMetric(fork.Seconds()/copied.Seconds(), "x-copy")
	b.ReportMetric(bar, "x-copy-bar")
	if fork.Seconds() > bar*copied.Seconds() {
		b.Errorf("a fork of %d files takes %v, a copy %v: bar %.2f of it", files, fork, copied, bar)
	}
}
