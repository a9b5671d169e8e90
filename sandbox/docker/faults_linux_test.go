package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/proc"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/scripted"
)

// holdsWords checks that an error contains the words.
func holdsWords(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v\nwant %q in it", what, err, w)
		}
	}
}

// TestBoxes follows a session through two sandboxes of an engine: each has a container,
// which is removed with its folder.
func TestBoxes(t *testing.T) {
	var e fakeEngine
	b := e.start(t, nil)
	dir := t.TempDir()
	limits := sandbox.Limits{CPU: 0.5, Memory: 256 << 20, Disk: 1 << 30, PIDs: 32}
	for epoch := range uint64(2) {
		x, err := b.Open(t.Context(), sandbox.Spec{Dir: dir, Owner: "acme/s1", Epoch: epoch + 1, Limits: limits, Services: epoch == 1})
		must.Do(t, err)
		if i := x.Info(); i.Image != "sha256:1" || i.Isolation != sandbox.IsolationContainer || i.Limits != limits {
			t.Errorf("%+v", i)
		}
		exit, err := x.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo $EPOCH >> out"}, Env: map[string]string{"EPOCH": fmt.Sprint(epoch)}})
		if err != nil || exit.Code != 0 {
			t.Errorf("%+v, %v", exit, err)
		}
		if names, _ := e.left(); len(names) != 1 || !strings.HasPrefix(names[0], containerName("acme/s1", epoch+1)[:len("rath-0123456789abcdef-1-")]) {
			t.Errorf("there are %v", names)
		}
		if at, err := x.Files().Stat(t.Context(), "out"); err != nil || at.Size != 2*int64(epoch+1) {
			t.Errorf("the files: %+v, %v", at, err)
		}
		must.Report(t, errors.Join(x.Close(), x.Close()))
		if _, err := x.Exec(t.Context(), sandbox.Cmd{Argv: []string{"true"}}); !errors.Is(err, sandbox.ErrClosed) {
			t.Errorf("a closed sandbox: %v", err)
		}
		if names, _ := e.left(); len(names)+len(b.folders(t)) > 0 {
			t.Errorf("left: %v, %v", names, b.folders(t))
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || string(text) != "0\n1\n" {
		t.Errorf("out: %q, %v", text, err)
	}
	// Failures before a container is created.
	_, made := e.left()
	file := filepath.Join(dir, "out")
	for name, tc := range map[string]struct {
		spec sandbox.Spec
		want string
	}{
		"no directory": {sandbox.Spec{Dir: filepath.Join(dir, "none")}, "make the directory first"},
		"a file":       {sandbox.Spec{Dir: file}, "not a directory"},
		"no image":     {sandbox.Spec{Dir: dir, Image: "gone"}, "no image gone; pull, build or import it there"},
		"no proxy":     {sandbox.Spec{Dir: dir, Network: "list:example.org"}, "there is no proxy"},
		"open network": {sandbox.Spec{Dir: dir, Network: sandbox.NetworkOpen}, "network"},
	} {
		_, err := b.Open(t.Context(), tc.spec)
		holdsWords(t, name, err, "docker: ", tc.want)
	}
	if _, again := e.left(); again != made {
		t.Errorf("%d containers were made for what cannot be opened", again-made)
	}
}

// TestCapabilities: an engine's description of itself determines the backend's
// capabilities.
func TestCapabilities(t *testing.T) {
	for name, tc := range map[string]struct {
		info, runtime string
		isolation     sandbox.Isolation
		limits        []string
		detail        string
	}{
		"all limits":   {info: aboutEngine, isolation: sandbox.IsolationContainer, limits: []string{sandbox.LimitCPU, sandbox.LimitDisk, sandbox.LimitMemory, sandbox.LimitPIDs}, detail: "engine 28.5, runc, Landlock of the test"},
		"no groups":    {info: `{"OSType":"linux","ServerVersion":"20.10","DefaultRuntime":"crun"}`, isolation: sandbox.IsolationContainer, limits: []string{sandbox.LimitDisk}, detail: "engine 20.10, crun, Landlock of the test"},
		"gVisor":       {info: aboutEngine, runtime: "runsc", isolation: sandbox.IsolationGVisor, detail: "engine 28.5, runsc, no limits, Landlock of the test"},
		"gVisor first": {info: strings.Replace(aboutEngine, `"DefaultRuntime":"runc"`, `"DefaultRuntime":"runsc-systrap"`, 1), isolation: sandbox.IsolationGVisor, detail: "engine 28.5, runsc-systrap, no limits, Landlock of the test"},
	} {
		e := fakeEngine{info: tc.info}
		b := e.start(t, nil)
		b.o.Runtime = tc.runtime
		for range 2 {
			c, err := b.Probe(t.Context())
			if err != nil || c.Isolation != tc.isolation || !slices.Equal(c.Limits, tc.limits) || c.Detail != tc.detail {
				t.Errorf("%s: %+v, %v", name, c, err)
			}
		}
		if names, made := e.left(); made != 1 || len(names) > 0 {
			t.Errorf("%s: %d containers were made, %v are left", name, made, names)
		}
	}
}

// TestFaultsStart: a container that fails to start is an error with the cause and a remedy,
// and leaves no container or folder.
func TestFaultsStart(t *testing.T) {
	t.Parallel()
	const busy = "device or resource busy"
	for name, tc := range map[string]struct {
		faults []fault
		begin  func(*fakeContainer)
		inner  []scripted.Fault
		short  bool // the engine's time is short
		is     error
		want   []string
		left   int // containers
	}{
		"answer is lost":     {faults: []fault{{at: "POST /containers/create", carried: true}}, want: []string{"create a container of the image sha256:1", "EOF"}},
		"name is taken":      {faults: []fault{{at: "POST /containers/create", code: 409, message: "The container name is already in use"}}, want: []string{"already in use", "check the engine's log"}},
		"start fails":        {faults: []fault{{at: "POST /containers/ID/start", code: 500, message: "OCI runtime create failed: no space left on device"}}, want: []string{"start a container", "no space left on device"}},
		"cannot be removed":  {faults: []fault{{at: "POST /containers/ID/start", code: 500, message: "OCI runtime create failed"}, {at: "DELETE /containers/ID", code: 500, message: busy}}, want: []string{"start a container", "remove the container", busy}, left: 1},
		"is being removed":   {faults: []fault{{at: "DELETE /containers/ID", code: 409, message: "removal of container c1 is already in progress", times: 1}}},
		"files are left":     {faults: []fault{{at: "DELETE /containers/ID", code: 500, message: "unable to remove filesystem for c1: directory not empty", times: 2}}},
		"removal fails":      {faults: []fault{{at: "DELETE /containers/ID", code: 409, message: "removal of container c1 is already in progress", times: 1}, {at: "POST /containers/ID/wait", code: 500, message: busy}}, want: []string{"remove the container", busy}, left: 1},
		"daemon ends":        {begin: func(c *fakeContainer) { c.kill() }, want: []string{"the daemon does not answer", "its container has ended"}},
		"daemon is not seen": {begin: func(c *fakeContainer) { os.Remove(filepath.Join(c.socket, "s")) }, short: true, is: context.DeadlineExceeded, want: []string{"the daemon does not answer"}},
		"cannot open":        {inner: []scripted.Fault{{Kind: scripted.OpenRefused}}, want: []string{"scripted: open"}},
		"commands get lost":  {inner: []scripted.Fault{{Kind: scripted.LostAnswer}}, want: []string{"the daemon cannot start commands"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := fakeEngine{begin: tc.begin, keeps: true}
			b := e.start(t, nil, tc.inner...)
			if tc.short {
				b.patience = time.Second
			}
			e.set(tc.faults...)
			_, err := b.Probe(t.Context())
			if holdsWords(t, "Probe", err, tc.want...); tc.want == nil && err != nil {
				t.Error(err)
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%v, want %v", err, tc.is)
			}
			names, _ := e.left()
			if len(names) != tc.left {
				t.Errorf("left: %v, want %d", names, tc.left)
			}
			if len(b.folders(t)) != tc.left {
				t.Errorf("%d folders are left, want %d", len(b.folders(t)), tc.left)
			}
		})
	}
}

// TestFaultsCommand: events in a container while a command runs in it.
func TestFaultsCommand(t *testing.T) {
	die := func(_ *fakeEngine, c *fakeContainer) { c.kill() }
	exhaust := func(f ...fault) func(*fakeEngine, *fakeContainer) {
		return func(e *fakeEngine, c *fakeContainer) {
			e.faults = f
			c.exhaust(e.t)
		}
	}
	for name, tc := range map[string]struct {
		trouble func(*fakeEngine, *fakeContainer)
		want    []string // none for a command that ran out of memory
		next    []string // of the command after it; none if it runs
		left    int      // containers, for Sweep
	}{
		"killed":         {trouble: die, want: []string{"the daemon of the sandbox is gone"}, next: []string{"the daemon of the sandbox is gone"}},
		"engine is gone": {trouble: func(e *fakeEngine, c *fakeContainer) { e.faults = []fault{{at: "GET /containers/ID/json"}}; c.kill() }, want: []string{"the daemon of the sandbox is gone"}, next: []string{"is gone"}},
		"out of memory":  {trouble: exhaust()},
		"no other one":   {trouble: exhaust(fault{at: "POST /containers/create", code: 500, message: "no space left on device"}), next: []string{"its memory ran out, and it cannot be opened again", "no space left on device"}},
		"one is kept": {trouble: func(e *fakeEngine, c *fakeContainer) {
			e.keeps = true
			exhaust(fault{at: "DELETE /containers/ID", code: 500, message: "device or resource busy", times: 1})(e, c)
		}, want: []string{"remove the container", "busy"}, left: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var e fakeEngine
			b := e.start(t, map[string]func(*fakeEngine, *fakeContainer){"trouble": tc.trouble})
			dir := t.TempDir()
			must.Do(t, os.WriteFile(filepath.Join(dir, "before"), []byte("kept\n"), 0o644))
			x, err := b.Open(t.Context(), sandbox.Spec{Dir: dir})
			must.Do(t, err)
			exit, err := x.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo during > during; trouble"}})
			if tc.want == nil {
				if err != nil || exit.Ended != sandbox.OutOfMem || !strings.Contains(string(exit.Stderr.Bytes()), "the files are as this command left them") {
					t.Errorf("%+v, %v", exit, err)
				}
			} else if holdsWords(t, "the command", err, append(tc.want, "docker: ")...); !errors.Is(err, sandbox.ErrLost) {
				t.Errorf("%v, want %v", err, sandbox.ErrLost)
			}
			exit, err = x.Exec(t.Context(), sandbox.Cmd{Argv: []string{"cat", "before", "during"}})
			if tc.next == nil {
				if err != nil || string(exit.Stdout.Bytes()) != "kept\nduring\n" {
					t.Errorf("the next command: %+v, %v", exit, err)
				}
			} else if holdsWords(t, "the next command", err, tc.next...); !errors.Is(err, sandbox.ErrLost) {
				t.Errorf("the next command: %v, want %v", err, sandbox.ErrLost)
			}
			e.set()
			must.Report(t, x.Close())
			if names, _ := e.left(); len(names) != tc.left || len(b.folders(t)) != tc.left {
				t.Errorf("left: %v, %v, want %d", names, b.folders(t), tc.left)
			}
		})
	}
}

// TestFaultsSweep: leftover containers are removed, and containers of others are not.
func TestFaultsSweep(t *testing.T) {
	all := []string{"dead", containerName("acme/s1", 1), "unstarted"}
	for name, tc := range map[string]struct {
		faults  []fault
		removed int
		want    []string
	}{
		"all":            {removed: 3},
		"one stays":      {faults: []fault{{at: "DELETE /containers/ID", code: 500, message: "device or resource busy", times: 1}}, removed: 2, want: []string{"docker: sweep: remove ", "busy"}},
		"gone already":   {faults: []fault{{at: "DELETE /containers/ID", code: 404, message: "No such container", carried: true}}, removed: 3},
		"no list":        {faults: []fault{{at: "GET /containers/json", code: 403, message: "authorization denied by plugin p"}}, want: []string{"docker: sweep: list containers, engine at unix://", "denied by plugin p", "have the engine's authorization plugin allow it"}},
		"engine is gone": {faults: []fault{{at: "GET /containers/json"}}, want: []string{"docker: sweep: list containers", "EOF"}},
	} {
		t.Run(name, func(t *testing.T) {
			var e fakeEngine
			b := e.start(t, nil)
			others := e.leave(t, b, all)
			e.set(tc.faults...)
			n, err := b.Sweep(t.Context())
			if holdsWords(t, "Sweep", err, tc.want...); tc.want == nil && err != nil || n != tc.removed {
				t.Errorf("%d were removed, want %d: %v", n, tc.removed, err)
			}
			names, _ := e.left()
			if len(names) != len(others)+len(all)-tc.removed {
				t.Errorf("left: %v", names)
			}
			for _, o := range others {
				if !slices.Contains(names, o) {
					t.Errorf("%s was removed, which is another's", o)
				}
			}
		})
	}
}

// leave adds leftover containers of the given names to the engine, and containers that
// others hold, whose names it returns.
func (e *fakeEngine) leave(t *testing.T, b *driver, left []string) (others []string) {
	t.Helper()
	must.Do(t, b.reach())
	mine := proc.NewLease("", "", 0)
	dead, before := mine, mine
	dead.Started++ // a process whose number was reused
	before.Boot = "of another boot"
	others = []string{containerName("acme/s1", 2), "rath-waits", "of-another-space", "no-lease-of-ours", ""}
	e.mu.Lock()
	defer e.mu.Unlock()
	add := func(name, space string, lease any) {
		text := must.Get(json.Marshal(lease))(t)
		e.next++
		id := fmt.Sprintf("c%d", e.next)
		e.containers[id] = &fakeContainer{ID: id, Name: name, Labels: map[string]string{labelLease: string(text), labelSpace: space, labelFolder: filepath.Join(b.o.State, name)}}
	}
	add(left[0], pidSpace(), dead)
	add(left[1], pidSpace(), mine) // of an older epoch
	add(left[2], "pid:[1]", before)
	add(others[0], pidSpace(), mine)
	add(others[1], pidSpace(), mine)
	add(others[2], "pid:[1]", dead)
	add(others[3], pidSpace(), "text")
	add(others[4], pidSpace(), dead) // removed, and still listed
	return others
}

// TestRun: a node removes leftover containers when it starts, logs the removed ones and the
// failures, and stops with its context.
func TestRun(t *testing.T) {
	var e fakeEngine
	b := e.start(t, nil)
	e.leave(t, b, []string{"dead", containerName("acme/s1", 1), "before"})
	e.set(fault{at: "DELETE /containers/ID", code: 500, message: "device or resource busy", times: 1})
	for _, want := range []string{"containers are left", "removed containers that were left"} {
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		b.log = slog.New(slog.NewTextHandler(writes(func(p []byte) { log.Write(p); cancel() }), nil))
		must.Report(t, b.Run(ctx))
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
			t.Errorf("the log is %q, want %q", got, want)
		}
	}
}

