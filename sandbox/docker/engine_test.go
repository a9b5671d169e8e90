//go:build engine

package docker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/proc"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

// These tests need an engine (DOCKER_HOST) and the tar of an image
// (RATH_SANDBOX_IMAGE_TAR). .ci/engine starts the engine and creates the tar. Without them
// the tests fail. RATH_TEST_RUNTIME names another runtime of the engine, see .ci/gvisor.
// With -update the suite writes the backend's column of the table of hostile inputs.
var _ = flag.Bool("update", false, "write testdata")

func TestMain(m *testing.M) {
	Reexec()
	sandboxtest.Probe()
	if dir := os.Getenv(holderDir); dir != "" {
		hold(dir)
		return
	}
	os.Exit(m.Run())
}

// testImage is the name under which the tar is imported.
const testImage = "rath-sandbox:test"

func backend(t testing.TB) *driver { return backendAt(t, t.TempDir(), 0) }

func backendAt(t testing.TB, state string, lease time.Duration) *driver {
	t.Helper()
	tar := os.Getenv("RATH_SANDBOX_IMAGE_TAR")
	if tar == "" {
		t.Fatal("RATH_SANDBOX_IMAGE_TAR names no image: run the tests with .ci/engine")
	}
	b := newDriver(&Options{State: state, Image: testImage, ImageTar: tar, Lease: lease, Runtime: os.Getenv("RATH_TEST_RUNTIME")})
	b.patience *= 4 // a kernel is slow while it creates and removes a hundred containers
	return b
}

func TestConformance(t *testing.T) {
	sandboxtest.TestBackend(t, func(t *testing.T) sandbox.Backend { return backend(t) })
}

func open(t *testing.T, b *driver, s sandbox.Spec) *box {
	t.Helper()
	s.MinIsolation = sandbox.IsolationContainer
	if s.Dir == "" {
		s.Dir = t.TempDir()
	}
	sb := must.Get(b.Open(t.Context(), s))(t)
	t.Cleanup(func() { must.Report(t, sb.Close()) })
	return sb.(*box)
}

func sh(t *testing.T, x *box, script string) sandbox.Exit {
	t.Helper()
	e := must.Get(x.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", script}, Timeout: patience}))(t)
	return e
}

// TestPrivileges checks the privileges of commands: each sandbox has another user, without
// a capability, and the daemon's mounts are inaccessible.
func TestPrivileges(t *testing.T) {
	b := backend(t)
	x, y := open(t, b, sandbox.Spec{}), open(t, b, sandbox.Spec{})
	e := sh(t, x, "ls /run/rath /run/rath/socket /run/rath/state >/dev/null && echo seen; touch /x /usr/x && echo written; cat /proc/1/environ; kill -9 1; kill -9 2; echo end")
	if got := string(e.Stdout.Bytes()); got != "end\n" {
		t.Errorf("a command can do more than it may: %s%s", got, e.Stderr.Bytes())
	}
	// As the host sees it; the command itself may not inspect it.
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := x.Exec(ctx, sandbox.Cmd{Argv: []string{"sleep", "1000"}})
		ended <- err
	}()
	var status string
	until(t, "the command begins", func() bool {
		names := must.Get(filepath.Glob("/proc/[0-9]*/status"))(t)
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err == nil && strings.HasPrefix(string(data), "Name:\tsleep\n") && strings.Contains(string(data), fmt.Sprintf("\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", x.c.uid)) {
				status = string(data)
			}
		}
		return status != ""
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, line := range []string{
		"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000",
		"NoNewPrivs:\t1", "Seccomp:\t2", "Groups:\t ",
	} {
		if !strings.Contains(status, "\n"+line+"\n") {
			t.Errorf("a command has no %q:\n%s", line, status)
		}
	}
	mine, other := sh(t, x, "id -u").Stdout.Bytes(), sh(t, y, "id -u").Stdout.Bytes()
	if string(mine) == string(other) || string(mine) == "0\n" {
		t.Errorf("the users of two sandboxes are %s and %s", mine, other)
	}
}

// TestCloseRemoves: a closed sandbox has no container any more, even if the engine was
// about to remove it because its daemon had ended.
func TestCloseRemoves(t *testing.T) {
	b := backend(t)
	for range 3 {
		sb := must.Get(b.Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationContainer}))(t)
		x := sb.(*box)
		if err := x.c.client.Close(); err != nil { // its daemon ends before Close
			t.Fatal(err)
		}
		until(t, "the engine removes it", func() bool {
			up, err := b.engine.running(t.Context(), x.c.id)
			return err == nil && !up
		})
		must.Do(t, sb.Close())
		left := must.Get(b.engine.list(t.Context(), labelLease))(t)
		for _, c := range left {
			if c.ID == x.c.id {
				t.Errorf("%s is left", c.Name)
			}
		}
	}
}

