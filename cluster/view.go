package cluster

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// grace is how long after it first met others (or found that it is alone) a node counts
// incarnations that it never saw as alive: the rest of the fleet may be about to join.
const grace = 5 * time.Second

const (
	// lossWindow and lossAlone: a node that loses its last lossAlone peers within this
	// time, without an announcement by one of them, considers itself cut off.
	lossWindow = 10 * time.Second
	lossAlone  = 2
	// maxGone bounds how many ended incarnations are remembered.
	maxGone = 1024
)

// view is this node's view of the fleet. The library's callbacks write it while they
// hold the library's lock, so its methods neither block nor call back.
type view struct {
	mu       sync.RWMutex
	self     Node
	live     map[string]Node
	gone     map[string]end
	since    time.Time // when the view began to count; zero: not yet
	isolated bool
	changed  chan struct{}
}

// end is the end of an incarnation.
type end struct {
	at        time.Time
	announced bool // it was draining
}

func newView() *view {
	return &view{live: map[string]Node{}, gone: map[string]end{}, changed: make(chan struct{})}
}

// put records that a node lives, and its description.
func (v *view) put(n Node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.live[n.Incarnation] = n
	delete(v.gone, n.Incarnation)
	v.isolated = false
	if v.since.IsZero() {
		v.since = time.Now()
	}
	v.notify()
}

// remove records that a node left or is dead.
func (v *view) remove(incarnation string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, ok := v.live[incarnation]
	if !ok {
		return
	}
	now := time.Now()
	delete(v.live, incarnation)
	v.gone[incarnation] = end{at: now, announced: n.Draining}
	lost, oldest := 0, incarnation
	for inc, e := range v.gone {
		if !e.announced && now.Sub(e.at) < lossWindow {
			lost++
		}
		if e.at.Before(v.gone[oldest].at) {
			oldest = inc
		}
	}
	v.isolated = len(v.live) == 0 && lost >= lossAlone
	if len(v.gone) > maxGone {
		delete(v.gone, oldest)
	}
	v.notify()
}

// alone records that there is no other node to meet.
func (v *view) alone() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.since.IsZero() {
		v.since = time.Now()
	}
}

// setSelf records this node's description.
func (v *view) setSelf(n Node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.self = n
	v.notify()
}

// notify wakes all waiters for a change. The lock is held.
func (v *view) notify() {
	close(v.changed)
	v.changed = make(chan struct{})
}

func (v *view) next() <-chan struct{} {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.changed
}

func (v *view) known(incarnation string) (alive, known bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if incarnation == v.self.Incarnation {
		return true, true
	}
	if _, ok := v.live[incarnation]; ok {
		return true, true
	}
	if e, ok := v.gone[incarnation]; ok && (e.announced || !v.isolated) {
		return false, true
	}
	return false, !v.isolated && !v.since.IsZero() && time.Since(v.since) >= grace
}

// others returns the live nodes except this one.
func (v *view) others() map[string]Node {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return maps.Clone(v.live)
}

func (v *view) cutOff() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.isolated
}

func (v *view) list() []Node {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := make([]Node, 0, len(v.live)+1)
	out = append(out, v.self)
	for _, n := range v.live {
		out = append(out, n)
	}
	for i := range out {
		out[i].Pools = slices.Clone(out[i].Pools)
	}
	slices.SortFunc(out, byName)
	return out
}
