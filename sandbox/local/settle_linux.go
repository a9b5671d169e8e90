package local

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A process that this one starts has all files of this one open until it runs its own
// program. A file that was being written is busy until then and cannot be run, though it is
// closed here. So a command waits until the processes whose start began before it run their
// programs. The lock of package syscall does not tell: the kernel lets the parent go on
// before it closes the files of the child.

const (
	// settlePatience is far above what the start of a process takes.
	settlePatience = 2 * time.Second
	// leastWrite is above the numbers under which a supervisor is given files, and below
	// those that most files of a host have: the kernel closes files from the highest
	// number to the lowest.
	leastWrite = 8
)

// starts tells when those processes are at work. Each inherits the writing end of a pipe,
// which ends with the last of those that have it.
var starts struct {
	mu    sync.Mutex
	now   *starting
	write int // the number of the writing end, which is that of each pipe in turn
}

// starting are the processes whose start began since the ones before.
type starting struct {
	before *starting // until they are at work; nil for the first ones
	read   *os.File
	over   chan struct{} // closed when they are at work
}

// settle waits until what was written and closed before can be run.
func settle() error {
	s, err := nextStarts()
	if err != nil || s == nil {
		return err
	}
	defer close(s.over)
	defer s.read.Close()
	if err := s.read.SetReadDeadline(time.Now().Add(settlePatience)); err != nil {
		return err
	}
	_, _ = s.read.Read(make([]byte, 1)) // the end, or the deadline
	if s.before != nil {
		<-s.before.over
		s.before = nil
	}
	return nil
}

// nextStarts has the processes that are started from now on inherit another pipe, and
// returns those from before. The first call knows of none.
func nextStarts() (*starting, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	defer unix.Close(ends[1])
	next := &starting{read: os.NewFile(uintptr(ends[0]), "starts"), over: make(chan struct{})}
	starts.mu.Lock()
	defer starts.mu.Unlock()
	var err error
	if starts.now == nil {
		starts.write, err = unix.FcntlInt(uintptr(ends[1]), unix.F_DUPFD_CLOEXEC, leastWrite)
	} else {
		err = unix.Dup3(ends[1], starts.write, unix.O_CLOEXEC)
	}
	if err != nil {
		next.read.Close()
		return nil, fmt.Errorf("pipe: %w", err)
	}
	next.before, starts.now = starts.now, next
	return next.before, nil
}
