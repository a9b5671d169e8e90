// Package sandboxtest is the suite that every sandbox.Backend must pass.
//
// A backend's tests call [TestBackend], and their TestMain calls [Probe]
// first:
//
//	func TestMain(m *testing.M) {
//		local.Reexec()
//		sandboxtest.Probe()
//		os.Exit(m.Run())
//	}
//
//	func TestConformance(t *testing.T) {
//		sandboxtest.TestBackend(t, func(t *testing.T) sandbox.Backend { return local.New(nil) })
//	}
//
// Commands are run with a POSIX shell and the usual small programs, which the sandbox must
// have. The table of checks and the backend's Capabilities decide which checks a weaker
// backend may skip, never an attempt.
package sandboxtest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// suite is the state of a check. Checks share only the backend.
type suite struct {
	backend sandbox.Backend
	caps    sandbox.Capabilities

	file  string          // the backend's column of the table; "" for none
	check string          // the running check
	due   map[string]bool // the inputs that it has not tried yet
}

// check tests one property. needs selects the backends that promise the property.
type check struct {
	name  string
	needs promise
	run   func(*testing.T, *suite)
}

// promise is a property that a backend offers or lacks.
type promise struct {
	holds func(sandbox.Capabilities) bool
	lacks string
}

// limits selects the backends that enforce a limit.
func limits(name string) promise {
	return promise{func(c sandbox.Capabilities) bool { return slices.Contains(c.Limits, name) }, "no limit of " + name}
}

func level(least sandbox.Isolation) func(sandbox.Capabilities) bool {
	return func(c sandbox.Capabilities) bool { return c.Isolation.AtLeast(least) }
}

// The promises that a check can need.
var (
	always    = promise{func(sandbox.Capabilities) bool { return true }, ""}
	wholeTree = promise{func(c sandbox.Capabilities) bool { return c.WholeTree }, "processes may be left"}
	kernel    = promise{level(sandbox.IsolationKernel), "commands are not confined"}
	container = promise{level(sandbox.IsolationContainer), "no daemon"}
	// Elsewhere temporary files are on a disk.
	memoryFiles = promise{func(c sandbox.Capabilities) bool {
		return c.Isolation.AtLeast(sandbox.IsolationContainer) && slices.Contains(c.Limits, sandbox.LimitMemory)
	}, "temporary files are on a disk"}
	weak = promise{func(c sandbox.Capabilities) bool { return c.Isolation == sandbox.IsolationProcess }, "commands are confined"}
)