// holderDir is the variable with the workspace of a process that holds a container until it
// is killed.
const holderDir = "RATH_TEST_HOLDER"

// hold opens a sandbox and starts a command that changes files.
func hold(dir string) {
	t := new(testing.T)
	lease, err := time.ParseDuration(os.Getenv("RATH_TEST_LEASE"))
	if err != nil {
		panic(err)
	}
	b := backendAt(t, os.Getenv("RATH_TEST_STATE"), lease)
	sb, err := b.Open(context.Background(), sandbox.Spec{Dir: dir, Owner: "session", Epoch: 1})
	if err != nil {
		panic(err)
	}
	fmt.Println(sb.(*box).c.id)
	_, err = sb.Exec(context.Background(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo effect >> effects; while :; do echo x >> beat; sleep 0.02; done"}, Timeout: 10 * patience})
	fmt.Println(errors.Is(err, sandbox.ErrLost))
}

// holder starts such a process and waits until its command has changed a file.
func holder(t *testing.T, state, dir string, lease time.Duration) (cmd *exec.Cmd, id string, said *bufio.Scanner) {
	t.Helper()
	cmd = exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), holderDir+"="+dir, "RATH_TEST_STATE="+state, "RATH_TEST_LEASE="+lease.String())
	cmd.Stderr = os.Stderr
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait() // its status does not matter
	})
	said = bufio.NewScanner(out)
	if !said.Scan() {
		t.Fatal("the holder says nothing")
	}
	until(t, "the command begins", func() bool { return size(t, filepath.Join(dir, "beat")) > 0 })
	return cmd, said.Text(), said
}

