//go:build amd64 || arm64

package confinement

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/sandbox/proc"
)

// Before Landlock restricted signals, a command could signal each process of its user: this
// program, and commands of other sandboxes. On those kernels the supervisor sends the
// signals of a command, and only to its own descendants.

// errOwn means that the call concerns the caller alone, so that the kernel may execute it:
// the caller waits, so its number stays its own meanwhile.
var errOwn = errors.New("the caller's own")

// signal does the work of kill(2) for the command, also where the call names a thread or
// carries data, which are lost between processes.
func (c caller) signal(pid int, sig unix.Signal) error {
	self, err := c.process()
	if err != nil {
		return err
	}
	var meant func(p proc.Process) bool
	switch {
	case pid == 0, pid == self.PID:
		return errOwn
	case pid > 0:
		return signalProc(pid, sig)
	case pid == -1:
		meant = func(p proc.Process) bool { return p.PID != self.PID }
	default:
		meant = func(p proc.Process) bool { return p.PGID == -pid }
	}
	err = unix.ESRCH
	if pid < -1 && unix.Kill(pid, 0) == nil { // the group exists, and may be outside
		err = unix.EPERM
	}
	none := err
	for _, p := range proc.Family(os.Getpid()) {
		if !meant(p) || p.Zombie {
			continue
		}
		if e := signalProc(p.PID, sig); e == nil || err == none {
			err = e
		}
	}
	return err
}

// signalThread does the work of tkill(2) for a thread of the caller.
func (c caller) signalThread(tid int, sig unix.Signal) error {
	self, err := c.process()
	if err != nil {
		return err
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", self.PID, tid)); err != nil {
		return c.signal(tid, sig)
	}
	return unix.Tgkill(self.PID, tid, sig)
}

// process returns the process of the waiting thread.
func (c caller) process() (proc.Process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.n.pid))
	if err != nil {
		return proc.Process{}, unix.ESRCH
	}
	_, rest, _ := bytes.Cut(data, []byte("\nTgid:\t"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	pid, err := strconv.Atoi(string(line))
	if err != nil {
		return proc.Process{}, unix.ESRCH
	}
	return proc.Process{PID: pid}, c.valid()
}

// signalProc signals a process if it descends from this one. It opens the handle first, so
// that a later reuse of the number does no harm.
func signalProc(pid int, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return unix.ESRCH
	}
	defer unix.Close(fd)
	if !descends(pid) {
		return unix.EPERM
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// descends reports whether a process descends from this one. Orphans of its commands become
// its children, so the chain of parents leads here.
func descends(pid int) bool {
	self := os.Getpid()
	for range MaxTasks {
		p, ok := proc.Read(pid)
		if !ok || p.PPID <= 1 {
			return false
		}
		if p.PPID == self {
			return true
		}
		pid = p.PPID
	}
	return false
}