var checks = []check{
	{"exec/echo", always, testEcho},
	{"exec/exit code", always, testExitCode},
	{"exec/signal", always, testSignal},
	{"exec/not started", always, testNotStarted},
	{"exec/senseless commands", always, testSenseless},
	{"exec/stdin", always, testStdin},
	{"exec/unread stdin", always, testUnreadStdin},
	{"exec/failing stdin and offload", always, testFailingStreams},
	{"exec/environment", always, testEnvironment},
	{"exec/directory", always, testDirectory},
	{"exec/binary output", always, testBinaryOutput},
	{"exec/output flood", always, testFlood},
	{"exec/in parallel", always, testParallel},
	{"exec/huge commands", always, testHuge},
	{"exec/no programs", always, testNoPrograms},
	{"exec/imitated messages", always, testImitation},
	{"exec/a byte at a time", always, testDribble},
	{"exec/own directory", kernel, testOwnDirectory},
	{"tree/deadline", always, testDeadline},
	{"tree/cancel", always, testCancel},
	{"tree/ended context", always, testEndedContext},
	{"tree/background process", always, testBackground},
	{"tree/detached process", wholeTree, testDetached},
	{"tree/detached process at the deadline", wholeTree, testDetachedDeadline},
	{"tree/relay of processes", wholeTree, testRelay},
	{"files/round trip", always, testFiles},
	{"files/seen by commands", always, testFilesAndExec},
	{"files/replaced whole", always, testReplace},
	{"files/removed and renamed", always, testRemove},
	{"files/list", always, testList},
	{"files/long list", always, testLongList},
	{"files/missing", always, testMissing},
	{"files/escapes", always, testEscapes},
	{"files/special files", always, testSpecialFiles},
	{"files/links", always, testLinks},
	{"files/swap race", always, testSwapRace},
	{"close", always, testClose},
	{"close/running command", always, testCloseRunning},
	{"close/unfinished file", always, testCloseUnfinished},
	{"spec/resolved", always, testResolve},
	{"spec/not offered", always, testUnofferedSpec},
	{"spec/unenforced limits", always, testLimits},
	{"limits/disk", limits(sandbox.LimitDisk), testDisk},
	{"limits/memory", limits(sandbox.LimitMemory), testMemory},
	{"limits/processors", limits(sandbox.LimitCPU), testCPU},
	{"limits/processes", limits(sandbox.LimitPIDs), testPIDs},
	{"limits/threads", limits(sandbox.LimitPIDs), testThreads},
	{"limits/memory of files", memoryFiles, testMemoryFiles},
	{"spec/weak isolation", weak, testWeak},
	{"spec/missing directory", always, testNoDirectory},
	{"kernel/files outside", kernel, testOutside},
	{"kernel/metadata outside", kernel, testMetadata},
	{"kernel/network", kernel, testNetwork},
	{"kernel/network list", listed, testNetworkList},
	{"services/loopback", services, testServices},
	{"services/processes", services, testServiceTree},
	{"services/files", services, testServiceFiles},
	{"services/output flood", services, testServiceFlood},
	{"services/not offered", noServices, testNoServices},
	{"services/port without services", always, testPortWithoutServices},
	{"kernel/processes outside", kernel, testProcesses},
	{"kernel/processes of another sandbox", kernel, testSibling},
	{"kernel/calls", kernel, testCalls},
	{"kernel/alarms", kernel, testAlarms},
	{"container/daemon", container, testDaemon},
	{"kernel/open files", kernel, testOpenFiles},
	{"kernel/what must work", kernel, testMustWork},
}

// alone reports whether a check runs before all others, and concurrently with none: it
// measures the machine's resources, or changes this process.
func (c check) alone() bool {
	return strings.HasPrefix(c.name, "limits/") || c.name == "exec/environment" || c.name == "kernel/open files"
}

// TestBackend runs the checks that the backend's Capabilities promise, concurrently unless
// they measure the machine. newBackend is called once.
func TestBackend(t *testing.T, newBackend func(t *testing.T) sandbox.Backend) {
	test(t, newBackend, "")
}

// TestKernel runs the checks of the restrictions that the kernel enforces.
func TestKernel(t *testing.T, newBackend func(t *testing.T) sandbox.Backend) {
	test(t, newBackend, "kernel/")
}

func test(t *testing.T, newBackend func(t *testing.T) sandbox.Backend, prefix string) {
	b := newBackend(t)
	caps, err := b.Probe(t.Context())
	if err != nil {
		t.Fatalf("Probe: %v", err)
	}
	if b.Name() == "" || caps.Isolation == "" || caps.Detail == "" {
		t.Errorf("the backend says too little of itself: %q, %+v", b.Name(), caps)
	}
	file := ""
	if prefix == "" {
		file = tableFile(caps)
	}
	for _, c := range checks {
		s := &suite{backend: b, caps: caps, file: file}
		switch {
		case !strings.HasPrefix(c.name, prefix):
		case !c.needs.holds(caps):
			s.begin(t, c, c.needs.lacks)
		default:
			t.Run(c.name, func(t *testing.T) {
				if !c.alone() {
					t.Parallel()
				}
				s.begin(t, c, "")
				c.run(t, s)
				s.finish(t)
			})
		}
	}
}

// box is an open sandbox with shorthands that fail the test.
type box struct {
	sandbox.Sandbox
	t   *testing.T
	s   *suite
	dir string
}

// open opens a sandbox over a new directory and closes it with the test.
func (s *suite) open(t *testing.T) *box {
	t.Helper()
	return s.openSpec(t, sandbox.Spec{Dir: t.TempDir()})
}

