//go:build engine

package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox/docker"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// containersLeft returns the containers of sandboxes that the engine has.
func containersLeft(t *testing.T) []string {
	t.Helper()
	out := must.Get(exec.Command("docker", "ps", "-aq", "--filter", "label=rath.sandbox.lease").Output())(t)
	return strings.Fields(string(out))
}

// noContainers waits until the engine has none: it may still remove a container whose
// daemon ended with its node.
func noContainers(t *testing.T) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		left := containersLeft(t)
		if len(left) == 0 {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%d containers are left", len(left))
		}
	}
}

// TestKilledDuringCommand kills the process of a node, with kill -9, while a command of
// a run changes files in a container. The next node continues from the files before the
// command: its effect is there once. The container of the dead node is removed, and in
// the end all of them. The tests of this tag run under .ci/engine.
func TestKilledDuringCommand(t *testing.T) {
	tar := os.Getenv("RATH_SANDBOX_IMAGE_TAR")
	if tar == "" {
		t.Fatal("RATH_SANDBOX_IMAGE_TAR names no image: run the tests with .ci/engine")
	}
	const image = "rath-sandbox:node-test"
	if out, err := exec.Command("docker", "import", tar, image).CombinedOutput(); err != nil {
		t.Fatalf("import the image: %v: %s", err, out)
	}
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	start := func() (store string, cmd *exec.Cmd) {
		store = t.TempDir()
		user, password := srv.Node()
		return store, startCommands(t, []string{
			"-nats", srv.URL(), "-user", user, "-level", "lazy", "-store", store, "-drain", "1s", "-health", "0", "-sandbox-image", image, "-sandbox-warm", "0",
		}, password)
	}
	store, first := start()
	front := member(t, srv, Options{Fleet: Fleet{Routing: RouteOnly}})
	c, err := front.Client(ctx)
	must.Do(t, err)
	defer c.Close()
	ask := messages.Task{
		ID: "one", Input: []byte(`"echo once >> log; sleep 4; echo twice >> log"`), Sandbox: messages.Sandbox{Backend: "docker", Limits: "memory=64m"},
	}
	must.Get(c.Submit(ctx, "commands", ask))(t)
	for { // until the command has written
		logs := must.Get(filepath.Glob(filepath.Join(store, "work", "*", "*", "*", "log")))(t)
		if len(logs) == 1 {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("the command did not start")
		}
		time.Sleep(20 * time.Millisecond)
	}
	before := containersLeft(t)
	if len(before) != 1 {
		t.Fatalf("%d containers", len(before))
	}
	must.Do(t, first.Process.Kill())
	_, second := start()
	r, err := c.Wait(ctx, "one")
	if err != nil || r.State != run.Succeeded {
		t.Fatalf("the run %s %s: %v", r.State, r.Error, err)
	}
	if r.Attempt < 2 {
		t.Errorf("the run took %d attempts", r.Attempt)
	}
	s, err := c.Sessions.Get(ctx, string(r.Session))
	must.Do(t, err)
	data, err := workspace.Read(ctx, front.Blobs(session.DefaultTenant), s.Placement.Head, "log")
	if err != nil || string(data) != "once\ntwice\n" {
		t.Errorf("the files say %q, %v", data, err)
	}
	if p := s.Placement; p.Isolation != "container" || !strings.HasPrefix(p.Image, "sha256:") || p.Network != "none" || !strings.Contains(p.Limits, "memory=64m") {
		t.Errorf("the session worked at %+v", p)
	}
	for began := time.Now(); strings.Contains(fmt.Sprint(containersLeft(t)), before[0]); time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("the container of the dead node is still there")
		}
	}
	must.Do(t, second.Process.Signal(os.Interrupt))
	_ = second.Wait()
	noContainers(t)
}

// TestSecondRunHasContainer is TestSecondRunHasSandbox with containers, none
// pre-created.
func TestSecondRunHasContainer(t *testing.T) {
	const image = "rath-sandbox:node-test"
	if out, err := exec.Command("docker", "import", os.Getenv("RATH_SANDBOX_IMAGE_TAR"), image).CombinedOutput(); err != nil {
		t.Fatalf("import the image: %v: %s; run the tests with .ci/engine", err, out)
	}
	secondRun(t, "docker", Options{Sandbox: Sandbox{Docker: docker.Options{Image: image}}})
}

// startCommands starts a node as a process of its own, with the workflow commands, and
// returns when it is up.
func startCommands(t *testing.T, flags []string, password string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	must.Do(t, err)
	cmd := exec.Command(exe, flags...)
	cmd.Env = append(os.Environ(), asNode+"=commands", "NATS_PASSWORD="+password)
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	must.Do(t, err)
	up := make(chan string, 1)
	go func() {
		var said strings.Builder
		told := false
		for b := make([]byte, 4<<10); ; {
			n, err := log.Read(b)
			said.Write(b[:n])
			if !told && (strings.Contains(said.String(), "node is up") || err != nil) {
				told = true
				up <- said.String()
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // if it lives
		_ = cmd.Wait()
	})
	if said := <-up; !strings.Contains(said, "node is up") {
		t.Fatalf("the node does not start:\n%s", said)
	}
	return cmd
}
