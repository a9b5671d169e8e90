//go:build e2e && linux

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/node"
)

// cliPatience bounds each command of these tests, of which some fetch modules of npm.
const cliPatience = 3 * time.Minute

// program under test, built once for all tests; TestMain removes it.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// rathDir returns a directory that holds the binary "rath".
func rathDir(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "rath-e2e-"); built.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-o", filepath.Join(built.dir, "rath"), "../cmd/rath").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("go build ../cmd/rath: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// desk is an empty directory with rath in the path and no keys and settings.
type desk struct {
	t   *testing.T
	bin string // directory of the binary
	dir string
	env []string
}

func newDesk(t *testing.T, env ...string) *desk {
	t.Helper()
	bin := rathDir(t)
	d := &desk{t: t, bin: bin, dir: t.TempDir()}
	d.env = append([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "OPENAI_") }) {
		d.env = append(d.env, "RATH_MODEL="+node.EchoModel)
	}
	return d
}

// outcome is the result of a command.
type outcome struct {
	command        string
	stdout, stderr string
	code           int            // -1 for a signal
	signal         syscall.Signal // that ended it
}

func (o outcome) String() string {
	return fmt.Sprintf("%s: exit %d, signal %d\n%s%s", o.command, o.code, o.signal, o.stdout, o.stderr)
}

// job is a command that was started.
type job struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr sharedBuffer
	done           chan struct{}
	err            error
}

// sharedBuffer is read while the command writes.
type sharedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *sharedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *sharedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start starts rath; at the end of the test it does not live any more.
func (d *desk) start(args ...string) *job {
	d.t.Helper()
	cmd := exec.Command(filepath.Join(d.bin, "rath"), args...)
	cmd.Args[0] = "rath"
	return d.begin(cmd)
}

func (d *desk) begin(cmd *exec.Cmd) *job {
	d.t.Helper()
	cmd.Dir, cmd.Env = d.dir, d.env
	j := &job{t: d.t, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &j.stdout, &j.stderr
	// A child that keeps the pipes open must not keep the test.
	cmd.WaitDelay = 5 * time.Second
	must.Do(d.t, cmd.Start())
	go func() {
		defer close(j.done)
		j.err = cmd.Wait()
	}()
	d.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-j.done
	})
	return j
}

// signal sends a signal to the process.
func (j *job) signal(s syscall.Signal) {
	j.t.Helper()
	if err := j.cmd.Process.Signal(s); err != nil {
		j.t.Fatalf("%s: %v\n%s%s", strings.Join(j.cmd.Args, " "), err, j.stdout.String(), j.stderr.String())
	}
}

// until waits for a condition on a stream of the command.
func (j *job) until(what string, found func() bool) {
	j.t.Helper()
	deadline := time.Now().Add(cliPatience)
	for !found() {
		select {
		case <-j.done:
			if found() {
				return
			}
			j.t.Fatalf("the command ended, no %s:\n%v", what, j.wait())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			j.t.Fatalf("no %s after %v: %s\n%s%s", what, cliPatience, strings.Join(j.cmd.Args, " "), j.stdout.String(), j.stderr.String())
		}
	}
}

// wait waits for the end; a command that hangs fails the test.
func (j *job) wait() outcome {
	j.t.Helper()
	o := outcome{command: strings.Join(j.cmd.Args, " ")}
	select {
	case <-j.done:
	case <-time.After(cliPatience):
		_ = j.cmd.Process.Kill()
		<-j.done
		j.t.Errorf("%s had to be killed after %v", o.command, cliPatience)
	}
	if _, ended := errors.AsType[*exec.ExitError](j.err); j.err != nil && !ended {
		j.t.Fatalf("%s: %v", o.command, j.err)
	}
	o.stdout, o.stderr = j.stdout.String(), j.stderr.String()
	o.code = j.cmd.ProcessState.ExitCode()
	if ws, ok := j.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		o.signal = ws.Signal()
	}
	return o
}

// rath runs a command to its end.
func (d *desk) rath(args ...string) outcome {
	d.t.Helper()
	return d.start(args...).wait()
}

// typed runs a printed command line.
func (d *desk) typed(line string) outcome {
	d.t.Helper()
	// exec: a signal that ends rath is seen, and not the shell's report of it.
	return d.begin(exec.Command("sh", "-c", "exec "+line)).wait()
}

// want fails the test unless the command ended with the code and printed all the texts, on
// either stream.
func (o outcome) want(t *testing.T, code int, said ...string) {
	t.Helper()
	missing := slices.DeleteFunc(said, func(s string) bool { return strings.Contains(o.stdout+o.stderr, s) })
	if o.code != code || len(missing) > 0 {
		t.Fatalf("want exit %d, missing %q: %v", code, missing, o)
	}
}

// file writes a file into the desk's directory.
func (d *desk) file(name, text string) string {
	d.t.Helper()
	must.Do(d.t, os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o644))
	return name
}

// command runs another program to its end and returns its output; it must succeed.
func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
