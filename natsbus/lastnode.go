package natsbus

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rathcluster/rath/run"
)

const (
	// lastPatience is how long the node where a run was may take to say that it
	// takes it up, before the pool is offered it.
	lastPatience = 200 * time.Millisecond
	// lastAtOnce bounds the questions that one node is asked at the same time.
	lastAtOnce = 16
	// lastFull is for how long a node is not asked that had no slot to spare,
	// lastSilent one that stops, did not answer, or is not there.
	lastFull   = 100 * time.Millisecond
	lastSilent = time.Second
	// lastKnown is how many nodes are remembered before those are forgotten
	// that may be asked.
	lastKnown = 64
)

// lastNodes offers runs whose wait is over to the nodes that wrote their
// sessions last, because what they need is in memory there. A node says at once
// whether it takes one; else the pool is offered it. It belongs to a process,
// all partitions that it relays share it.
type lastNodes struct {
	c *Conn
	o *RelayOptions

	mu    sync.Mutex
	nodes map[string]*lastNode
}

// lastNode is what is known of an incarnation.
type lastNode struct {
	asking chan struct{} // a token for each question
	not    time.Time     // until when it is not asked
}

func newLastNodes(c *Conn, o *RelayOptions) *lastNodes {
	return &lastNodes{c: c, o: o, nodes: map[string]*lastNode{}}
}

// take reports whether an incarnation takes up a run.
func (l *lastNodes) take(ctx context.Context, incarnation string, w run.Work) bool {
	here := incarnation == l.o.Incarnation
	switch {
	case incarnation == "", here && l.o.Take == nil, !here && l.o.Alive != nil && !l.o.Alive(incarnation):
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lastPatience)
	defer cancel()
	n := l.node(incarnation)
	select {
	case n.asking <- struct{}{}:
		defer func() { <-n.asking }()
	case <-ctx.Done():
		return false
	}
	if l.paused(n) {
		return false
	}
	var a Answer
	var err error
	if here {
		a, err = l.c.delivered(ctx, w, l.o.Take)
	} else {
		a, err = l.c.Deliver(ctx, incarnation, w)
	}
	taken := err == nil && a != NotMine
	if err != nil {
		l.pause(n, err)
	}
	if l.o.Woken != nil {
		l.o.Woken(incarnation, w.Task.ID, taken)
	}
	l.c.o.Logger.Debug("a run whose wait is over was offered to the node where it was", "run", string(w.Task.ID), "incarnation", incarnation, "taken", taken, "err", err)
	return taken
}

func (l *lastNodes) node(incarnation string) *lastNode {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[incarnation]
	if n == nil {
		if len(l.nodes) >= lastKnown {
			for name, o := range l.nodes {
				if len(o.asking) == 0 && time.Now().After(o.not) {
					delete(l.nodes, name)
				}
			}
		}
		n = &lastNode{asking: make(chan struct{}, lastAtOnce)}
		l.nodes[incarnation] = n
	}
	return n
}

func (l *lastNodes) paused(n *lastNode) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(n.not)
}

// pause has a node not asked for a while, because of how it did not take a run.
func (l *lastNodes) pause(n *lastNode, err error) {
	d := lastSilent
	if errors.Is(err, run.ErrBusy) {
		d = lastFull
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n.not = time.Now().Add(d)
}

// delivered gives work that is for this process to handle. A woken run passes
// by what waits in the queue of the pool, so it is only taken while that keeps
// nobody waiting.
func (c *Conn) delivered(ctx context.Context, w run.Work, handle func(ctx context.Context, w run.Work) (Answer, error)) (Answer, error) {
	if w.Woken {
		if spare := c.spare.Load(); spare == nil || !(*spare)() {
			return "", run.ErrBusy
		}
	}
	return handle(ctx, w)
}
