// Package workers runs functions in goroutines that it reuses. It is for what happens
// often and takes a deep stack for a moment, as a commit does; elsewhere a go statement
// says more.
package workers

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxParked is how many goroutines a Pool keeps for later work. It starts
	// as many as it needs.
	maxParked = 64
	// parkedFor is after how long without any work it keeps none. It may take
	// twice as long.
	parkedFor = 10 * time.Second
)

// Pool runs functions in goroutines that it reuses: the stack of a fresh one has to
// grow several times for every commit, which costs as much as all the rest of an
// actor's work. It is safe for concurrent use.
type Pool struct {
	next    chan func() // nil ends a parked goroutine
	stop    chan struct{}
	parked  atomic.Int32
	used    atomic.Bool // something was run since shrink last looked
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

// shrink ends the parked goroutines if nothing was run since it last looked, and
// goes on looking while there are some.
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

// End waits until all that was run has returned. Nothing may be run after it.
func (w *Pool) End() {
	close(w.stop)
	w.wg.Wait()
}
