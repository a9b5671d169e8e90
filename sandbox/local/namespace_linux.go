package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/sandbox/confinement"
	"github.com/rathcluster/rath/internal/sandbox/loopback"
	"github.com/rathcluster/rath/sandbox"
)

// namespace is the network of one sandbox: a loopback that all its commands share. Its
// holder, a process of its own, starts their supervisors, because a process's children are
// in its namespaces. Entering the namespaces of another process needs privileges that a
// host may lack.
type namespace struct {
	cmd     *exec.Cmd
	control *net.UnixConn

	mu sync.Mutex // held during a request to the holder
}

// holderRole is the argument that makes a supervisor a holder. The folder of the proxy's
// socket follows, if there is one.
const holderRole = "network"

// openNamespace starts a holder. proxy is the folder of the proxy's socket, or "".
func openNamespace(proxy string) (*namespace, error) {
	theirs, ours, err := controlPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	args := []string{holderRole}
	if proxy != "" {
		args = append(args, proxy)
	}
	n := &namespace{cmd: reexec(args, []*os.File{theirs}), control: ours}
	ownNetwork(n.cmd.SysProcAttr)
	if err := n.cmd.Start(); err != nil {
		ours.Close()
		return nil, fmt.Errorf("no network of its own: %w", err)
	}
	if _, err := n.answer(); err != nil {
		n.close()
		return nil, fmt.Errorf("no network of its own: %w", err)
	}
	return n, nil
}

// answer receives an answer of the holder.
func (n *namespace) answer() (confinement.Result, error) {
	if err := n.control.SetReadDeadline(time.Now().Add(stopGrace)); err != nil {
		return confinement.Result{}, err
	}
	r, err := confinement.Hear(n.control)
	if err == nil && r.Failed != "" {
		err = errors.New(r.Failed)
	}
	return r, err
}

// start has the holder start a supervisor with files, as the user of the options.
func (n *namespace) start(o Options, files []*os.File) (pid int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var r confinement.Result
	if err = give(n.control, confinement.Order{UID: o.UID, GID: o.GID}, files); err == nil {
		r, err = n.answer()
	}
	if err != nil {
		return 0, fmt.Errorf("%w: the holder of its network: %w", sandbox.ErrLost, err)
	}
	return r.Code, nil
}

// kill has the holder kill a supervisor, unless it has ended. If the holder is gone, the
// end of the supervisor's control socket ends it.
func (n *namespace) kill(pid int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = give(n.control, confinement.Order{Kill: pid}, nil)
}

// close ends the holder. The namespace ends with the last process in it.
func (n *namespace) close() {
	if n == nil {
		return
	}
	n.control.Close()
	_ = n.cmd.Wait()
}

// becomeHolder makes this process a holder, if it was started as one. A supervisor does not
// reach this call, see package confinement.
func becomeHolder() {
	if len(os.Args) > 1 && os.Args[0] == confinement.Name && os.Args[1] == holderRole {
		hold(os.Args[2:])
	}
}

// hold is the main loop of a holder. It returns when the host is gone.
func hold(args []string) {
	if err := enterNetwork(args); err != nil {
		_ = confinement.Report(confinement.Result{Failed: err.Error()})
		syscall.Exit(1)
	}
	var mu sync.Mutex // guards running; of the supervisors that were not waited for
	running := map[int]*os.Process{}
	err := confinement.Report(confinement.Result{})
	for err == nil {
		var o confinement.Order
		var fds []int
		if o, fds, err = confinement.Take(); err != nil {
			break
		}
		if o.Kill != 0 {
			mu.Lock()
			if p := running[o.Kill]; p != nil {
				_ = p.Kill()
			}
			mu.Unlock()
			continue
		}
		files := make([]*os.File, len(fds))
		for i, fd := range fds {
			files[i] = os.NewFile(uintptr(fd), "")
		}
		cmd := reexecAs(o.UID, o.GID, files)
		startErr := cmd.Start()
		for _, f := range files {
			f.Close()
		}
		if startErr != nil {
			err = confinement.Report(confinement.Result{Failed: startErr.Error()})
			continue
		}
		pid := cmd.Process.Pid
		mu.Lock()
		running[pid] = cmd.Process
		mu.Unlock()
		go func() {
			// Peek first, so that the number is not reused while it is still in running.
			for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
			}
			mu.Lock()
			defer mu.Unlock()
			delete(running, pid)
			_ = cmd.Wait()
		}()
		err = confinement.Report(confinement.Result{Code: pid})
	}
	syscall.Exit(0)
}

// enterNetwork prepares the namespace that this process was started in.
func enterNetwork(args []string) error {
	if err := confinement.CloseOnExec(3); err != nil {
		return err
	}
	if err := loopback.Up(); err != nil || len(args) == 0 {
		return err
	}
	return loopback.Carry(args[0])
}

// ownNetwork makes a process start in a network namespace of its own, with the right to
// enable the loopback.
func ownNetwork(a *syscall.SysProcAttr) {
	a.Cloneflags = syscall.CLONE_NEWNET
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		a.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
}

// tryLoopback returns the reason why commands have no network of their own.
func tryLoopback(context.Context) error {
	n, err := openNamespace("")
	n.close()
	return err
}
