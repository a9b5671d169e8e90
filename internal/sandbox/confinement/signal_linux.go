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

// Before Landlock guarded signals, a command could signal each process of its user: this
// program, and commands of other sandboxes. There the supervisor sends the signals of a
// command, to what descends from the supervisor and to nothing else.

// errOwn says that the call concerns the caller alone, so that the kernel may go on with
// it: the caller waits, and its number is its own meanwhile.
var errOwn = errors.New("the caller's own")

// signal does what kill(2) does for the command, also where the call names a thread or
// brings data: those are lost between processes.
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
	if pid < -1 && unix.Kill(pid, 0) == nil { // a group that is there, and perhaps outside
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

// signalThread does what tkill(2) does for a thread of the caller.
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

// process is the process of the thread that waits.
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

// signalProc signals a process if it descends from this one. The handle is taken first:
// what the number means later is no matter.
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

// descends reports whether a process descends from this one. All that its commands leave
// becomes its child, so the parents lead here.
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
