package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
)

// asProgram makes this test binary a node program of an author: its value is the name
// of the workflow that it offers.
const asProgram = "RATH_TEST_AS_PROGRAM"

// program is such a program. The workflow asks the default model with its input;
// "crash" ends before it is a node.
func program(name string) {
	if name == "crash" {
		fmt.Println("a program may print")
		panic("boom: no configuration")
	}
	fmt.Println("a program may print")
	node.Main(flow.Registration{Name: name, Revision: "1", Description: "Asks a model.", NewFor: func(s flow.Info) (flow.Workflow, error) {
		var text string
		err := json.Unmarshal(s.Input, &text)
		return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
			return (&flow.Agent{Name: "asker", Provider: llm.Provider{Model: s.Model}}).Forward(ctx, v.With(session.UserText(text)))
		}), err
	}})
	os.Exit(0)
}

// writeProgram writes a program that offers a workflow into a directory.
func writeProgram(t *testing.T, dir, name string) {
	t.Helper()
	exe := must.Get(os.Executable())(t)
	text := fmt.Sprintf("#!/bin/sh\n%s=%s exec %s \"$@\"\n", asProgram, name, app.ShellWord(exe))
	must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
}

// joined is the name of a node that joined by itself, from the name of this test
// binary.
const joined = "rath-test "

var (
	joinLine = regexp.MustCompile(`(?m)^join +\./PROGRAM (.*)$`)
	nodeLine = regexp.MustCompile(`(?m)^node (\w) +pid (\d+)`)
)

// join starts a program with the line that dev prints. The end of the test ends it.
func join(t *testing.T, dev *child, dir, name string) *exec.Cmd {
	t.Helper()
	line := joinLine.FindStringSubmatch(dev.said())
	if line == nil {
		t.Fatal("dev does not say how to join")
	}
	writeProgram(t, dir, name)
	cmd := exec.CommandContext(t.Context(), "./"+name, split(line[1])...)
	cmd.Dir, cmd.Env = dir, ownEnv(dir)
	out := must.Get(os.Create(filepath.Join(t.TempDir(), "out")))(t)
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if t.Failed() {
			data, _ := os.ReadFile(out.Name())
			t.Logf("%s printed\n%s", name, data)
		}
	})
	return cmd
}

// TestDevNode runs a fleet of an author's program, whose model calls a script answers:
// one node is killed and replaced. A second program joins by the printed line, and the
// fleet outlives it.
func TestDevNode(t *testing.T) {
	if isPlayed(t) {
		return
	}
	if runtime.GOOS == "windows" {
		t.Log("the programs of this test are shell scripts")
		return
	}
	dir := t.TempDir()
	t.Chdir(dir)
	writeProgram(t, dir, "triage")
	must.Do(t, os.WriteFile("m.txtar", []byte("-- all --\necho: true\ntext: \"from the script: \"\n"), 0o644))
	port := strconv.Itoa(natstest.FreePort(t))
	dev := startCommand(t, dir, "dev", "--nodes", "2", "--node", "./triage", "--script", "m.txtar", "--port", port)
	waitFor(t, func() bool { return joinLine.MatchString(dev.said()) })
	nodes := nodeLine.FindAllStringSubmatch(dev.said(), -1)
	if len(nodes) != 2 {
		t.Fatalf("%d nodes", len(nodes))
	}
	if said := dev.said(); !strings.Contains(said, "submit triage -m hello --wait\n") || !strings.Contains(said, "workflows   agent, ") {
		t.Errorf("it does not name the program's workflow:\n%s", said)
	}
	if got := command(t, "rath submit triage -m one --wait -q", dir); got != "from the script: one\n" {
		t.Errorf("the program's workflow says %q", got)
	}
	if got := command(t, "rath submit agent -m two --wait -q", dir); got != "from the script: two\n" {
		t.Errorf("the built-in workflow says %q", got)
	}

	pid := must.Get(strconv.Atoi(nodes[0][2]))(t)
	first := must.Get(os.FindProcess(pid))(t)
	must.Do(t, first.Kill())
	waitFor(t, func() bool { return strings.Contains(dev.said(), "takes its place") })
	if said := dev.said(); !strings.Contains(said, "node a      pid "+nodes[0][2]+" died: killed\n            a program may print\n") {
		t.Errorf("it does not say how the node died, and what it said last:\n%s", said)
	}

	// A client without credentials sees the fleet, once the new node is listed.
	waitFor(t, func() bool {
		var page view.Top
		got := command(t, "rath top --format json --server nats://127.0.0.1:"+port, dir)
		return json.Unmarshal([]byte(got), &page) == nil &&
			len(page.Pools) == 1 && page.Pools[0].Nodes == 2 && page.Pools[0].Slots == 128 && len(page.Nodes) >= 3 && page.OverMS > 0
	})

	other := join(t, dev, dir, "other")
	waitFor(t, func() bool { return strings.Contains(command(t, "rath cluster nodes ls", dir), joined) })
	if got := command(t, "rath submit other --model echo -m three --wait -q", dir); got != "echo: three\n" {
		t.Errorf("the program that joined says %q", got)
	}
	must.Do(t, other.Process.Kill())
	_ = other.Wait() // it was killed
	if got := command(t, "rath submit triage -m four --wait -q", dir); got != "from the script: four\n" {
		t.Errorf("the program's workflow says %q", got)
	}
	if code := dev.interrupt(); code != app.ExitOK {
		t.Errorf("dev: exit %d", code)
	}
}

