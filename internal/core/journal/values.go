package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Values reads old values of sessions. A session at a version never changes, so it may
// be folded from the log and cached. It is safe for concurrent use.
type Values struct {
	log commitlog.Log

	mu    sync.Mutex
	known map[valueKey]session.Session
	last  map[session.Ref]session.Hash // of the newest known commit that shows a version
	order []valueKey
	heads map[session.Key]session.Session // of reads of the newest version, each at the end of a commit

	pages     map[pageName]*session.Page
	pageOrder []pageName

	folds     map[session.Key]*fold
	foldOrder []session.Key // the least recently used first
	ticks     atomic.Uint64 // orders requests and reads
}

// valueKey identifies a value by its version and the commit that shows it.
type valueKey struct {
	ref  session.Ref
	hash session.Hash
}

const (
	// maxValues bounds the cached values; they share their chunks, and keep those of
	// sessions that were evicted.
	maxValues = 1024
	// maxHeads bounds the sessions whose next read of the newest version continues the last.
	maxHeads = 64
	// maxAncestors bounds the depth of references. Real references form no cycle,
	// because they contain hashes; forged ones could.
	maxAncestors = 10_000
)

// NewValues returns a reader of a log.
func NewValues(log commitlog.Log) *Values {
	return &Values{log: log, known: map[valueKey]session.Session{}, last: map[session.Ref]session.Hash{}, heads: map[session.Key]session.Session{}, pages: map[pageName]*session.Page{}, folds: map[session.Key]*fold{}}
}

// Resolver returns the resolver of [session.Apply] for v; its reads end with ctx.
func (v *Values) Resolver(ctx context.Context) func(session.Link) (session.Session, error) {
	return resolver{ctx, v, 0}.resolve
}

type resolver struct {
	ctx   context.Context
	v     *Values
	depth int
}

func (r resolver) resolve(l session.Link) (session.Session, error) {
	s, err := r.v.link(r.ctx, l, r.depth+1)
	if err != nil {
		if _, ok := errors.AsType[*ancestorError](err); !ok {
			err = &ancestorError{err}
		}
	}
	return s, err
}

// ancestorError is the reason why an ancestor could not be read. It is passed on
// unchanged: with a prefix for each generation the texts would grow quadratically.
type ancestorError struct{ error }

func (e *ancestorError) Unwrap() error { return e.error }

// BranchOutcome returns a branch's outcome according to the log of the run that opened
// it. A branch that the run ended without is cancelled. It returns ErrState if the run
// is still undecided; its decision will be sent.
func (v *Values) BranchOutcome(ctx context.Context, parent session.Key, id run.ID, branch session.ID) (run.BranchOutcome, error) {
	d := run.BranchOutcome{Session: branch, State: session.ClosedCancelled, Reason: "the run that opened this branch went on without it"}
	open := false
	for e, err := range v.log.Read(ctx, parent, commitlog.Position{}) {
		if err != nil {
			return d, fmt.Errorf("journal: read %s: %w", parent, err)
		}
		for _, ev := range e.Commit.Events {
			switch ev.Kind {
			case KindSubmitted:
				v, err := Decode[Submitted](ev)
				if err != nil {
					return d, err
				}
				open = open || v.Task.Run == id
			case KindEnded:
				v, err := Decode[Ended](ev)
				if err != nil {
					return d, err
				}
				open = open && v.Run != id
			case KindBranchOutcomes:
				all, err := Decode[BranchOutcomes](ev)
				if err != nil {
					return d, err
				}
				for _, one := range all.Branches {
					if one.Session == branch {
						return one, nil
					}
				}
			}
		}
	}
	if open {
		return d, fmt.Errorf("journal: %s has not decided about branch %s: %w", id, branch, run.ErrState)
	}
	return d, nil
}

// Forget clears all caches. Later requests read the logs again.
func (v *Values) Forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known, v.last, v.order = map[valueKey]session.Session{}, map[session.Ref]session.Hash{}, nil
	v.heads = map[session.Key]session.Session{}
	v.pages, v.pageOrder = map[pageName]*session.Page{}, nil
	v.folds, v.foldOrder = map[session.Key]*fold{}, nil
}

