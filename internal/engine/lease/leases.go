package lease

import (
	"slices"
	"sync"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/session"
)

// Held are the leases of an execution, by session.
type Held struct {
	mu    sync.Mutex
	of    map[session.Key]*Lease
	heads map[session.Key]blob.Digest // of the sessions at their opening
	first blob.Digest                 // the first of them
	given bool                        // they have ended, and code that was given up gets no others
}

// Opened records the files of a session at its opening. The code opens sessions in the
// same order on every execution.
func (l *Held) Opened(k session.Key, head blob.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heads == nil {
		l.heads, l.first = map[session.Key]blob.Digest{}, head
	}
	l.heads[k] = head
}

// OpenedWith returns the files of a session at its opening, or else those of the first
// Opened session.
func (l *Held) OpenedWith(k session.Key) blob.Digest {
	l.mu.Lock()
	defer l.mu.Unlock()
	if head, ok := l.heads[k]; ok {
		return head
	}
	return l.first
}

// Get returns the lease of a session, possibly one that kept holds from a former run. Its
// directory may be empty.
func (l *Held) Get(k session.Key, kept *Kept) *Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.of[k]
	if one == nil {
		if l.of == nil {
			l.of = map[session.Key]*Lease{}
		}
		if !l.given {
			one = kept.take(k)
		}
		if one == nil {
			one = &Lease{}
		}
		l.of[k] = one
	}
	return one
}

// Give ends the leases, except that of the session home, which goes to kept.
func (l *Held) Give(home session.Key, kept *Kept) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, one := range l.of {
		if k != home || !kept.keep(k, one) {
			one.end()
		}
	}
	l.of, l.given = nil, true
}

// MaxKept bounds the unused sandboxes that [Kept] keeps open.
const MaxKept = 16

// Kept keeps the sandboxes of sessions open between their runs. The driver of a
// session's log ends its sandbox with its epoch. A nil *Kept keeps none. It is safe for
// concurrent use.
type Kept struct {
	mu     sync.Mutex
	of     map[session.Key]*Lease
	oldest []session.Key // in the order in which they were kept
	closed bool
}

// keep takes the lease of a session whose run has ended here; false leaves it to the
// caller, which ends it. It keeps a directory only if its files match its head and no
// process can be left in it.
func (l *Kept) keep(k session.Key, one *Lease) bool {
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
	var over *Lease
	if len(l.of) >= MaxKept {
		over = l.remove(l.oldest[0])
	}
	if l.of == nil {
		l.of = map[session.Key]*Lease{}
	}
	l.of[k], l.oldest = one, append(l.oldest, k)
	l.mu.Unlock()
	if over != nil {
		over.end()
	}
	return true
}

// take transfers the lease of a session to the caller; nil if there is none.
func (l *Kept) take(k session.Key) *Lease {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remove(k)
}

// remove removes a lease. l.mu is held.
func (l *Kept) remove(k session.Key) *Lease {
	one := l.of[k]
	if one != nil {
		delete(l.of, k)
		l.oldest = slices.DeleteFunc(l.oldest, func(o session.Key) bool { return o == k })
	}
	return one
}

// Has reports whether a lease is kept for a session.
func (l *Kept) Has(k session.Key) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[k] != nil
}

// End ends the kept lease of a session, because its epoch has ended here. It waits until
// the sandbox is closed.
func (l *Kept) End(k session.Key) {
	if one := l.take(k); one != nil {
		one.end()
	}
}

// Close ends all kept leases. None is kept afterwards.
func (l *Kept) Close() {
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
