package engine

import (
	"slices"
	"sync"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/session"
)

// leases are the leases that an execution has, by session.
type leases struct {
	mu    sync.Mutex
	of    map[session.Key]*lease
	heads map[session.Key]blob.Digest // that sessions of the run were opened with
	first blob.Digest                 // the one that came first
}

// opened notes the files that a session was opened with. The code opens sessions in the
// same order on every execution.
func (l *leases) opened(k session.Key, head blob.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heads == nil {
		l.heads, l.first = map[session.Key]blob.Digest{}, head
	}
	l.heads[k] = head
}

// openedWith returns the files that a session was opened with, or those that the run
// opened first.
func (l *leases) openedWith(k session.Key) blob.Digest {
	l.mu.Lock()
	defer l.mu.Unlock()
	if head, ok := l.heads[k]; ok {
		return head
	}
	return l.first
}

// get returns the lease of a session, which kept may have from a run before. Its
// directory need not be filled yet.
func (l *leases) get(k session.Key, kept *Leases) *lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.of[k]
	if one == nil {
		if l.of == nil {
			l.of = map[session.Key]*lease{}
		}
		if one = kept.take(k); one == nil {
			one = &lease{}
		}
		l.of[k] = one
	}
	return one
}

// give ends the leases, but for that of the session home, which goes to kept.
func (l *leases) give(home session.Key, kept *Leases) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, one := range l.of {
		if k != home || !kept.keep(k, one) {
			one.end()
		}
	}
	l.of = nil
}

// MaxKept is how many sandboxes [Leases] keep open that no run uses.
const MaxKept = 16

// Leases keep the sandboxes of sessions open between their runs. What drives the
// sessions' logs ends each with its epoch. A nil *Leases keeps none. It is safe for
// concurrent use.
type Leases struct {
	mu     sync.Mutex
	of     map[session.Key]*lease
	oldest []session.Key // in the order in which they were kept
	closed bool
}

// keep takes the lease of a session whose run has ended here; false leaves it to the
// caller, which ends it. Only a directory that holds what its head says, and in which no
// process can be left, is kept.
func (l *Leases) keep(k session.Key, one *lease) bool {
	one.mu.Lock()
	clean := one.box != nil && !one.dirty && one.box.Info().WholeTree
	one.mu.Unlock()
	if l == nil || !clean {
		return false
	}
	l.mu.Lock()
	if l.closed || l.of[k] != nil {
		l.mu.Unlock()
		return false
	}
	var over *lease
	if len(l.of) >= MaxKept {
		over = l.remove(l.oldest[0])
	}
	if l.of == nil {
		l.of = map[session.Key]*lease{}
	}
	l.of[k], l.oldest = one, append(l.oldest, k)
	l.mu.Unlock()
	if over != nil {
		over.end()
	}
	return true
}

// take returns the lease of a session, which is the caller's then; nil if there is none.
func (l *Leases) take(k session.Key) *lease {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remove(k)
}

// remove takes a lease out. l.mu is held.
func (l *Leases) remove(k session.Key) *lease {
	one := l.of[k]
	if one != nil {
		delete(l.of, k)
		l.oldest = slices.DeleteFunc(l.oldest, func(o session.Key) bool { return o == k })
	}
	return one
}

// Has reports whether a lease is kept for a session.
func (l *Leases) Has(k session.Key) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[k] != nil
}

// End ends the lease that is kept for a session, because its epoch has ended here. It
// waits until the sandbox is closed.
func (l *Leases) End(k session.Key) {
	if one := l.take(k); one != nil {
		one.end()
	}
}

// Close ends all leases that are kept. None is kept afterwards.
func (l *Leases) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	left := l.of
	l.of, l.oldest, l.closed = nil, nil, true
	l.mu.Unlock()
	for _, one := range left {
		one.end()
	}
}
