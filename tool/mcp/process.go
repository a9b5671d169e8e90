package mcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/sandbox"
)

// endGrace is how long a server may take to end by itself once its input has ended.
const endGrace = 500 * time.Millisecond

// process is a server that was started.
type process struct {
	stdin  io.WriteCloser
	stdout io.ReadCloser
	kill   func() // may be called several times
	done   chan struct{}
	how    string // it ended; valid once done is closed

	mu  sync.Mutex
	why error // it was given up
}

// fail notes why a process is given up.
func (p *process) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why == nil {
		p.why = err
	}
}

// ended says how it ended, as far as that is known within a moment.
func (p *process) ended() string {
	p.mu.Lock()
	why := p.why
	p.mu.Unlock()
	if why != nil {
		return why.Error()
	}
	select {
	case <-p.done:
		return p.how
	case <-time.After(endGrace):
		return "it closed its output"
	}
}

// close ends the input, and the process if it does not end by itself.
func (p *process) close() error {
	_ = p.stdin.Close()
	select {
	case <-p.done:
	case <-time.After(endGrace):
	}
	p.kill()
	<-p.done
	return p.stdout.Close()
}

// lines returns the connection of its messages.
func (p *process) lines() *lines { return &lines{p: p, in: bufio.NewReaderSize(p.stdout, 64<<10)} }

// inSandbox starts a server as a command of a sandbox. What it says on its standard error
// goes nowhere: a sandbox passes both streams on as one.
func inSandbox(s *Server, env func(string) string, box sandbox.Sandbox) *process {
	ctx, cancel := context.WithCancel(context.Background())
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &process{stdin: inW, stdout: outR, kill: cancel, done: make(chan struct{})}
	vars := map[string]string{}
	for _, name := range s.Env {
		if v := env(name); v != "" {
			vars[name] = v
		}
	}
	argv := append([]string{"sh", "-c", `exec "$@" 2>/dev/null`, "sh"}, s.Command...)
	go func() { // ends with kill
		defer close(p.done)
		exit, err := box.Exec(ctx, sandbox.Cmd{ID: "mcp " + s.Name, Argv: argv, Env: vars, Stdin: inR, Timeout: sandbox.NoTimeout, Output: 2, Offload: outW})
		_ = inR.Close()
		_ = outW.Close()
		switch {
		case err != nil && ctx.Err() == nil && !errors.Is(err, io.ErrClosedPipe):
			p.how = "its sandbox was lost: " + err.Error()
		case exit.Ended == sandbox.Exited && exit.Code == 127:
			p.how = fmt.Sprintf("the sandbox has no program %q", s.Command[0])
		case exit.Ended == sandbox.Exited:
			p.how = fmt.Sprintf("it exited with code %d", exit.Code)
		default:
			p.how = "it was killed (" + string(exit.Ended) + ")"
		}
		cancel()
	}()
	return p
}

// basicEnv are the variables that each server beside the sandbox gets.
var basicEnv = []string{"PATH", "HOME", "LANG", "TMPDIR"}

// onHost starts a server as a process of this one, in a directory of its own.
func onHost(s *Server, env func(string) string) (*process, error) {
	dir, err := os.MkdirTemp("", "rath-mcp-*")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Dir, cmd.Env = dir, []string{}
	for _, name := range append(append([]string{}, basicEnv...), s.Env...) {
		if v := env(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	ownGroup(cmd)
	said := &tail{}
	cmd.Stderr = said
	cmd.WaitDelay = endGrace // a process that it left behind may hold its streams
	p := &process{done: make(chan struct{})}
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inR.Close(), inW.Close(), os.Remove(dir))
	}
	cmd.Stdin, cmd.Stdout, p.stdin, p.stdout = inR, outW, inW, outR
	err = cmd.Start()
	_ = errors.Join(inR.Close(), outW.Close())
	if err != nil {
		return nil, errors.Join(err, inW.Close(), outR.Close(), os.Remove(dir))
	}
	p.kill = sync.OnceFunc(func() { killGroup(cmd) })
	go func() { // ends with kill
		defer close(p.done)
		err := cmd.Wait()
		p.kill() // what it left behind
		switch state := cmd.ProcessState; {
		case state != nil && state.Exited():
			p.how = fmt.Sprintf("it exited with code %d", state.ExitCode())
		case state != nil:
			p.how = "it was killed (" + state.String() + ")"
		default:
			p.how = "it was lost: " + err.Error()
		}
		if text := said.text(); text != "" {
			p.how += fmt.Sprintf(", and said %q", text)
		}
		_ = os.RemoveAll(dir)
	}()
	return p, nil
}

// tail keeps the end of what a server says on its standard error.
type tail struct {
	mu   sync.Mutex
	last []byte
}

// mostSaid is how much of it is told, in bytes.
const mostSaid = 500

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p[max(0, len(p)-mostSaid):]...)
	t.last = t.last[max(0, len(t.last)-mostSaid):]
	return len(p), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(t.last), ""))
}
