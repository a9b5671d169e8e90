package limiter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rathcluster/rath/llm"
)

const (
	// lookFor is the longest time that a node waits before it checks the free amount
	// again, and wantEvery the interval at which it reports that it waits.
	lookFor   = 500 * time.Millisecond
	wantEvery = 2 * time.Second
	// awayFor is how long calls wait while the store does not answer.
	awayFor = 20 * time.Second
	// triesFor bounds one exchange with the store.
	triesFor = 5 * time.Second
	// maxTenants bounds the tenants that a want names.
	maxTenants = 64
)

// sharing is one run of share.
type sharing struct {
	l        *Limit
	ctx      context.Context
	ended    lease     // whose end the ledger does not have
	wanted   time.Time // time of the last report of a want; zero if there is none
	failing  time.Time // the start of the store's failure
	lastUsed Amount    // of the previous lease
	drained  bool      // of the previous lease
}

// share leases the amounts for the node's calls, until no call waits and all usage is
// reported.
func (l *Limit) share(ctx context.Context) {
	s := &sharing{l: l, ctx: ctx}
	for {
		l.mu.Lock()
		now := time.Now()
		idle := l.waiting.len == 0 && l.returned == nil && l.beyond == 0
		switch {
		case ctx.Err() != nil:
			l.fail(errClosed)
			l.running = false
			l.mu.Unlock()
			return
		case l.lease.open && now.Before(l.lease.until) && (idle || l.lease.paced || !l.lease.drained):
			until := l.lease.until.Sub(now)
			l.mu.Unlock()
			s.sleep(until, true)
			continue
		case l.lease.open: // the reported lease must not change
			s.end()
		case idle && s.ended.serial == 0 && s.wanted.IsZero():
			l.running = false
			l.mu.Unlock()
			return
		}
		plan := s.plan(now)
		l.mu.Unlock()
		s.exchange(plan)
	}
}

// end closes the lease. l.mu is held.
func (s *sharing) end() {
	l := s.l
	l.lease.open = false
	s.ended, s.lastUsed, s.drained = l.lease, l.lease.used, l.lease.drained
}

// plan is a node's input to an exchange.
type plan struct {
	need, ask Amount // zero if no call waits
	want      want
	returned  int64
	beyond    int64
}

// plan computes the current needs. l.mu is held.
func (s *sharing) plan(now time.Time) plan {
	l := s.l
	p := plan{want: want{Node: l.set.node}, beyond: l.beyond}
	for _, r := range l.returned {
		if now.Sub(r.at) < l.set.terms.window {
			p.returned += r.tokens
		}
	}
	l.beyond, l.returned = 0, nil
	if w := l.waiting.next(); w != nil {
		p.need = Amount{1, w.tokens}
		p.want.Amount = Amount{int64(l.waiting.len), l.waiting.tokens}
		p.want.Tenants = l.waiting.calls()
		p.ask = s.lastUsed.times(1.25).most(p.want.Amount)
		if s.drained {
			p.ask = s.lastUsed.times(2).most(p.want.Amount)
		}
	}
	return p
}

// exchange reports the usage to the ledger, and takes a lease if calls wait.
func (s *sharing) exchange(p plan) {
	l := s.l
	ctx, cancel := context.WithTimeout(s.ctx, triesFor)
	defer cancel()
	for {
		next, err := s.try(ctx, p)
		switch {
		case errors.Is(err, ErrChanged) && ctx.Err() == nil:
			s.sleep(rand.N(5*time.Millisecond), false)
			continue
		case err != nil:
			s.away(p, err)
		default:
			s.failing = time.Time{}
			if next > 0 {
				s.sleep(next, false)
			}
		}
		l.mu.Lock()
		l.serve()
		l.mu.Unlock()
		return
	}
}

