package main

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// shared is a buffer that a child writes while a test reads.
type shared struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestSetApart sets a session apart on a node that works: what is submitted to
// it waits, and runs once it is released, while somebody watches.
func TestSetApart(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("a process cannot be interrupted from outside here")
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err := errors.Join(err, listener.Close()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	dev, devOut := start(t, dir, "dev", "--port", port)
	waitFor(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, ".rath", "node.json"))
		return err == nil
	})
	t.Chdir(dir)
	rath := func(line, want string) {
		t.Helper()
		if got := command(t, "rath "+line, dir); !strings.Contains(got, want) {
			t.Errorf("$ rath %s\n%swant %q", line, got, want)
		}
	}
	var seen shared
	watch := startTo(t, dir, &seen, "ps", "--watch")

	rath("run -m one --session chat --id first -q", "echo: one")
	waitFor(t, func() bool { return strings.Contains(seen.String(), "first") })
	rath("quarantine first --reason odd --by ana", "run first is set apart")
	rath("submit agent -m two --session chat --id second -q", "second")
	held := func() bool {
		return strings.Contains(command(t, "rath ps --where 'quarantined=yes and state=queued' --no-headers -q", dir), "second")
	}
	waitFor(t, held)
	rath("ps --where run=second -q --no-headers", "set apart: odd")
	waitFor(t, func() bool { return strings.Contains(seen.String(), "set apart: odd") })
	rath("release --where quarantined=yes --reason fine", "is released")
	waitFor(t, func() bool {
		return strings.Contains(command(t, "rath ps --where 'run=second and state=succeeded' --no-headers -q", dir), "second")
	})
	rath("rerun second", "goes on as second-r1")
	waitFor(t, func() bool {
		return strings.Contains(command(t, "rath ps --where 'run=second-r1 and state=succeeded' --no-headers -q", dir), "second-r1")
	})
	rath("show second-r1", "echo: two")
	rath("graph first", "ana         sets the session apart: odd")

	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("ps --watch printed\n%s", &seen)
		}
	})
	waitFor(t, func() bool { return strings.Contains(seen.String(), "second-r1") })
	if err := watch.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = watch.Wait() // the exit code tells
	if code := watch.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("ps --watch ends with %d, want %d:\n%s", code, exitInterrupted, &seen)
	}
	if err := dev.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := dev.Wait(); err != nil {
		t.Errorf("dev: %v\n%s", err, devOut)
	}
}