func size(t *testing.T, name string) int64 {
	t.Helper()
	fi, err := os.Stat(name)
	if err != nil {
		if os.IsNotExist(err) {
			return 0
		}
		t.Fatal(err)
	}
	return fi.Size()
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("it does not come that %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (b *driver) up(t *testing.T, id string) bool {
	t.Helper()
	up := must.Get(b.engine.running(t.Context(), id))(t)
	return up
}

// TestKilledHolder kills the process that holds a container with -9 while a command changes
// files: the container ends by itself, the files stay as they are, and the next holder
// continues with them.
func TestKilledHolder(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	const lease = time.Hour // only the end of the connection ends it
	cmd, id, _ := holder(t, state, dir, lease)
	b := backendAt(t, state, lease)
	must.Get(b.Probe(t.Context()))(t)
	if !b.up(t, id) {
		t.Fatal("the container of the holder does not run")
	}
	must.Do(t, cmd.Process.Kill())
	cmd.Wait() // it was killed
	until(t, "the container ends", func() bool { return !b.up(t, id) })
	x := open(t, b, sandbox.Spec{Dir: dir, Owner: "session", Epoch: 2})
	before := size(t, filepath.Join(dir, "beat"))
	e := sh(t, x, "sleep 0.2; cat effects; echo more >> effects")
	if got := string(e.Stdout.Bytes()); got != "effect\n" || e.Code != 0 {
		t.Errorf("the next holder finds %q, %s", got, e.Stderr.Bytes())
	}
	if after := size(t, filepath.Join(dir, "beat")); after != before {
		t.Error("the command of the holder that was killed goes on")
	}
	// A sweep removes the folder on the host; held containers stay.
	until(t, "its folder is removed", func() bool {
		must.Get(b.Sweep(t.Context()))(t)
		folders, err := filepath.Glob(filepath.Join(state, "box-*"))
		return err == nil && len(folders) == 1 && folders[0] == x.c.folder
	})
	sh(t, x, "true")
}

// TestFrozenHolder stops the process that holds a container: the container ends with the
// lease, and the process notices when it resumes.
func TestFrozenHolder(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	const lease = 5 * time.Second
	cmd, id, said := holder(t, state, dir, lease)
	b := backendAt(t, state, lease)
	must.Get(b.Probe(t.Context()))(t)
	began := time.Now()
	must.Do(t, cmd.Process.Signal(syscall.SIGSTOP))
	until(t, "the container ends", func() bool { return !b.up(t, id) })
	t.Logf("the container ended after %v, the lease is %v", time.Since(began), lease)
	must.Do(t, cmd.Process.Signal(syscall.SIGCONT))
	if !said.Scan() || said.Text() != "true" {
		t.Errorf("whether its sandbox was lost, the holder says %q", said.Text())
	}
}

// TestCancelledOpen ends the context of Open at different moments: no container is left.
func TestCancelledOpen(t *testing.T) {
	b := backend(t)
	must.Get(b.Probe(t.Context()))(t)
	for wait := time.Duration(0); wait < 60*time.Millisecond; wait += 3 * time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		sb, err := b.Open(ctx, sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationContainer})
		cancel()
		if err == nil {
			err = sb.Close()
		} else if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		if err != nil {
			t.Errorf("after %v: %v", wait, err)
		}
	}
	list := must.Get(b.engine.list(t.Context(), labelLease))(t)
	for _, c := range list {
		if strings.HasPrefix(c.Labels[labelFolder], b.o.State) {
			t.Errorf("%s is left", c.Name)
		}
	}
	if folders, err := filepath.Glob(filepath.Join(b.o.State, "box-*")); err != nil || len(folders) > 0 {
		t.Errorf("folders are left: %v, %v", folders, err)
	}
}

// TestSweep lets a sweep find a container of an ended process that was never started, and a
// container that a newer one of the same owner has replaced.
func TestSweep(t *testing.T) {
	b := backend(t)
	old := open(t, b, sandbox.Spec{Owner: "session", Epoch: 1})
	other := open(t, b, sandbox.Spec{Owner: "another session", Epoch: 1})
	young := open(t, b, sandbox.Spec{Owner: "session", Epoch: 2})
	dead := exec.Command("true")
	must.Do(t, dead.Run())
	lease := proc.NewLease("", "", 0)
	lease.PID = dead.Process.Pid
	data, err := json.Marshal(lease)
	must.Do(t, err)
	left, err := b.engine.create(t.Context(), containerSpec{
		Name: containerName("", 0), Image: testImage, Command: []string{"sleep", "1"}, PIDs: 10,
		Labels: map[string]string{labelLease: string(data), labelSpace: pidSpace()},
	})
	must.Do(t, err)
	n, err := b.Sweep(t.Context())
	if err != nil || n != 2 {
		t.Errorf("%d containers were removed, %v", n, err)
	}
	list, err := b.engine.list(t.Context(), labelLease)
	must.Do(t, err)
	for _, c := range list {
		if c.ID == left || c.ID == old.c.id {
			t.Errorf("%s is left", c.Name)
		}
	}
	if _, err := old.Exec(t.Context(), sandbox.Cmd{Argv: []string{"true"}}); !errors.Is(err, sandbox.ErrLost) {
		t.Errorf("a command of the older epoch: %v", err)
	}
	sh(t, other, "true")
	if e := sh(t, young, "echo goes on"); strings.TrimSpace(string(e.Stdout.Bytes())) != "goes on" {
		t.Error(e)
	}
}
