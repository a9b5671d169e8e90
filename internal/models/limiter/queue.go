package limiter

import (
	"cmp"
	"slices"
)

// waiter is a call that waits.
type waiter struct {
	tenant string
	tokens int64
	done   chan struct{} // closed when the call may start, or has failed
	lease  uint64        // that it belongs to
	err    error
}

// queue holds the waiting calls, in the order of each tenant. The tenant that was
// served least is next.
type queue struct {
	tenants map[string]*tenant
	len     int
	tokens  int64
}

type tenant struct {
	name    string
	waiting []*waiter
	served  float64 // parts of the limit
}

func (q *queue) add(w *waiter) {
	t := q.tenants[w.tenant]
	if t == nil {
		t = &tenant{name: w.tenant}
		if next := q.nextTenant(); next != nil {
			t.served = next.served
		}
		if q.tenants == nil {
			q.tenants = map[string]*tenant{}
		}
		q.tenants[w.tenant] = t
	}
	t.waiting = append(t.waiting, w)
	q.len, q.tokens = q.len+1, q.tokens+w.tokens
}

// remove removes a call, and reports whether it waited.
func (q *queue) remove(w *waiter) bool {
	t := q.tenants[w.tenant]
	if t == nil {
		return false
	}
	i := slices.Index(t.waiting, w)
	if i < 0 {
		return false
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	q.len, q.tokens = q.len-1, q.tokens-w.tokens
	if len(t.waiting) == 0 {
		delete(q.tenants, w.tenant)
	}
	return true
}

func (q *queue) nextTenant() *tenant {
	var next *tenant
	for _, t := range q.tenants {
		if next == nil || cmp.Or(cmp.Compare(t.served, next.served), cmp.Compare(t.name, next.name)) < 0 {
			next = t
		}
	}
	return next
}

// next is the call to serve next; nil if none waits.
func (q *queue) next() *waiter {
	if t := q.nextTenant(); t != nil {
		return t.waiting[0]
	}
	return nil
}

// serve removes the call that is next.
func (q *queue) serve(w *waiter, limit Amount) {
	q.tenants[w.tenant].served += Amount{1, w.tokens}.of(limit)
	q.remove(w)
}

// calls is the number of waiting calls of each tenant.
func (q *queue) calls() map[string]int64 {
	out := make(map[string]int64, len(q.tenants))
	for name, t := range q.tenants {
		if len(out) == maxTenants {
			break
		}
		out[name] = int64(len(t.waiting))
	}
	return out
}
