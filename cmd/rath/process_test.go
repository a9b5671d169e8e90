package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/term"
)

// asCommand makes this test binary the command itself, for tests that need a
// process to kill.
const asCommand = "RATH_TEST_AS_COMMAND"

// start starts the command in a directory.
func start(t *testing.T, dir string, args ...string) (cmd *exec.Cmd, out *bytes.Buffer) {
	t.Helper()
	out = new(bytes.Buffer)
	return startTo(t, dir, out, args...), out
}

// startTo is start with a writer of its own for what the command prints.
func startTo(t *testing.T, dir string, out io.Writer, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.Env = append(os.Environ(), asCommand+"=1", "HOME="+dir, "XDG_CONFIG_HOME=", "NATS_URL=", "NATS_CONTEXT=", "OPENAI_API_KEY=", "OPENAI_BASE_URL=")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// startFile is start with the output in a file, which can be read meanwhile.
func startFile(t *testing.T, dir string, args ...string) (cmd *exec.Cmd, name string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name = filepath.Join(t.TempDir(), "out")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd = exec.CommandContext(t.Context(), exe, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, f, f
	cmd.Env = append(os.Environ(), asCommand+"=1", "HOME="+dir, "XDG_CONFIG_HOME=", "NATS_URL=", "NATS_CONTEXT=", "OPENAI_API_KEY=", "OPENAI_BASE_URL=")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, name
}

// TestCrashAndResume kills the demo inside a tool call and starts it again.
func TestCrashAndResume(t *testing.T) {
	dir := t.TempDir()
	cmd, out := start(t, dir, "demo", "--crash")
	if err := cmd.Wait(); err == nil {
		t.Fatalf("demo --crash ended well:\n%s", out)
	}
	if !strings.Contains(out.String(), "kill -9") || strings.Contains(out.String(), "proof") {
		t.Fatalf("demo --crash:\n%s", out)
	}
	if runtime.GOOS != "windows" && cmd.ProcessState.ExitCode() != -1 {
		t.Errorf("it exited with %d, want a signal", cmd.ProcessState.ExitCode())
	}
	cmd, out = start(t, dir, "demo")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the next start: %v\n%s", err, out)
	}
	for line := range strings.Lines(out.String()) {
		// The commands that it prints are as long as the path of this program.
		if n := term.Width(strings.TrimRight(line, "\n")); n > 80 && !strings.Contains(line, "go run ") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, want := range []string{"resume  ", "resumes, attempt 2", "ADOPTED into s1", "(rath verify: ok)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the next start does not say %q:\n%s", want, out)
		}
	}
}

// TestInterruptParks interrupts a run and resumes it.
func TestInterruptParks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("a process cannot be interrupted from outside here")
		return
	}
	dir := t.TempDir()
	script := "A slow model.\n\n-- work --\nnot result: list_workspace_files\ncall: list_workspace_files {}\n\n-- answer --\ndelay: 3s\n\ndone\n"
	if err := os.WriteFile(filepath.Join(dir, "slow.txtar"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "work"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd, out := start(t, dir, "run", "-C", "work", "--script", "slow.txtar", "-m", "look around")
	waitFor(t, func() bool {
		found, err := filepath.Glob(filepath.Join(dir, ".rath", "work", "*"))
		return err == nil && len(found) > 0
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code tells
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Fatalf("exit %d, want %d\n%s", code, exitInterrupted, out)
	}
	_, command, ok := strings.Cut(out.String(), "resume it with\n  ")
	if !ok {
		t.Fatalf("no way to resume:\n%s", out)
	}
	words := split(strings.TrimSpace(command))
	cmd, out = start(t, dir, words[slices.Index(words, "resume"):]...)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	if !strings.Contains(out.String(), "done") {
		t.Errorf("it does not go on with the same model:\n%s", out)
	}
}

// waitFor waits for something that another process does.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within 30 s")
		}
	}
}

// TestDev runs a node in a process of its own and reaches it in every way that
// there is.
func TestDev(t *testing.T) {
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
	url := "nats://127.0.0.1:" + port
	contexts := filepath.Join(dir, ".config", "nats", "context")
	if err := errors.Join(os.MkdirAll(contexts, 0o755), os.WriteFile(filepath.Join(contexts, "here.json"), []byte(`{"url":"`+url+`"}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line, want string
		code       int
	}{
		{"rath submit agent -m one --wait -q", "echo: one\n", 0},
		{"rath run -m two -q", "echo: two\n", 0},
		{"rath --server " + url + " run -m three -q", "echo: three\n", 0},
		{"NATS_URL=" + url + " rath run -m four -q", "echo: four\n", 0},
		{"NATS_CONTEXT=here rath run -m five -q", "echo: five\n", 0},
		{"rath --context here show @last", "echo: five", 0},
		{"rath diff - @last", "never sent to a sandbox", 3},
		{"rath --server " + url + " diff - @last", "gives to nodes only", 2},
		{"rath --server " + url + " run -C . -m x", "gives to nodes only", 2},
		{"rath demo", "in use", 4},
		{"rath run --unsafe -m x", "has its own", 2},
		{"rath submit nosuch -m x --wait -q", "unknown workflow", 3},
		{"rath --server " + url + " doctor", "workflows", 0},
		{"rath fork @last", "", 0},
	} {
		got := command(t, c.line, dir)
		_, exit, _ := strings.Cut(got, "[exit ")
		code, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(exit), "]"))
		if code != c.code || !strings.Contains(got, c.want) {
			t.Errorf("$ %s\n%swant exit %d and %q", c.line, got, c.code, c.want)
		}
	}
	if err := dev.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := dev.Wait(); err != nil {
		t.Errorf("dev: %v\n%s", err, devOut)
	}
	if _, err := os.Stat(filepath.Join(dir, ".rath", "node.json")); err == nil {
		t.Error("node.json is left behind")
	}
}
