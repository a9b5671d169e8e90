package limiter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rathcluster/rath/llm"
)

// Limit is one limit, at one node. It is safe for concurrent use.
type Limit struct {
	set    *Set
	name   string // in the store
	what   string // the limit's subject, for messages
	amount Amount // in a window

	mu      sync.Mutex
	lease   lease
	waiting queue
	// returned are tokens of ended leases that were counted but not used; beyond are
	// tokens that were used but not counted.
	returned []returned
	beyond   int64
	running  bool          // share runs, in a goroutine
	wake     chan struct{} // wakes share
}

// lease is the node's current allowance.
type lease struct {
	serial  uint64 // of the last one
	open    bool
	until   time.Time
	left    Amount
	used    Amount
	drained bool // a call arrived that it did not cover
	paced   bool // the next one starts when this one ends
}

type returned struct {
	at     time.Time // of the call
	tokens int64
}

// permit is the allowance of one call.
type permit struct {
	of     *Limit
	lease  uint64
	tokens int64
	at     time.Time
}

// Acquire implements Limiter.
func (l *Limit) Acquire(ctx context.Context, tenant string, tokens int64) (settle func(used int64), err error) {
	p, err := l.acquire(ctx, tenant, tokens)
	if err != nil {
		return nil, err
	}
	return p.settle, nil
}

func (l *Limit) acquire(ctx context.Context, tenant string, tokens int64) (permit, error) {
	need := Amount{1, min(tokens, l.amount.Tokens)}
	l.mu.Lock()
	if l.waiting.len == 0 && l.take(need) {
		p := permit{l, l.lease.serial, need.Tokens, time.Now()}
		l.mu.Unlock()
		return p, nil
	}
	w := &waiter{tenant: tenant, tokens: need.Tokens, done: make(chan struct{})}
	l.waiting.add(w)
	err := l.look()
	l.mu.Unlock()
	if err == nil {
		select {
		case <-w.done:
			return permit{l, w.lease, w.tokens, time.Now()}, w.err
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.waiting.remove(w) && w.err == nil { // it was served in the meantime
		l.giveBack(w.lease, Amount{1, w.tokens})
	}
	return permit{}, err
}

// take uses a part of the lease. l.mu is held.
func (l *Limit) take(need Amount) bool {
	if !l.lease.open {
		return false
	}
	need = need.within(l.amount)
	if !l.lease.left.covers(need) || !time.Now().Before(l.lease.until) {
		l.lease.drained = l.lease.drained || !l.lease.left.covers(need)
		return false
	}
	l.lease.left, l.lease.used = l.lease.left.minus(need), l.lease.used.plus(need)
	return true
}

// look wakes share, or starts it if it does not run. l.mu is held.
func (l *Limit) look() error {
	if l.running {
		select {
		case l.wake <- struct{}{}:
		default:
		}
		return nil
	}
	if !l.set.begin(l.share) {
		return errClosed
	}
	l.running = true
	return nil
}

// serve starts the calls for which the lease is sufficient. l.mu is held.
func (l *Limit) serve() {
	for {
		w := l.waiting.next()
		if w == nil || !l.take(Amount{1, w.tokens}) {
			return
		}
		w.lease = l.lease.serial
		l.waiting.serve(w, l.amount)
		close(w.done)
	}
}

// fail ends the waiting calls. l.mu is held.
func (l *Limit) fail(err error) {
	for w := l.waiting.next(); w != nil; w = l.waiting.next() {
		w.err = err
		l.waiting.remove(w)
		close(w.done)
	}
}

// giveBack returns an unused amount. l.mu is held.
func (l *Limit) giveBack(serial uint64, a Amount) {
	if a = a.within(l.amount); l.lease.open && l.lease.serial == serial {
		l.lease.left, l.lease.used = l.lease.left.plus(a), l.lease.used.minus(a)
		l.serve()
	}
}

// unused returns a permit whose request was not sent.
func (p *permit) unused() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.giveBack(p.lease, Amount{1, p.tokens})
}

// settle replaces the tokens of the permit by those that the request used.
func (p *permit) settle(used int64) {
	l := p.of
	if l.amount.Tokens == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch over := p.tokens - max(used, 0); {
	case over == 0:
	case l.lease.open && l.lease.serial == p.lease:
		l.giveBack(p.lease, Amount{Tokens: over})
	case over < 0:
		l.beyond -= over
		_ = l.look() // a closed limit reports nothing
	case time.Since(p.at) < l.set.terms.window:
		l.returned = append(l.returned, returned{p.at, over})
		_ = l.look()
	}
}

// String describes the limit.
func (l *Limit) String() string {
	text := ""
	if l.amount.Requests > 0 {
		text = fmt.Sprintf("%d requests", l.amount.Requests)
	}
	if l.amount.Tokens > 0 {
		if text != "" {
			text += " and "
		}
		text += fmt.Sprintf("%d tokens", l.amount.Tokens)
	}
	return fmt.Sprintf("the limit of %s, %s a minute for all nodes", l.what, text)
}

var errClosed = &llm.Error{Code: llm.CodeUnavailable, Final: true, Message: "the node ends"}

var _ Limiter = (*Limit)(nil)