// try makes one exchange. It returns the time to wait before the next one if calls wait
// and nothing is free.
func (s *sharing) try(ctx context.Context, p plan) (time.Duration, error) {
	l, t := s.l, s.l.set.terms
	e, err := l.set.store.Read(ctx, l.name)
	now := time.Now()
	if err != nil {
		return 0, err
	}
	ledger := decode(e, l.amount)
	if e.Seq > 0 {
		l.set.learn(e.Time, now)
	}
	passed := l.set.passed(now)
	node := l.set.node
	ledger.expire(passed, t)
	before := len(ledger.Grants)
	ledger.close(node, s.ended.serial, s.ended.used.within(l.amount), passed, t)
	ledger.use(node, Amount{Tokens: p.beyond})
	ledger.returns(node, p.returned)
	ledger.join(node, t)
	tells := s.ended.serial != 0 || p.beyond > 0 || p.returned > 0 || before != len(ledger.Grants)
	p.want.At = 0
	ledger.waits(p.want)
	var got Amount
	var ok, paced bool
	if p.want.Requests > 0 {
		got, paced, ok = ledger.offer(node, p.need, p.ask, l.amount, passed, t)
	}
	serial := l.set.serial()
	switch {
	case ok:
		ledger.Grants = append(ledger.Grants, grant{Node: node, Serial: serial, Amount: got})
		if rest := p.want; got.covers(rest.Amount.within(l.amount)) {
			ledger.waits(want{Node: node})
		}
	case p.want.Requests > 0 && now.Sub(s.wanted) < wantEvery && !tells:
		return l.set.untilFree(&ledger, now), nil // it is reported already
	case p.want.Requests == 0 && !tells && s.wanted.IsZero():
		return 0, nil
	}
	data, err := json.Marshal(ledger)
	if err != nil {
		return 0, err
	}
	sent := time.Now()
	if err := l.set.store.Write(ctx, l.name, e.Seq, data); err != nil {
		return 0, err
	}
	// The report is stored and must not be repeated.
	s.ended = lease{}
	first := s.wanted.IsZero()
	s.wanted = time.Time{}
	if ledger.wanted(node) {
		s.wanted = now
	}
	switch {
	case ok:
		l.mu.Lock()
		l.lease = lease{serial: serial, open: true, until: sent.Add(t.lease), left: got, paced: paced}
		l.mu.Unlock()
		return 0, nil
	case p.want.Requests > 0 && first: // the next read shows the entry's time
		return 0, nil
	case p.want.Requests > 0:
		return l.set.untilFree(&ledger, now), nil
	}
	return 0, nil
}

// away handles a store that does not answer. Usage is reported again later, perhaps
// twice. Returned amounts are not reported again, because they may be stored already.
func (s *sharing) away(p plan, err error) {
	l := s.l
	now := time.Now()
	if s.failing.IsZero() {
		s.failing = now
		l.set.log.Warn("the ledger of a limit of models does not answer; calls wait for it", "limit", l.what, "at most", awayFor.String(), "err", err)
	}
	l.mu.Lock()
	l.beyond += p.beyond
	if now.Sub(s.failing) >= awayFor {
		l.fail(&llm.Error{Code: llm.CodeUnavailable, Final: true, Message: fmt.Sprintf(
			"%s cannot be kept: the NATS servers have not answered for it for %v (%s); the next call asks them again", l, awayFor, llm.Clip(err.Error(), 200))})
		if l.waiting.len == 0 { // no call needs the rest: the reported lease expires by itself
			l.beyond, l.returned, s.ended, s.wanted = 0, nil, lease{}, time.Time{}
		}
		s.failing = time.Time{}
	}
	l.mu.Unlock()
	s.sleep(lookFor/2+rand.N(lookFor/2), false)
}

// sleep waits for d or, with wake, until share is woken.
func (s *sharing) sleep(d time.Duration, wake bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var woken chan struct{}
	if wake {
		woken = s.l.wake
	}
	select {
	case <-timer.C:
	case <-woken:
	case <-s.ctx.Done():
	}
}