// drop evicts the values of one session.
func (v *Values) drop(k session.Key) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.order = slices.DeleteFunc(v.order, func(m valueKey) bool {
		if m.ref.Key != k {
			return false
		}
		delete(v.known, m)
		delete(v.last, m.ref)
		return true
	})
	delete(v.heads, k)
	delete(v.folds, k)
	v.foldOrder = slices.DeleteFunc(v.foldOrder, func(f session.Key) bool { return f == k })
}

// Keep caches a committed value, which saves folding it.
func (v *Values) Keep(s session.Session) {
	l, ok := s.Link()
	if !ok {
		return
	}
	m := valueKey{l.Ref, l.Hash}
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.known[m]; ok {
		return
	}
	if len(v.order) >= maxValues {
		old := v.order[0]
		delete(v.known, old)
		if v.last[old.ref] == old.hash {
			delete(v.last, old.ref)
		}
		v.order = v.order[1:]
	}
	v.known[m], v.last[m.ref] = s, m.hash
	v.order = append(v.order, m)
}

// Link returns the value that a stored reference names, and fails if the log
// holds another commit there.
func (v *Values) Link(ctx context.Context, l session.Link) (session.Session, error) {
	return v.link(ctx, l, 0)
}

func (v *Values) link(ctx context.Context, l session.Link, depth int) (session.Session, error) {
	switch {
	case l.Seq == 0:
		return session.Session{}, fmt.Errorf("journal: the reference to %s names no commit: %w", l.Ref, session.ErrForeign)
	case depth > maxAncestors:
		return session.Session{}, fmt.Errorf("journal: more than %d sessions refer to each other: %w", maxAncestors, session.ErrForeign)
	}
	v.mu.Lock()
	s, ok := v.known[valueKey{l.Ref, l.Hash}]
	v.mu.Unlock()
	if ok {
		return s, nil
	}
	s, err := v.fold(ctx, l, depth)
	if err != nil {
		return s, err
	}
	v.Keep(s)
	return s, nil
}

// At returns a session at a version, zero for the newest. It fails with
// session.ErrNotFound when there is no such session or version.
func (v *Values) At(ctx context.Context, r session.Ref) (session.Session, error) {
	if r.Version != 0 {
		v.mu.Lock()
		s, ok := v.known[valueKey{r, v.last[r]}]
		v.mu.Unlock()
		if ok {
			return s, nil
		}
	}
	return v.fold(ctx, session.Link{Ref: r}, 0)
}

// fold reads a log up to a version, and up to a commit if l names one. Without a
// commit, version zero means the newest.
func (v *Values) fold(ctx context.Context, l session.Link, depth int) (session.Session, error) {
	bounded := l.Seq != 0 || l.Version != 0
	f := folding{link: l, bounded: bounded, resolver: resolver{ctx, v, depth}, s: session.Open(l.Key, l.ID)}
	ok := false
	if s, at, found := v.nearest(ctx, l, bounded); found {
		f.s, f.end = s, at
		var err error
		if ok, err = readTail(ctx, v.log, l.Key, at, f.take); err != nil {
			return f.s, err
		}
	}
	if !ok {
		f.s, f.end = session.Open(l.Key, l.ID), commitlog.Position{}
		for e, err := range v.log.Read(ctx, l.Key, commitlog.Position{}) {
			if err != nil {
				return f.s, fmt.Errorf("journal: read %s: %w", l.Key, err)
			}
			if more, err := f.take(e); err != nil {
				return f.s, err
			} else if !more {
				break
			}
		}
	}
	switch {
	case f.end.Seq == 0:
		return f.s, fmt.Errorf("session %s: %w", l.ID, session.ErrNotFound)
	case f.begins.Ref().Version > l.Version && bounded:
		return f.s, beforeItsFork(l.Ref, f.begins)
	case bounded && f.s.Ref().Version != l.Version:
		return f.s, fmt.Errorf("version %d of session %s, which ends at %d: %w", l.Version, l.ID, f.s.Ref().Version, session.ErrNotFound)
	}
	if at, _ := f.s.Link(); l.Seq != 0 && (at.Seq != l.Seq || at.Hash != l.Hash) {
		return f.s, fmt.Errorf("journal: %s is made by commit %d (%s), the reference names %d (%s): %w",
			l.Ref, at.Seq, at.Hash.Short(), l.Seq, l.Hash.Short(), session.ErrForeign)
	}
	if !bounded && f.s.Archived() == nil { // an archived session has no later version, and its log may go
		v.keepHead(f.s)
	}
	return f.s, nil
}