func (s *suite) openSpec(t *testing.T, spec sandbox.Spec) *box {
	t.Helper()
	spec.MinIsolation = s.caps.Isolation
	sb, err := s.backend.Open(t.Context(), spec)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := sb.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	if got := sb.Info(); got.Isolation != s.caps.Isolation {
		t.Errorf("Info says isolation %q, Probe said %q", got.Isolation, s.caps.Isolation)
	}
	return &box{Sandbox: sb, t: t, s: s, dir: spec.Dir}
}

// patience is far longer than any step takes; no test waits for it to pass.
const patience = 30 * time.Second

func (b *box) exec(c sandbox.Cmd) sandbox.Exit {
	b.t.Helper()
	if c.Timeout == 0 {
		c.Timeout = patience
	}
	e, err := b.Exec(b.t.Context(), c)
	if err != nil {
		b.t.Fatalf("Exec %q: %v", c.Argv, err)
	}
	return e
}

func (b *box) sh(script string) sandbox.Exit {
	b.t.Helper()
	return b.exec(sandbox.Cmd{Argv: []string{"sh", "-c", script}})
}

// want checks a command's outcome and its standard output.
func (b *box) want(e sandbox.Exit, end sandbox.End, code int, stdout string) {
	b.t.Helper()
	if e.Ended != end || e.Code != code || string(e.Stdout.Bytes()) != stdout {
		b.t.Errorf("command: %s\nwant ended %q, code %d, stdout %q", describe(e), end, code, stdout)
	}
}

// how describes a command's outcome in the terms of the table.
func how(e sandbox.Exit) string {
	if e.Ended == sandbox.Exited || e.Ended == sandbox.Signaled {
		return fmt.Sprintf("%s %d", e.Ended, e.Code)
	}
	return string(e.Ended)
}

func describe(e sandbox.Exit) string {
	return fmt.Sprintf("ended %q, code %d, after %v\nstdout: %.300q\nstderr: %.300q", e.Ended, e.Code, e.Elapsed, e.Stdout.Bytes(), e.Stderr.Bytes())
}

func (b *box) write(name, text string) {
	b.t.Helper()
	w, err := b.Files().Create(b.t.Context(), name)
	if err == nil {
		if _, err = io.WriteString(w, text); err == nil {
			err = w.Close()
		}
	}
	if err != nil {
		b.t.Fatalf("write %q: %v", name, err)
	}
}

func (b *box) read(name string) string {
	b.t.Helper()
	r, err := b.Files().Open(b.t.Context(), name)
	if err != nil {
		b.t.Fatalf("open %q: %v", name, err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		b.t.Fatalf("read %q: %v", name, err)
	}
	return string(data)
}

// host prepares files below the sandbox's directory from outside.
func (b *box) host(name, text string) {
	b.t.Helper()
	p := filepath.Join(b.dir, filepath.FromSlash(name))
	must.Do(b.t, os.MkdirAll(filepath.Dir(p), 0o755))
	must.Do(b.t, os.WriteFile(p, []byte(text), 0o644))
}

func (b *box) link(target, name string) {
	b.t.Helper()
	must.Do(b.t, os.Symlink(target, filepath.Join(b.dir, filepath.FromSlash(name))))
}

// canary creates a directory outside every sandbox with a file in it.
func canary(t *testing.T) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	file = filepath.Join(dir, "canary")
	must.Do(t, os.WriteFile(file, []byte(secret), 0o644))
	return dir, file
}

const secret = "the canary's song"

// unharmed checks that the canary is the only file and unchanged.
func unharmed(t *testing.T, dir string) {
	t.Helper()
	names, err := os.ReadDir(dir)
	must.Do(t, err)
	if len(names) != 1 || names[0].Name() != "canary" {
		t.Errorf("the directory outside holds %v", names)
	}
	data, err := os.ReadFile(filepath.Join(dir, "canary"))
	if err != nil || string(data) != secret {
		t.Errorf("the file outside holds %q, %v", data, err)
	}
}

func lines(b []byte) []string {
	return strings.Split(string(bytes.TrimRight(b, "\n")), "\n")
}
