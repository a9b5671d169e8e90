//go:build linux

package fleet

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// thread is the operating system thread from which all processes of a fleet are started.
// The kernel kills them when it ends (PR_SET_PDEATHSIG refers to the thread, not the
// process), and only they see the mounts made on it.
type thread struct {
	calls chan func()
	done  chan struct{}
	home  *os.File // the network namespace of this process
}

func newThread() (*thread, error) {
	t := &thread{calls: make(chan func()), done: make(chan struct{})}
	ready := make(chan error)
	go t.loop(ready)
	if err := <-ready; err != nil {
		return nil, err
	}
	return t, nil
}

func (t *thread) loop(ready chan<- error) {
	// Never unlocked: the thread ends with the goroutine.
	runtime.LockOSThread()
	defer close(t.done)
	var err error
	if t.home, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		ready <- fmt.Errorf("fleet: network namespace: %w", err)
		return
	}
	defer t.home.Close()
	if err = unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err == nil {
		err = unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err != nil {
		ready <- fmt.Errorf("fleet: mounts of its own: %w; run it as root", err)
		return
	}
	ready <- nil
	for call := range t.calls {
		call()
	}
}

// close ends the thread, and with it every process that was started from it.
func (t *thread) close() {
	close(t.calls)
	<-t.done
}

// do calls f on the thread, in the network namespace ns; a nil ns is the namespace of this
// process.
func (t *thread) do(ns *os.File, f func() error) error {
	result := make(chan error)
	t.calls <- func() {
		if ns == nil {
			result <- f()
			return
		}
		err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = f()
			if back := unix.Setns(int(t.home.Fd()), unix.CLONE_NEWNET); back != nil {
				panic(fmt.Sprintf("fleet: return to the network namespace of the process: %v", back))
			}
		}
		result <- err
	}
	return <-result
}

// namespace makes a network namespace that lives as long as the file, or
// a thread in it.
func (t *thread) namespace() (ns *os.File, err error) {
	err = t.do(nil, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("fleet: network namespace: %w; run it as root", err)
		}
		ns, err = os.Open("/proc/thread-self/ns/net")
		if back := unix.Setns(int(t.home.Fd()), unix.CLONE_NEWNET); back != nil {
			panic(fmt.Sprintf("fleet: return to the network namespace of the process: %v", back))
		}
		return err
	})
	return ns, err
}

// path names an open file for other processes.
func path(f *os.File) string {
	return strings.Join([]string{"/proc", strconv.Itoa(os.Getpid()), "fd", strconv.Itoa(int(f.Fd()))}, "/")
}
