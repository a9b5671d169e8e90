package inprocess

import (
	"context"
	"sync"
)

// turns serialises the work items of a tree, in an order that does not depend on the
// scheduler: the main run before signals, signals before branches, and each kind in the
// order of arrival. A nil turns lets all of them run concurrently.
type turns struct {
	mu      sync.Mutex
	taken   bool
	mainDue bool // the main run was woken, and takes the next turn
	over    bool // the main run has ended: its remaining work runs at once
	waiting [3][]chan struct{}
}

// The kinds of work that take turns.
const (
	turnMain = iota
	turnSignal
	turnBranch
)

// wake gives the next turn to the main run.
func (q *turns) wake() {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mainDue = true
}

// join enqueues a work item; the returned function waits for its turn. The caller must
// call leave after it, unless it fails.
func (q *turns) join(kind int) (wait func(context.Context) error) {
	if q == nil {
		return func(context.Context) error { return nil }
	}
	ready := make(chan struct{})
	q.mu.Lock()
	q.waiting[kind] = append(q.waiting[kind], ready)
	q.grant()
	q.mu.Unlock()
	return func(ctx context.Context) error {
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return ctx.Err() // the tree ends, and none of its work has another turn
		}
	}
}

// leave ends a turn.
func (q *turns) leave() {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken = false
	q.grant()
}

// end lets all remaining work run concurrently.
func (q *turns) end() {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = true
	q.grant()
}

// grant gives the turn to the next in line. q.mu is held.
func (q *turns) grant() {
	for kind := range q.waiting {
		for len(q.waiting[kind]) > 0 && (q.over || !q.taken && (!q.mainDue || kind == turnMain)) {
			close(q.waiting[kind][0])
			q.waiting[kind] = q.waiting[kind][1:]
			q.taken = true
			if kind == turnMain {
				q.mainDue = false
			}
		}
	}
}
