package local

import (
	"os"
	"sync/atomic"
	"time"
)

// forks decides whether a command may start another process or thread. Every
// start asks, so a tree that is being killed cannot grow, however fast it
// forks and however often it leaves its session; and a fork bomb stops at the
// limit instead of taking all the numbers the host has.
//
// Ends are not seen. The budget is therefore a count of what may still be
// started before the tree has to be counted again: the limit holds at every
// moment, and counting, which is slow, is rare below it.
type forks struct {
	limit   int
	budget  int
	counted time.Time
	stopped atomic.Bool
}

// countEvery bounds how often a tree at its limit is counted.
const countEvery = 10 * time.Millisecond

// stop refuses from now on. It may be called from anywhere.
func (f *forks) stop() { f.stopped.Store(true) }

// allow reports whether one more may be started. It is for one goroutine.
func (f *forks) allow() bool {
	if f.stopped.Load() {
		return false
	}
	if f.budget == 0 && time.Since(f.counted) >= countEvery {
		f.budget = max(0, f.limit-tasks(os.Getpid()))
		f.counted = time.Now()
	}
	if f.budget == 0 {
		return false
	}
	f.budget--
	return true
}
