// Package workers runs functions in goroutines that it reuses. It suits frequent functions
// that briefly need a deep stack, such as a commit; elsewhere a go statement is clearer.
package workers

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxParked is the maximum number of idle goroutines that a Pool keeps. It has no limit
	// on active ones.
	maxParked = 64
	// parkedFor is the idle time after which a Pool keeps no goroutines. It may take twice as
	// long.
	parkedFor = 10 * time.Second
)

// Pool runs functions in goroutines that it reuses: the stack of a fresh one has to
// grow several times for every commit, which costs as much as all the rest of an
// actor's work. It is safe for concurrent use.
type Pool struct {
	next    chan func() // nil ends a parked goroutine
	stop    chan struct{}
	parked  atomic.Int32
	used    atomic.Bool // a function was run since the last check of shrink
	watched atomic.Bool // shrink is going to look
	wg      sync.WaitGroup
}

// New returns a pool. The caller ends it.
func New() *Pool {
	return &Pool{next: make(chan func()), stop: make(chan struct{})}
}

// Run runs f in a goroutine of its own.
func (w *Pool) Run(f func()) {
	if !w.used.Load() {
		w.used.Store(true)
	}
	select {
	case w.next <- f:
		return
	default:
	}
	w.wg.Go(func() {
		for f != nil {
			f()
			if w.parked.Add(1) > maxParked {
				w.parked.Add(-1)
				return
			}
			w.watch()
			select {
			case f = <-w.next:
				w.parked.Add(-1)
			case <-w.stop:
				return
			}
		}
	})
}

// watch sees to it that shrink looks after the parked goroutines.
func (w *Pool) watch() {
	if !w.watched.Load() && w.watched.CompareAndSwap(false, true) {
		time.AfterFunc(parkedFor, w.shrink)
	}
}

// shrink ends the parked goroutines if no function ran since its last check, and repeats
// the check while there are some.
func (w *Pool) shrink() {
	for idle := !w.used.Swap(false); idle; {
		select {
		case w.next <- nil:
		default:
			idle = false
		}
	}
	w.watched.Store(false)
	select {
	case <-w.stop:
	default:
		if w.parked.Load() > 0 {
			w.watch() // those that parked meanwhile did not
		}
	}
}

// End waits until all functions have returned. No function may be run afterwards.
func (w *Pool) End() {
	close(w.stop)
	w.wg.Wait()
}
