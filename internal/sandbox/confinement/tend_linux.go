package confinement

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/sandbox/proc"
)

const (
	// Patience is how long a tree may take to die.
	Patience = 8 * time.Second
	// between two checks while it dies
	minWait = 50 * time.Microsecond
	maxWait = 5 * time.Millisecond
	// bombWatch is the interval at which the number of tasks is read. Each read takes some
	// 200 us of a processor, nearly all of it in the timers of Go.
	bombWatch = 50 * time.Millisecond
	// bombCount is the maximum interval between two counts. It is longer where a count
	// takes more than one part in bombRest of it.
	bombCount = time.Second
	bombRest  = 500
)

// tree is the process tree that a supervisor has started, directly and indirectly. As the
// supervisor is the subreaper, a process that loses its parent becomes its child.
//
// The lock is held to reap and to kill. A child that is not reaped keeps its number, so a
// number that was read under the lock can be killed under it.
type tree struct {
	pid   int // of the command
	mu    sync.Mutex
	ended chan Result   // one, when the command has ended
	gone  chan struct{} // closed when no process is left

	stopped bool         // guarded by mu
	killed  map[int]bool // children that were killed and not yet reaped; guarded by mu
}

// tend waits for the command's end, for stop, or for a watch to report, whichever comes
// first, and then kills the remaining processes.
func tend(pid int, stop <-chan struct{}, bomb, disk <-chan string) Result {
	t := &tree{pid: pid, ended: make(chan Result, 1), gone: make(chan struct{}), killed: make(map[int]bool)}
	go t.wait()

	var r Result
	note, asked, full := "", false, false
	select {
	case r = <-t.ended:
	case note = <-bomb:
	case note = <-disk:
		full = true
	case <-stop:
		asked = true
	}
	t.mu.Lock()
	t.stopped = asked
	t.mu.Unlock()
	if !t.kill() {
		return Result{Failed: "processes are left that could not be killed"}
	}
	<-t.gone // otherwise it would wait for the next command's tree
	select {
	case r = <-t.ended:
	default: // the command had ended before
	}
	r.Note, r.Full = note, full
	return r
}

// wait reaps until no process is left.
func (t *tree) wait() {
	defer close(t.gone)
	for {
		// Peek first, so that the lock is not held while waiting.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT|unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return // ECHILD
		}
		t.mu.Lock()
		t.reap()
		t.mu.Unlock()
	}
}

// reap reaps every child that has ended, and reports whether none is left.
func (t *tree) reap() (none bool) {
	for {
		var ws unix.WaitStatus
		p, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || p <= 0 {
			return err == unix.ECHILD
		}
		delete(t.killed, p)
		if p != t.pid {
			continue
		}
		r := Result{Stopped: t.stopped, Code: ws.ExitStatus()}
		if ws.Signaled() {
			r.Signal = int(ws.Signal())
			r.Code = 128 + r.Signal
		}
		t.ended <- r
	}
}

// kill kills until no process is left or Patience is over.
//
// A process that repeatedly forks, leaves its session and ends is alive for some 100 us
// under each number, so the time from reading a number to killing it is decisive. New
// children are read from the kernel's own list and killed at once. A process that was
// killed once needs a moment of the processor to die, which this loop must not use up.
func (t *tree) kill() bool {
	// Most commands leave no processes, and the search is the slow part.
	t.mu.Lock()
	none := t.reap()
	t.mu.Unlock()
	if none {
		return true
	}
	deadline := time.Now().Add(Patience)
	wait := minWait
	for {
		if wait == minWait || wait >= maxWait {
			// Slower, but this sees the whole tree, not only direct children.
			t.mu.Lock()
			proc.KillAll(proc.Descendants(os.Getpid()))
			t.mu.Unlock()
		}
		t.mu.Lock()
		found := t.killChildren()
		t.reap()
		t.mu.Unlock()
		if found {
			wait = 2 * minWait
		}
		select {
		case <-t.gone:
			return true
		case <-time.After(wait):
		}
		if time.Now().After(deadline) {
			return false
		}
		wait = min(2*wait, maxWait)
	}
}

// killChildren kills the direct children that were not killed before, after the groups they
// are in: a group is killed at once, even while its members fork.
func (t *tree) killChildren() (found bool) {
	self := unix.Getpgrp()
	for _, pid := range children() {
		if t.killed[pid] {
			continue
		}
		t.killed[pid], found = true, true
		if pgid, err := unix.Getpgid(pid); err == nil && pgid > 1 && pgid != self {
			unix.Kill(-pgid, unix.SIGKILL)
		}
		unix.Kill(pid, unix.SIGKILL)
	}
	return found
}

// children returns the numbers of the direct children of all threads. It is empty on a
// kernel without such a list, where descendants finds them.
func children() []int {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil
	}
	var list []int
	for _, thread := range threads {
		data, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/children")
		if err != nil {
			continue // the thread ended
		}
		for f := range bytes.FieldsSeq(data) {
			if pid, err := strconv.Atoi(string(f)); err == nil {
				list = append(list, pid)
			}
		}
	}
	return list
}

// watch reports when the tree has more than most tasks. Counting them is slow. So it counts
// when the whole machine has that many tasks more than exist outside the tree, which is one
// short line to read, and periodically: other tasks that end hide as many of the tree's,
// and so do tasks that the command had started before the first reading.
func watch(bomb chan<- string, done <-chan struct{}, most int) {
	load, err := os.Open("/proc/loadavg")
	if err != nil {
		return
	}
	defer load.Close()
	others, ok := allTasks(load)
	if !ok {
		return
	}
	next := time.Now().Add(bombCount)
	for tick := time.Tick(bombWatch); ; {
		select {
		case <-done:
			return
		case <-tick:
		}
		began := time.Now()
		now, ok := allTasks(load)
		if !ok || now-others <= most && began.Before(next) {
			continue
		}
		own := proc.Tasks(os.Getpid())
		if own > most {
			bomb <- fmt.Sprintf("killed: more than %d processes and threads", most)
			return
		}
		others = now - own
		next = time.Now().Add(max(bombCount, bombRest*time.Since(began)))
	}
}

// allTasks returns the number of processes and threads of the machine, from the open file
// /proc/loadavg: "0.20 0.18 0.12 1/80 11206".
func allTasks(load *os.File) (int, bool) {
	var line [128]byte
	n, err := load.ReadAt(line[:], 0)
	if err != nil && err != io.EOF {
		return 0, false
	}
	_, after, _ := bytes.Cut(line[:n], []byte("/"))
	all, _, _ := bytes.Cut(after, []byte(" "))
	tasks, err := strconv.Atoi(string(all))
	return tasks, err == nil
}
