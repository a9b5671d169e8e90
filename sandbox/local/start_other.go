//go:build !linux

package local

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync"

	"github.com/rathcluster/rath/internal/sandbox/confinement"
	"github.com/rathcluster/rath/internal/sandbox/proc"
	"github.com/rathcluster/rath/sandbox"
)

// No limit is enforced here, so there are no control groups, and no supervisors wait for
// commands.
type (
	hierarchy struct{}
	groups    struct{}
	standby   struct{}
	namespace struct{}
)

func openNamespace(string) (*namespace, error) { return nil, sandbox.ErrUnsupported }

func (*namespace) close() {}

func (*standby) close() {}

func hierarchies() []hierarchy { return nil }

func enforced([]hierarchy) []string { return nil }

func openGroups(string, []hierarchy, sandbox.Limits) (*groups, error) { return &groups{}, nil }

func leftGroups(string) (*groups, error) { return &groups{}, nil }

func (*groups) killed() int { return 0 }

func (*groups) close(context.Context) error { return nil }

// becomeHolder has no effect where commands are started directly.
func becomeHolder() {}

// tryConfinement returns the reason why there is no confinement.
func tryConfinement(context.Context, Options) (detail, why string, err error) {
	return "", "no Landlock on " + runtime.GOOS, nil
}

// tryLoopback returns the reason why commands have no network of their own.
func tryLoopback(context.Context) error { return sandbox.ErrUnsupported }

// fits leaves the check to the system: commands are started directly.
func fits([]string, []string) error { return nil }

// child is a command that was started directly, with its tree.
type child struct {
	cmd  *exec.Cmd
	gone chan struct{}

	mu      sync.Mutex // guards the fields below, so that no process is killed after close
	tree    tree
	stopped bool
	closed  bool

	res confinement.Result
	err error
}

// start implements the platform's part of Exec.
func (b *box) start(c command) (process, error) {
	p := &child{gone: make(chan struct{})}
	program, err := lookPath(c.argv[0], c.env)
	if err != nil {
		return refused(p, c.argv[0], err), nil
	}
	p.cmd = &exec.Cmd{
		Path: program, Args: c.argv, Env: c.env, Dir: c.cwd.Name(),
		Stdin: c.stdin, Stdout: c.stdout, Stderr: c.stderr, SysProcAttr: treeAttr(),
	}
	if err := p.cmd.Start(); err != nil {
		return refused(p, c.argv[0], err), nil
	}
	if p.tree, err = adopt(p.cmd.Process); err != nil {
		p.cmd.Process.Kill()
		return nil, errors.Join(err, p.cmd.Wait())
	}
	if started, ok := proc.Started(p.cmd.Process.Pid); ok {
		if _, err := fmt.Fprintf(b.runs, "%d %d\n", p.cmd.Process.Pid, started); err != nil {
			p.tree.kill()
			return nil, errors.Join(err, p.cmd.Wait())
		}
	}
	go p.watch()
	return p, nil
}

// refused returns a command that could not be started.
func refused(p *child, program string, err error) *child {
	p.cmd = nil
	p.res.Refused = fmt.Sprintf("cannot start %q: %v", program, err)
	close(p.gone)
	return p
}

// watch waits for the command and kills its remaining processes.
func (p *child) watch() {
	defer close(p.gone)
	err := p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.res.Stopped = p.stopped
	if err != nil && p.cmd.ProcessState == nil {
		p.err = err
	} else {
		p.res.Code, p.res.Signal = exitOf(p.cmd.ProcessState)
	}
	p.tree.kill()
	p.tree.close()
	p.closed = true
}

func (p *child) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && !p.closed {
		p.stopped = true
		p.tree.kill()
	}
}

func (p *child) abandon()                            { p.stop() }
func (p *child) done() <-chan struct{}               { return p.gone }
func (p *child) result() (confinement.Result, error) { return p.res, p.err }
