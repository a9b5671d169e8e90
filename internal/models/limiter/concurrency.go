package limiter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/llm"
)

const (
	// Hold is how long calls in flight count after their node's last report, and
	// renewEvery the interval of the reports.
	Hold       = 30 * time.Second
	renewEvery = 2 * time.Second
)

// Concurrency bounds the concurrent calls of each tenant at all nodes. It is safe for
// concurrent use.
type Concurrency struct {
	set  *Set
	what string // the limit's subject, for messages
	most int64

	mu      sync.Mutex
	tenants map[string]*calls // that have any
}

// calls are the calls of one tenant at this node. The mutex of the Concurrency guards
// them.
type calls struct {
	of      *Concurrency
	tenant  string
	name    string // in the store
	under   int64  // calls in flight
	peak    int64  // the largest value of under since the last exchange
	may     int64  // calls that may be in flight, until
	until   time.Time
	waiting []*caller
	running bool
	wake    chan struct{}

	// The state of keep. told is this node's entry in the ledger: held is 0 if there is
	// none, and at is zero where that is uncertain.
	told    flight
	at      time.Time
	failing time.Time // the start of the store's failure
}

// caller is a call that waits.
type caller struct {
	since time.Time
	done  chan struct{} // closed when the call may start, or has failed
	err   error
}

// flight is a ledger's entry for the calls of a tenant at a node. An entry expires Hold
// after At; waiting calls expire sooner.
type flight struct {
	Node    string `json:"node"`
	Held    int64  `json:"held,omitempty"`
	Waiting int64  `json:"waiting,omitempty"`
	Since   int64  `json:"since_ms,omitempty"` // the first of them
	At      int64  `json:"at_ms,omitempty"`    // 0 is the time of the entry
}

// Concurrency returns the limit on the concurrent calls of what, as Limit does.
func (s *Set) Concurrency(what string, most int64) *Concurrency {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.concurrency[what]
	if c == nil {
		c = &Concurrency{set: s, what: what, most: most, tenants: map[string]*calls{}}
		s.concurrency[what] = c
	}
	return c
}

// Then returns the limiter of calls that other limits bound as well, nil for none. A
// call that waits for those limits counts as in flight.
func (c *Concurrency) Then(next Limiter) Limiter { return then{c, next} }

type then struct {
	first *Concurrency
	next  Limiter
}

