//go:build linux

package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Program describes how a process is started.
type Program struct {
	Path string
	Args []string
	// Env are variables "key=value"; the process gets no others but PATH.
	Env []string
}

// Process is one process of a fleet, over all its starts. Its methods are safe
// for concurrent use.
type Process struct {
	Name string
	// Log is the file with the standard output and error of all its starts.
	Log string

	f       *Fleet
	host    *host
	program func() Program
	// up is in the log once a start is up.
	up string

	mu     sync.Mutex
	cmd    *exec.Cmd
	done   chan struct{} // closed when cmd has ended
	ended  error
	frozen bool
	starts int
	env    []string
	path   string // instead of the program's
	from   int64  // where this start's log begins
}

// ErrNotRunning is returned by methods that need a running process.
var ErrNotRunning = errors.New("fleet: the process does not run")

// IP is the address of the process, at all its starts.
func (p *Process) IP() string { return p.host.ip }

// Start starts the process, if it does not run, and does not wait until it is
// up, see Up.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return nil
	}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("fleet: log of %s: %w", p.Name, err)
	}
	defer log.Close()
	if p.from, err = log.Seek(0, 2); err != nil {
		return fmt.Errorf("fleet: log of %s: %w", p.Name, err)
	}
	program := p.program()
	if p.path != "" {
		program.Path = p.path
	}
	cmd := exec.Command(program.Path, program.Args...)
	cmd.Env = slices.Concat([]string{"PATH=" + os.Getenv("PATH")}, program.Env, p.env)
	cmd.Dir = p.f.o.Dir
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own: a Ctrl-C for the test is not one for the fleet.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.f.thread.do(p.host.ns, cmd.Start); err != nil {
		return fmt.Errorf("fleet: start %s: %w", p.Name, err)
	}
	done := make(chan struct{})
	p.cmd, p.done, p.frozen = cmd, done, false
	p.starts++
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.ended = err
		p.mu.Unlock()
		close(done)
	}()
	return nil
}

// Set gives the process an environment variable, from its next start on.
func (p *Process) Set(key, value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.env = append(p.env, key+"="+value) // the last one counts
}

// Use sets another program file for the process, with the same arguments, from its next
// start; "" restores the original one.
func (p *Process) Use(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.path = path
}

// Uses returns the path that Use set last.
func (p *Process) Uses() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.path
}

// running is called with the lock held.
func (p *Process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Running reports whether the process runs, frozen or not.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

// PID is the process id of the last start, 0 before the first one.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Starts counts how often the process was started.
func (p *Process) Starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts
}

func (p *Process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return fmt.Errorf("%w: %s: signal %v", ErrNotRunning, p.Name, s)
	}
	err := p.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) { // it ends by itself at this moment
		err = ErrNotRunning
	}
	if err != nil {
		return fmt.Errorf("fleet: %v to %s: %w", s, p.Name, err)
	}
	switch s {
	case syscall.SIGSTOP:
		p.frozen = true
	case syscall.SIGCONT:
		p.frozen = false
	}
	return nil
}

// Kill kills the process with -9 and waits for its end.
func (p *Process) Kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	<-done
	return nil
}

// Freeze stops the process where it is, and returns when it has stopped; its
// connections stay.
func (p *Process) Freeze() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(freezing); time.Now().Before(end); time.Sleep(time.Millisecond) {
		// "pid (name) state …"; the name may hold anything.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
		if err != nil && !p.Running() {
			return fmt.Errorf("%w: %s ended when it was frozen", ErrNotRunning, p.Name)
		}
		i := bytes.LastIndexByte(stat, ')')
		if i >= 0 && bytes.HasPrefix(stat[i:], []byte(") T")) {
			return nil
		}
	}
	return fmt.Errorf("fleet: %s did not stop within %v", p.Name, freezing)
}

// freezing bounds the time to stop a process: the kernel stops its threads one after the
// other, and a thread that waits for the disk only after the wait.
const freezing = 30 * time.Second

// Thaw resumes a frozen process.
func (p *Process) Thaw() error { return p.signal(syscall.SIGCONT) }

// Frozen reports whether the process is frozen.
func (p *Process) Frozen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frozen && p.running()
}

// Drain asks the process to end (SIGTERM) and waits until it has; it kills the process when
// ctx is done. It returns an error unless the process ended by itself and cleanly.
func (p *Process) Drain(ctx context.Context) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("fleet: %s did not end: %w", p.Name, context.Cause(ctx)), p.Kill())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		return fmt.Errorf("fleet: %s ended: %w", p.Name, p.ended)
	}
	return nil
}

// Done is closed when the present start has ended.
func (p *Process) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// Up waits until the process reports that it is up. It fails if the process ends first.
func (p *Process) Up(ctx context.Context) error {
	for {
		p.mu.Lock()
		from, done, running := p.from, p.done, p.running()
		p.mu.Unlock()
		text, err := p.logFrom(from)
		switch {
		case err != nil:
			return err
		case bytes.Contains(text, []byte(p.up)):
			return nil
		case !running:
			return fmt.Errorf("%w: %s ended before it was up; %s ends with: %s", ErrNotRunning, p.Name, p.Log, tail(text))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("fleet: %s is not up: %w; %s ends with: %s", p.Name, context.Cause(ctx), p.Log, tail(text))
		case <-done:
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (p *Process) logFrom(at int64) ([]byte, error) {
	f, err := os.Open(p.Log)
	if err != nil {
		return nil, fmt.Errorf("fleet: log of %s: %w", p.Name, err)
	}
	defer f.Close()
	var b bytes.Buffer
	if _, err = f.Seek(at, 0); err == nil {
		_, err = b.ReadFrom(f)
	}
	if err != nil {
		return nil, fmt.Errorf("fleet: log of %s: %w", p.Name, err)
	}
	return b.Bytes(), nil
}

func tail(text []byte) string {
	const most = 600
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return string(bytes.TrimSpace(text))
}
