//go:build engine

package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// killEngine kills the engine with kill -9, and returns a function that starts it again.
func killEngine(t *testing.T) (start func() (ended <-chan string)) {
	t.Helper()
	data, err := os.ReadFile(os.Getenv("RATH_ENGINE_PIDFILE"))
	if err != nil {
		t.Fatalf("RATH_ENGINE_PIDFILE: %v; run the tests with .ci/engine", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	must.Do(t, err)
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	must.Do(t, err)
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	if filepath.Base(args[0]) != "dockerd" {
		t.Fatalf("%s is no engine", args[0])
	}
	must.Do(t, syscall.Kill(pid, syscall.SIGKILL))
	return func() <-chan string {
		t.Helper()
		dir := filepath.Dir(os.Getenv("RATH_ENGINE_PIDFILE"))
		// Its containerd is killed with it, and appears alive where no init reaps it.
		if err := os.Remove(filepath.Join(dir, "exec", "containerd", "containerd.pid")); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		log := must.Get(os.Create(filepath.Join(dir, "log.again")))(t)
		defer log.Close()
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it outlasts the test; .ci/engine ends it
		must.Do(t, cmd.Start())
		ended := make(chan string, 1)
		go func() {
			err := cmd.Wait()
			said, _ := os.ReadFile(log.Name()) // the log so far
			ended <- fmt.Sprintf("%v: %s", err, said[max(0, len(said)-2000):])
		}()
		return ended
	}
}

// TestKilledEngine kills the engine with kill -9 while a command changes files. The command
// needs no engine and keeps running. The restarted engine ends the containers of the
// previous one: then the call returns that the sandbox is lost. The container leaves no
// trace, and the next sandbox has the same files.
func TestKilledEngine(t *testing.T) {
	b, dir := backend(t), t.TempDir()
	sb := must.Get(b.Open(t.Context(), sandbox.Spec{Dir: dir, Owner: "session", Epoch: 1, MinIsolation: sandbox.IsolationContainer}))(t)
	old := sb.(*box)
	ended := make(chan error, 1)
	go func() {
		_, err := old.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo effect >> effects; while :; do echo x >> beat; sleep 0.02; done"}, Timeout: 10 * patience})
		ended <- err
	}()
	beat := filepath.Join(dir, "beat")
	until(t, "the command begins", func() bool { return size(t, beat) > 0 })

	start := killEngine(t)
	until(t, "the engine is gone", func() bool {
		_, err := b.engine.running(t.Context(), old.c.id)
		return err != nil
	})
	before := size(t, beat)
	until(t, "the command goes on", func() bool { return size(t, beat) > before+20 })
	if e := sh(t, old, "cat effects"); string(e.Stdout.Bytes()) != "effect\n" {
		t.Errorf("another command without an engine: %q, %s", e.Stdout.Bytes(), e.Stderr.Bytes())
	}
	if _, err := b.Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationContainer}); err == nil || !strings.Contains(err.Error(), "start an engine there") {
		t.Errorf("a sandbox without an engine: %v", err)
	}

	began := time.Now()
	down := start()
	select {
	case said := <-down:
		t.Fatalf("the engine that was started again ends: %s", said)
	case err := <-ended:
		if !errors.Is(err, sandbox.ErrLost) {
			t.Errorf("the command ends with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the command does not end")
	}
	t.Logf("the command ended %v after the engine was started again", time.Since(began).Round(time.Millisecond))
	until(t, "the engine answers", func() bool {
		_, err := b.engine.info(t.Context())
		return err == nil
	})
	young := open(t, b, sandbox.Spec{Dir: dir, Owner: "session", Epoch: 2})
	if e := sh(t, young, "cat effects; echo more >> effects"); string(e.Stdout.Bytes()) != "effect\n" {
		t.Errorf("the next sandbox has %q, %s", e.Stdout.Bytes(), e.Stderr.Bytes())
	}
	until(t, "the old container is removed", func() bool {
		must.Get(b.Sweep(t.Context()))(t)
		list := must.Get(b.engine.list(context.Background(), labelLease))(t)
		for _, c := range list {
			if c.ID == old.c.id {
				return false
			}
		}
		return true
	})
	if err := old.Close(); err != nil {
		t.Errorf("close what is lost: %v", err)
	}
	sh(t, young, "true")
}