// folding is a value that is being folded up to a reference.
type folding struct {
	link     session.Link
	bounded  bool
	resolver resolver
	s        session.Session
	end      commitlog.Position
	begins   session.Session // its first value, if that comes after link.Version
}

// beforeItsFork returns the error for a version that is older than the session. The
// error names the version's owner.
func beforeItsFork(r session.Ref, begins session.Session) error {
	owner := ""
	for from := range begins.Line() {
		if from.Version >= r.Version {
			owner = fmt.Sprintf("; that version is %s:%d", from.ID, r.Version)
		}
	}
	return fmt.Errorf("version %d of session %s, which begins at %d: %w%s", r.Version, r.ID, begins.Ref().Version, session.ErrNotFound, owner)
}

// take folds the next commit; it returns false once the value is reached.
func (f *folding) take(e commitlog.Entry) (bool, error) {
	if f.link.Seq != 0 && e.At.Seq > f.link.Seq {
		return false, nil
	}
	if f.end.Seq == 0 {
		f.s = session.Open(f.link.Key, e.Commit.Root)
	}
	f.end = e.At
	for _, ev := range e.Commit.Events {
		next, err := session.Apply(f.s, ev, f.resolver.resolve)
		if deep, ok := errors.AsType[*ancestorError](err); ok {
			return false, deep
		}
		if err != nil {
			return false, fmt.Errorf("journal: fold %s at commit %d: %w", f.link.Key, e.Commit.Seq, err)
		}
		if f.bounded && next.Ref().Version > f.link.Version {
			if f.s.Ref().Version == 0 && f.link.Version > 0 {
				f.begins = next
			}
			return false, nil
		}
		f.s = e.At.Made(next)
	}
	return e.At.Seq != f.link.Seq, nil
}

// keepHead caches the result of a read of the newest version. Only such a value contains
// all events of its commit: other values may end in the middle of one.
func (v *Values) keepHead(s session.Session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for k := range v.heads {
		if len(v.heads) < maxHeads {
			break
		}
		delete(v.heads, k)
	}
	v.heads[s.Key()] = s
}

// nearest returns a value at the end of a commit from which a fold to l can continue, if
// the log still has that commit: the last read of the newest version if l asks for that,
// and otherwise the session's snapshot if it is no later than l.
func (v *Values) nearest(ctx context.Context, l session.Link, bounded bool) (session.Session, commitlog.Position, bool) {
	if !bounded {
		v.mu.Lock()
		s, ok := v.heads[l.Key]
		v.mu.Unlock()
		if ok {
			at, _ := s.Link()
			return s, commitlog.Position{Seq: at.Seq, Token: at.Token, Hash: at.Hash}, true
		}
	}
	state, at, load, ok := v.snapshot(ctx, v.log, l.Key)
	if !ok || l.Seq != 0 && at.Seq > l.Seq {
		return session.Session{}, at, false
	}
	s, err := session.UnmarshalPaged(string(state.Tables[0]), load)
	if err != nil || s.Key() != l.Key || bounded && s.Ref().Version > l.Version {
		return session.Session{}, at, false
	}
	if own, ok := s.Link(); !ok || own.Seq != at.Seq || own.Hash != at.Hash {
		return session.Session{}, at, false
	}
	return s, at, true
}