// writes is a writer function.
type writes func(p []byte)

func (w writes) Write(p []byte) (int, error) { w(p); return len(p), nil }

// lines is a log with several writers.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// waiting returns the number of waiting containers.
func (b *driver) waiting() (n int) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	for _, w := range b.pool.kinds {
		n += len(w.list)
	}
	return n
}

// comes waits for a condition.
func comes(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not come that %s", what)
		}
	}
}

// TestFaultsWarm: a waiting container is assigned to a sandbox, with its files. If that
// fails, another container is created, and the files are unchanged. No container is left
// when Run ends.
func TestFaultsWarm(t *testing.T) {
	t.Parallel()
	var e fakeEngine
	b := e.start(t, nil)
	var log lines
	b.o.Warm, b.log = 1, slog.New(slog.NewTextHandler(&log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	use := func(epoch uint64) {
		t.Helper()
		dir := t.TempDir()
		must.Do(t, errors.Join(os.Mkdir(filepath.Join(dir, "d"), 0o755), os.WriteFile(filepath.Join(dir, "d", "a"), []byte("a\n"), 0o644)))
		x := must.Get(b.Open(t.Context(), sandbox.Spec{Dir: dir, Owner: "acme/s1", Epoch: epoch}))(t)
		if names, _ := e.left(); !slices.ContainsFunc(names, func(n string) bool {
			_, is, ok := parseName(n)
			return ok && is == epoch
		}) {
			t.Errorf("there are %v, none of epoch %d", names, epoch)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "d", "a")); err != nil || string(text) != "a\n" {
			t.Errorf("its files: %q, %v", text, err)
		}
		must.Report(t, x.Close())
	}
	comes(t, "Run has begun", func() bool {
		b.pool.mu.Lock()
		defer b.pool.mu.Unlock()
		return b.pool.running
	})
	use(1) // adds the kind to the pool
	comes(t, "a container waits", func() bool { return b.waiting() == 1 })
	_, before := e.left()
	use(2)
	comes(t, "another one waits", func() bool { return b.waiting() == 1 })
	if _, made := e.left(); made != before+1 {
		t.Errorf("%d containers were made for a sandbox in the one that waited and its follower, want 1", made-before)
	}
	e.set(fault{at: "POST /containers/ID/rename", code: 500, message: "Internal error", times: 1})
	use(3)
	if got := log.String(); !strings.Contains(got, "a container that waited cannot be used; another one is made") || !strings.Contains(got, "name the container") {
		t.Errorf("the log: %s", got)
	}
	// A failed creation is logged.
	comes(t, "another one waits", func() bool { return b.waiting() == 1 })
	e.set(fault{at: "POST /containers/create", code: 500, message: "no space left on device", times: 1})
	use(4)
	comes(t, "it is said", func() bool {
		return strings.Contains(log.String(), "a container that would wait for a sandbox was not made")
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if names, _ := e.left(); len(names)+len(b.folders(t)) > 0 {
		t.Errorf("left: %v, %v", names, b.folders(t))
	}
}

// TestPoolKinds: containers wait for a bounded number of kinds, the ones opened last, and
// not for a kind that was not opened for a while.
func TestPoolKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool{want: make(chan struct{}, 1)}
		of := func(n int) kind { return kind{image: fmt.Sprint(n)} }
		open := func(n int) *instance {
			c := p.begin(of(n), 1)
			p.end()
			time.Sleep(time.Second)
			return c
		}
		if open(1) != nil || len(p.kinds) > 0 {
			t.Error("a kind waits although Run does not look after it")
		}
		p.running = true
		for n := range mostKinds {
			open(n)
		}
		k, wait, ok := p.next(1)
		if !ok || k != of(0) || wait > 0 {
			t.Errorf("the next is %+v after %s, %t, want the first kind at once", k, wait, ok)
		}
		p.begin(of(0), 1)
		if _, wait, _ := p.next(1); wait != quiet {
			t.Errorf("while one is opened, the next is made after %s, want %s", wait, quiet)
		}
		p.end()
		if one := new(instance); !p.add(of(0), one) || open(0) != one {
			t.Error("a container that waits is not taken")
		}
		if p.add(of(9), new(instance)) {
			t.Error("a container of a kind that was not opened waits")
		}
		first := new(instance)
		p.add(of(1), first)
		if open(mostKinds) != nil {
			t.Error("a kind that is new has a container")
		}
		if old := p.expire(false); len(old) != 1 || old[0] != first {
			t.Errorf("%v make room, want the container of the kind that rests longest", old)
		}
		if open(mostKinds); len(p.kinds) != mostKinds {
			t.Errorf("there are %d kinds, want %d", len(p.kinds), mostKinds)
		}
		time.Sleep(kindRest)
		if _, _, ok := p.next(1); ok {
			t.Error("a kind that rests is missing a container")
		}
		if p.expire(false); len(p.kinds) > 0 {
			t.Errorf("%d kinds that rest wait", len(p.kinds))
		}
	})
}
