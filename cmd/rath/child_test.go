package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// asCommand makes this test binary the command itself, for tests that need a
// process to kill.
const asCommand = "RATH_TEST_AS_COMMAND"

// child is the command in a process of its own.
type child struct {
	*exec.Cmd
	t      *testing.T
	output string // file that it prints to
}

// startCommand starts the command in a directory. The end of the test ends it.
func startCommand(t *testing.T, dir string, args ...string) *child {
	t.Helper()
	return startCommandIn(t, dir, nil, args...)
}

// startCommandIn is startCommand with additional variables of the environment.
func startCommandIn(t *testing.T, dir string, env []string, args ...string) *child {
	t.Helper()
	exe := must.Get(os.Executable())(t)
	c := &child{exec.CommandContext(t.Context(), exe, args...), t, filepath.Join(t.TempDir(), "out")}
	out := must.Get(os.Create(c.output))(t)
	defer out.Close()
	c.Dir, c.Stdout, c.Stderr = dir, out, out
	c.Env = append(ownEnv(dir), env...)
	must.Do(t, c.Start())
	t.Cleanup(func() {
		if c.ProcessState == nil { // of a test that failed
			_ = c.Process.Kill()
			_ = c.Wait()
		}
		if t.Failed() {
			t.Logf("rath %s printed\n%s", strings.Join(args, " "), c.said())
		}
	})
	return c
}

// ownEnv is the environment of a child: without keys and settings.
func ownEnv(dir string) []string {
	return append(os.Environ(), asCommand+"=1", "HOME="+dir, "XDG_CONFIG_HOME=", "NATS_URL=", "NATS_CONTEXT=", "OPENAI_API_KEY=", "OPENAI_BASE_URL=", "RATH_MODEL=echo")
}

// said returns the output so far.
func (c *child) said() string {
	c.t.Helper()
	data := must.Get(os.ReadFile(c.output))(c.t)
	return string(data)
}

// interrupt interrupts the command, and returns its exit code when it has ended.
func (c *child) interrupt() int {
	c.t.Helper()
	must.Do(c.t, c.Process.Signal(os.Interrupt))
	_ = c.Wait() // the exit code is checked by the caller
	return c.ProcessState.ExitCode()
}

// waitFor waits for an effect of another process. It checks less often as time passes:
// a check may take a command.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(min(10*time.Millisecond+time.Since(began)/20, 250*time.Millisecond)) {
		if time.Since(began) > 30*time.Second {
			t.Fatal("it did not happen within 30 s")
		}
	}
}

// startDev starts a node in a directory, where the test continues, and returns the
// address of its server.
func startDev(t *testing.T, dir string, more ...string) (dev *child, url string) {
	t.Helper()
	port := natstest.FreePort(t)
	dev = startCommand(t, dir, append([]string{"dev", "--port", strconv.Itoa(port)}, more...)...)
	waitFor(t, func() bool {
		_, err := supervise.ReadAttachment(filepath.Join(dir, ".rath"))
		return err == nil
	})
	t.Chdir(dir)
	return dev, "nats://127.0.0.1:" + strconv.Itoa(port)
}

// startOperated starts a node and a run, which has ended, and returns the streams of
// the node with the rights of an operator.
func startOperated(t *testing.T, dir string) (dev *child, js jetstream.JetStream) {
	t.Helper()
	dev, url := startDev(t, dir)
	command(t, "rath submit agent -m first --wait", dir)
	at := must.Get(supervise.ReadAttachment(filepath.Join(dir, ".rath")))(t)
	nc := must.Get(nats.Connect(url, nats.UserInfo(at.OperatorUser, at.OperatorPassword)))(t)
	t.Cleanup(nc.Close)
	js = must.Get(jetstream.New(nc))(t)
	return dev, js
}
