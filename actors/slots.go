package actors

import (
	"context"
	"slices"
	"sync"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// executions holds the runs that execute here, and their slots.
type executions struct {
	slots chan struct{} // a token per slot that is taken
	freed chan struct{} // holds a token after one was given back

	mu         sync.Mutex
	ended      chan struct{} // closed and replaced when one ends
	refuse     bool
	starting   map[runKey]int // tasks on their way to a claim
	running    map[runKey]*slot
	reclaiming map[runKey]bool // runs that are to be resumed
	suspects   suspects
}

// slot is the place of one execution.
type slot struct {
	key     runKey
	ex      execution
	release func() // gives its slot back
	proven  bool   // it has recorded a step
}

type runKey struct {
	tenant session.Tenant
	id     run.ID
}

func keyOf(t journal.Task) runKey { return runKey{t.Session.Tenant, t.ID} }

func (x *executions) init(slots int) {
	x.slots, x.freed = make(chan struct{}, slots), make(chan struct{}, 1)
	x.ended = make(chan struct{})
	x.starting, x.running, x.reclaiming = map[runKey]int{}, map[runKey]*slot{}, map[runKey]bool{}
	x.suspects.groups = map[runKey]int{}
}

// enter registers a task that is about to be claimed, unless the system drains.
func (x *executions) enter(k runKey) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.refuse {
		return run.ErrShutdown
	}
	x.starting[k]++
	return nil
}

// refuses reports whether the system drains.
func (x *executions) refuses() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.refuse
}

// leave undoes enter.
func (x *executions) leave(k runKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.starting[k]--; x.starting[k] == 0 {
		delete(x.starting, k)
	}
	x.signal()
}

func (x *executions) start(k runKey, ex execution, release func()) *slot {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &slot{key: k, ex: ex, release: release}
	x.running[k] = s
	return s
}

func (x *executions) end(s *slot) {
	x.mu.Lock()
	if x.running[s.key] == s {
		delete(x.running, s.key)
		delete(x.suspects.groups, s.key)
	}
	if s.proven {
		x.suspects.proven--
	}
	x.mu.Unlock()
	s.release()
}

// reclaim registers a run that is to be resumed; it returns false if it is registered
// already.
func (x *executions) reclaim(k runKey) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	first := !x.reclaiming[k]
	x.reclaiming[k] = true
	return first
}

// reclaimed undoes reclaim.
func (x *executions) reclaimed(k runKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.reclaiming, k)
}

func (x *executions) signal() {
	close(x.ended)
	x.ended = make(chan struct{})
}

// has reports whether a run executes, or has another claim in progress besides the
// caller's own, which enter has registered too.
func (x *executions) has(k runKey) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.running[k]
	return ok || x.starting[k] > 1
}

// any reports whether a run executes or is being claimed.
func (x *executions) any(k runKey) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.running[k]
	return ok || x.starting[k] > 0
}

// take takes a slot, if one is free.
func (x *executions) take() (release func(), ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.suspects.closed() {
		return nil, false
	}
	select {
	case x.slots <- struct{}{}:
		return x.release, true
	default:
		return nil, false
	}
}

// release gives a slot back.
func (x *executions) release() {
	<-x.slots
	x.mu.Lock()
	defer x.mu.Unlock()
	x.changed()
}

// changed reports that there may be room. The lock is held.
func (x *executions) changed() {
	x.signal()
	select {
	case x.freed <- struct{}{}:
	default: // the last token was not received yet
	}
}

// free returns how many slots could be taken now.
func (x *executions) free() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.suspects.closed() {
		return 0
	}
	return cap(x.slots) - len(x.slots)
}

func (x *executions) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.refuse = true
}

// wait returns when no run executes or is about to, or with ctx's error.
func (x *executions) wait(ctx context.Context) error {
	for {
		x.mu.Lock()
		n, changed := len(x.running)+len(x.starting), x.ended
		x.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// names are the runs that execute or are about to.
func (x *executions) names() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var names []string
	for k := range x.running {
		names = append(names, string(k.id))
	}
	for k := range x.starting {
		names = append(names, string(k.id))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
