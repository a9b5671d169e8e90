package dispatch

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Submitted runs that no node has begun wait in logs, up to a number per tenant and
// workflow in each partition; the other tasks wait in the stream TASKS. The relay of a
// partition counts its waiting runs, and lends credit for more to the nodes that ingest
// tasks.

// maxWaiting bounds the runs of a tenant and workflow that wait in the logs of a partition:
// more than TASKS holds of a user. A run in a log costs nothing while it waits, but a task
// in TASKS is redelivered again and again.
const maxWaiting = 1024

const (
	// creditsAtOnce is the credit requested at once, for further tasks of the same tenant
	// and workflow.
	creditsAtOnce = 16
	// creditTTL is how long credit may be used, creditNone how long its lack is
	// believed.
	creditTTL  = 2 * time.Second
	creditNone = 250 * time.Millisecond
	// creditTimeout bounds the request. A partition without a relay grants none.
	creditTimeout = time.Second
)

// credit is a node's request to the relay of a partition.
type credit struct {
	Tenant   session.Tenant `json:"tenant"`
	Workflow string         `json:"workflow"`
	Limit    session.ID     `json:"limit,omitempty"` // the log of the key, for runs with a limit
	N        int            `json:"n"`
}

// creditAnswer grants N of the requested credit. Moving reports that runs of the tenant and
// workflow begin now and then, so that an early retry is worthwhile.
type creditAnswer struct {
	N      int  `json:"n"`
	Moving bool `json:"moving,omitempty"`
}

func creditSubject(generation, partition uint32) string {
	return fmt.Sprintf("%scredit.%d.%d", messages.NodePrefix, generation, partition)
}

// creditKey is whose runs are counted.
type creditKey struct {
	tenant   session.Tenant
	workflow string
	limit    session.ID
}

// lent is the unused credit of a partition.
type lent map[creditKey]loan

type loan struct {
	n     int
	until time.Time
}

// lend answers a question for credit.
func (d *dispatcher) lend(now time.Time, c credit) creditAnswer {
	maps.DeleteFunc(d.lent, func(_ creditKey, l loan) bool { return !now.Before(l.until) })
	k := creditKey{c.Tenant, c.Workflow, c.Limit}
	fresh, moved := d.s.Fresh(c.Tenant, c.Workflow, c.Limit)
	lent := d.lent[k].n
	n := max(min(c.N, maxWaiting-fresh-lent), 0)
	if n > 0 {
		d.lent[k] = loan{lent + n, now.Add(creditTTL)}
	}
	return creditAnswer{N: n, Moving: now.Sub(moved) < catalogFresh}
}

// returned returns the credit that a commit with these facts has used.
func (d *dispatcher) returned(t session.Tenant, facts []journal.Fact) {
	if len(d.lent) == 0 {
		return
	}
	for i := range facts {
		f := &facts[i]
		v, ok := f.What.(journal.Submitted)
		if !ok {
			continue
		}
		k := creditKey{t, f.Workflow, creditLog(v.Limit, v.Task.After)}
		if l := d.lent[k]; l.n > 1 {
			d.lent[k] = loan{l.n - 1, l.until}
		} else {
			delete(d.lent, k)
		}
	}
}

// credits is the credit that this node holds.
type credits struct {
	c  *Dispatch
	mu sync.Mutex
	of map[partitionCredit]*creditHeld
}

type partitionCredit struct {
	partition uint32
	creditKey
}

type creditHeld struct {
	n      int
	until  time.Time // it may be used
	none   time.Time // until when no more credit is requested
	moving bool
	asking chan struct{} // closed when the answer has arrived; nil if none is awaited
}

// heldKept bounds the stored credits.
const heldKept = 4096

func newCredits(c *Dispatch) *credits { return &credits{c: c, of: map[partitionCredit]*creditHeld{}} }

// take takes credit for one run. If there is none, moving reports whether an early retry is
// worthwhile.
func (s *credits) take(ctx context.Context, k session.Key, workflow string, limit session.ID) (ok, moving bool, err error) {
	g, p, located := k.ID.Locate()
	if !located || g != s.c.streams.Generation() {
		return true, false, nil // of another generation, where no new sessions are made
	}
	at := partitionCredit{p, creditKey{k.Tenant, workflow, limit}}
	for {
		s.mu.Lock()
		h := s.of[at]
		now := time.Now()
		if h != nil && h.asking == nil {
			if ok = h.n > 0 && now.Before(h.until); ok {
				h.n--
			}
			if ok || now.Before(h.none) {
				moving = h.moving
				s.mu.Unlock()
				return ok, moving, nil
			}
		}
		if h != nil && h.asking != nil {
			asking := h.asking
			s.mu.Unlock()
			select {
			case <-asking:
			case <-ctx.Done():
				return false, false, ctx.Err()
			}
			continue
		}
		if len(s.of) >= heldKept {
			for k, x := range s.of {
				if x.asking == nil && !now.Before(x.until) && !now.Before(x.none) {
					delete(s.of, k)
				}
			}
		}
		h = &creditHeld{asking: make(chan struct{})}
		s.of[at] = h
		s.mu.Unlock()
		a := s.ask(ctx, at)
		s.mu.Lock()
		now = time.Now()
		h.n, h.moving, h.until = a.N, a.Moving, now.Add(creditTTL/2)
		if a.N < creditsAtOnce {
			h.none = now.Add(creditNone)
		}
		close(h.asking)
		h.asking = nil
		s.mu.Unlock()
		if ctx.Err() != nil {
			return false, false, ctx.Err()
		}
	}
}

// creditLog returns the log of the key of a limit, "" without a limit. Runs that wait for
// others are counted apart, like those of a key.
func creditLog(l *journal.Limit, after []journal.Predecessor) session.ID {
	switch {
	case len(after) > 0:
		return schedule.After
	case l == nil:
		return ""
	}
	return l.Log
}

// ask requests credit from the relay of a partition. No answer is no credit.
func (s *credits) ask(ctx context.Context, at partitionCredit) (a creditAnswer) {
	ctx, cancel := context.WithTimeout(ctx, creditTimeout)
	defer cancel()
	if s.c.Delivery.askRelay(ctx, creditSubject(s.c.streams.Generation(), at.partition), credit{at.tenant, at.workflow, at.limit, creditsAtOnce}, &a) {
		return a
	}
	return creditAnswer{Moving: true} // a relay may be taking it over at this moment
}