// Acquire implements Limiter.
func (t then) Acquire(ctx context.Context, tenant string, tokens int64) (settle func(used int64), err error) {
	c, err := t.first.acquire(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if t.next == nil {
		return func(int64) { c.release() }, nil
	}
	inner, err := t.next.Acquire(ctx, tenant, tokens)
	if err != nil {
		c.release()
		return nil, err
	}
	return func(used int64) {
		inner(used)
		c.release()
	}, nil
}

// acquire waits until a call of a tenant may start. The caller must call release at its
// end.
func (c *Concurrency) acquire(ctx context.Context, tenant string) (*calls, error) {
	c.mu.Lock()
	t := c.tenants[tenant]
	if t == nil {
		t = &calls{of: c, tenant: tenant, name: entryName(c.what + " calls of " + tenant), wake: make(chan struct{}, 1)}
		c.tenants[tenant] = t
	}
	w := &caller{since: time.Now(), done: make(chan struct{})}
	t.waiting = append(t.waiting, w)
	t.serve()
	err := t.look()
	c.mu.Unlock()
	if err == nil {
		select {
		case <-w.done:
			return t, w.err
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(t.waiting, w); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else if w.err == nil { // it was served in the meantime
		t.end()
	}
	return nil, err
}

// serve starts the calls that may start. The caller of serve, and of the methods below,
// must hold c.mu.
func (t *calls) serve() {
	for len(t.waiting) > 0 && t.under < t.may && time.Now().Before(t.until) {
		t.under++
		t.peak = max(t.peak, t.under)
		close(t.waiting[0].done)
		t.waiting = slices.Delete(t.waiting, 0, 1)
	}
}

// look starts keep if necessary, and wakes it if a call waits.
func (t *calls) look() error {
	switch {
	case !t.running && len(t.waiting) > 0:
		if !t.of.set.begin(t.keep) {
			return errClosed
		}
		t.running = true
	case t.running && (len(t.waiting) > 0 || t.under >= t.may && t.under < t.told.Held):
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// end ends a call.
func (t *calls) end() {
	t.under--
	t.serve()
	_ = t.look() // a closed limit reports nothing
}

func (t *calls) release() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.end()
}

func (t *calls) fail(err error) {
	for _, w := range t.waiting {
		w.err = err
		close(w.done)
	}
	t.waiting = nil
}

// keep reports the calls in flight and the waiting calls to the ledger, until there are
// none.
func (t *calls) keep(ctx context.Context) {
	c := t.of
	for {
		c.mu.Lock()
		if ctx.Err() != nil {
			t.fail(errClosed)
			t.running = false
			c.mu.Unlock()
			return
		}
		if t.under == 0 && len(t.waiting) == 0 && t.told.Node == "" && !t.at.IsZero() {
			t.running = false
			delete(c.tenants, t.tenant)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		t.exchange(ctx)
		c.mu.Lock()
		pause, wake := renewEvery, t.wake
		if len(t.waiting) > 0 || !t.failing.IsZero() { // they wait for other nodes
			pause, wake = lookFor/2+rand.N(lookFor/2), nil
		} else if t.under == 0 && t.told.Node == "" {
			pause = 0
		}
		c.mu.Unlock()
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-wake:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// exchange reports the state to the ledger, and takes free slots for the waiting calls.
func (t *calls) exchange(ctx context.Context) {
	c := t.of
	ctx, cancel := context.WithTimeout(ctx, triesFor)
	defer cancel()
	err := t.try(ctx)
	for errors.Is(err, ErrChanged) && ctx.Err() == nil {
		time.Sleep(rand.N(5 * time.Millisecond))
		err = t.try(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		t.failing = time.Time{}
		t.serve()
		return
	}
	t.at = time.Time{} // it may be stored
	if now := time.Now(); t.failing.IsZero() {
		t.failing = now
		c.set.log.Warn("the ledger of a limit of models does not answer; calls wait for it", "limit", c.String(), "at most", awayFor.String(), "err", err)
	} else if now.Sub(t.failing) >= awayFor {
		t.fail(&llm.Error{Code: llm.CodeUnavailable, Final: true, Message: fmt.Sprintf(
			"%s cannot be kept: the NATS servers have not answered for it for %v (%s); the next call asks them again", c, awayFor, llm.Clip(err.Error(), 200))})
		t.failing = time.Time{}
	}
}

// try makes one exchange.
func (t *calls) try(ctx context.Context) error {
	c, set := t.of, t.of.set
	e, err := set.store.Read(ctx, t.name)
	now := time.Now()
	if err != nil {
		return err
	}
	if e.Seq > 0 {
		set.learn(e.Time, now)
	}
	passed := set.passed(now)
	all := inFlight(e, c.most, passed)
	told := slices.ContainsFunc(all, func(f flight) bool { return f.Node == set.node })
	others := slices.DeleteFunc(all, func(f flight) bool { return f.Node == set.node || set.Dead != nil && set.Dead(f.Node) })
	all = others
	free := c.most
	for _, f := range all {
		free -= f.Held
	}

	c.mu.Lock()
	me := flight{Node: set.node, Held: max(t.peak, t.under), Waiting: int64(len(t.waiting))}
	if me.Waiting > 0 {
		me.Since = passed - now.Sub(t.waiting[0].since).Milliseconds()
	}
	may := min(share(append(all, me), c.most), max(free, 0))
	me.Held = max(may, t.under)
	t.may = min(t.may, may) // the reported number must not change
	none := me.Held == 0 && me.Waiting == 0
	same := !t.at.IsZero() && told && me.Held == t.told.Held && (me.Waiting > 0) == (t.told.Waiting > 0)
	switch {
	case none && !told:
		t.told, t.at = flight{}, now
		c.mu.Unlock()
		return nil
	case same && now.Sub(t.at) < renewEvery:
		t.may, t.peak = may, t.under
		c.mu.Unlock()
		return nil
	}
	c.mu.Unlock()
	if none {
		me = flight{}
	} else {
		all = append(all, me)
	}
	data, err := json.Marshal(all)
	if err != nil {
		return err
	}
	sent := time.Now()
	if err := set.store.Write(ctx, t.name, e.Seq, data); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.told, t.at, t.may, t.until, t.peak = me, sent, may, sent.Add(Hold), t.under
	return nil
}

// inFlight decodes an entry and drops expired flights. An unreadable entry counts as
// the whole limit.
func inFlight(e Entry, most, passed int64) (all []flight) {
	if len(e.Data) == 0 {
		return nil
	}
	if err := json.Unmarshal(e.Data, &all); err != nil {
		all = []flight{{Node: "unreadable", Held: most}}
	}
	for i := range all {
		f := &all[i]
		if f.At == 0 {
			f.At = e.Time.Add(time.Millisecond - 1).UnixMilli()
		}
		if f.At+wantFor.Milliseconds() <= passed {
			f.Waiting, f.Since = 0, 0
		}
	}
	return slices.DeleteFunc(all, func(f flight) bool { return f.At+Hold.Milliseconds() <= passed || f.Held == 0 && f.Waiting == 0 })
}

// share returns the number of calls that the last of some nodes may have in flight: its
// need or, if there is not enough for all, an equal part. The remainder of the division
// goes to the nodes whose calls have waited longest.
func share(all []flight, most int64) int64 {
	need := func(f *flight) int64 { return f.Held + f.Waiting }
	me := &all[len(all)-1]
	var sum int64
	for i := range all {
		sum += need(&all[i])
	}
	if sum <= most {
		return need(me)
	}
	order := make([]*flight, len(all))
	for i := range all {
		order[i] = &all[i]
	}
	slices.SortFunc(order, func(a, b *flight) int {
		switch {
		case a.Waiting > 0 && b.Waiting > 0 && a.Since != b.Since:
			return int(a.Since - b.Since)
		case (a.Waiting > 0) != (b.Waiting > 0):
			return int(min(b.Waiting, 1) - min(a.Waiting, 1))
		case a.Node < b.Node:
			return -1
		}
		return 1
	})
	var due int64
	for round := int64(1); most > 0; round++ {
		for _, f := range order {
			if most > 0 && need(f) >= round {
				most--
				if f == me {
					due++
				}
			}
		}
	}
	return due
}

// String describes the limit.
func (c *Concurrency) String() string {
	return fmt.Sprintf("the limit of %s, %d calls of each tenant at one time at all nodes", c.what, c.most)
}

var _ Limiter = then{}
