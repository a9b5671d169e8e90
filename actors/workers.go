package actors

import (
	"sync"
	"sync/atomic"
)

// maxParked is how many goroutines a System keeps for later work. It starts as
// many as it needs.
const maxParked = 64

// workers runs functions in goroutines that it reuses: the stack of a fresh
// one has to grow several times for every commit, which costs as much as all
// the rest of an actor's work.
type workers struct {
	next   chan func()
	stop   chan struct{}
	parked atomic.Int32
	wg     sync.WaitGroup
}

func newWorkers() *workers {
	return &workers{next: make(chan func()), stop: make(chan struct{})}
}

// run runs f in a goroutine of its own.
func (w *workers) run(f func()) {
	select {
	case w.next <- f:
		return
	default:
	}
	w.wg.Go(func() {
		for {
			f()
			if w.parked.Add(1) > maxParked {
				w.parked.Add(-1)
				return
			}
			select {
			case f = <-w.next:
				w.parked.Add(-1)
			case <-w.stop:
				return
			}
		}
	})
}

// end waits until all that was run has returned. Nothing may be run after it.
func (w *workers) end() {
	close(w.stop)
	w.wg.Wait()
}
