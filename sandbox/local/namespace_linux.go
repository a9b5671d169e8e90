package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/loopback"
	"github.com/rathcluster/rath/sandbox"
)

// namespace is the network of one sandbox: a loopback that all its commands share. Its
// holder, a process of its own, starts their supervisors, because what a process starts is
// in its namespaces. To enter those of another process needs rights that a host need not
// have.
type namespace struct {
	cmd     *exec.Cmd
	control *net.UnixConn

	mu sync.Mutex // held while the holder is asked
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

// answer hears one from the holder.
func (n *namespace) answer() (result, error) {
	if err := n.control.SetReadDeadline(time.Now().Add(stopGrace)); err != nil {
		return result{}, err
	}
	r, err := hear(n.control)
	if err == nil && r.Failed != "" {
		err = errors.New(r.Failed)
	}
	return r, err
}

// start has the holder start a supervisor with files, as the user of the options.
func (n *namespace) start(o Options, files []*os.File) (pid int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var r result
	if err = give(n.control, order{UID: o.UID, GID: o.GID}, files); err == nil {
		r, err = n.answer()
	}
	if err != nil {
		return 0, fmt.Errorf("%w: the holder of its network: %w", sandbox.ErrLost, err)
	}
	return r.Code, nil
}

// kill has the holder kill a supervisor, unless it has ended. A holder that is gone leaves
// it to the end of its control.
func (n *namespace) kill(pid int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = give(n.control, order{Kill: pid}, nil)
}

// close ends the holder. The namespace goes with the last process in it.
func (n *namespace) close() {
	if n == nil {
		return
	}
	n.control.Close()
	_ = n.cmd.Wait()
}

// hold is the life of a holder, until its host is gone.
func hold(args []string) {
	if err := enterNetwork(args); err != nil {
		_ = report(result{Failed: err.Error()})
		syscall.Exit(1)
	}
	var mu sync.Mutex // guards running, of supervisors that were not waited for
	running := map[int]*os.Process{}
	err := report(result{})
	for err == nil {
		var o order
		var fds []int
		if o, fds, err = takeOrder(); err != nil {
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
			err = report(result{Failed: startErr.Error()})
			continue
		}
		pid := cmd.Process.Pid
		mu.Lock()
		running[pid] = cmd.Process
		mu.Unlock()
		go func() {
			// Only look first, so that the number is not given to another process before
			// it is no longer in running.
			for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
			}
			mu.Lock()
			defer mu.Unlock()
			delete(running, pid)
			_ = cmd.Wait()
		}()
		err = report(result{Code: pid})
	}
	syscall.Exit(0)
}

// enterNetwork prepares the namespace that this process was started in.
func enterNetwork(args []string) error {
	if err := closeOnExec(3); err != nil {
		return err
	}
	if err := loopback.Up(); err != nil || len(args) == 0 {
		return err
	}
	return loopback.Carry(args[0])
}

// ownNetwork has a process start in a network namespace of its own, in which it may
// switch on the loopback.
func ownNetwork(a *syscall.SysProcAttr) {
	a.Cloneflags = syscall.CLONE_NEWNET
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		a.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
}

// tryLoopback says why commands have no network of their own.
func tryLoopback(context.Context) error {
	n, err := openNamespace("")
	n.close()
	return err
}

// connect tries a port of the loopback, for a command that stands for that.
func connect(port int) result {
	var first error
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(port&math.MaxUint16)), time.Second)
		if err == nil {
			c.Close()
			return result{}
		}
		first = cmp.Or(first, err)
	}
	return result{Code: 1, Note: first.Error()}
}