// TestDevNodeCrashes: a program that ends at once ends dev, which prints its output.
func TestDevNodeCrashes(t *testing.T) {
	if isPlayed(t) {
		return
	}
	if runtime.GOOS == "windows" {
		t.Log("the programs of this test are shell scripts")
		return
	}
	dir := t.TempDir()
	writeProgram(t, dir, "crash")
	dev := startCommand(t, dir, "dev", "--node", "./crash", "--port", strconv.Itoa(natstest.FreePort(t)))
	_ = dev.Wait() // the exit code is checked below
	if code := dev.ProcessState.ExitCode(); code != app.ExitFailed {
		t.Errorf("exit %d", code)
	}
	for _, want := range []string{"panic: boom: no configuration", "node a did not stay up in 5 tries: died: exit status 2", "nodes/a/log"} {
		if !strings.Contains(dev.said(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
}

// TestDevJoined: a program joins "rath dev" without --nodes, and joins again when "rath
// dev" is restarted.
func TestDevJoined(t *testing.T) {
	if isPlayed(t) {
		return
	}
	if runtime.GOOS == "windows" {
		t.Log("the programs of this test are shell scripts")
		return
	}
	dir := t.TempDir()
	t.Chdir(dir)
	port := strconv.Itoa(natstest.FreePort(t))
	start := func() *child {
		dev := startCommand(t, dir, "dev", "--port", port)
		waitFor(t, func() bool { return joinLine.MatchString(dev.said()) })
		return dev
	}
	dev := start()
	triage := join(t, dev, dir, "triage")
	ask := func(text string) {
		t.Helper()
		waitFor(t, func() bool { return strings.Contains(command(t, "rath cluster nodes ls", dir), joined) })
		if got := command(t, "rath submit triage --model echo -m "+text+" --wait -q", dir); got != "echo: "+text+"\n" {
			t.Errorf("it says %q", got)
		}
		if got := command(t, "rath submit agent -m "+text+" --wait -q", dir); got != "echo: "+text+"\n" {
			t.Errorf("the built-in workflow says %q", got)
		}
	}
	ask("one")
	if code := dev.interrupt(); code != app.ExitOK {
		t.Errorf("dev: exit %d", code)
	}
	dev = start()
	ask("two")
	must.Do(t, triage.Process.Signal(os.Interrupt))
	if err := triage.Wait(); err != nil {
		t.Errorf("the program that joined: %v", err)
	}
	if code := dev.interrupt(); code != app.ExitOK {
		t.Errorf("dev: exit %d", code)
	}
}
