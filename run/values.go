package run

import (
	"context"
	"fmt"
	"sync"

	"github.com/rathcluster/rath/session"
)

// Values reads sessions as they were: a session at a version never changes,
// so anybody may fold it from the log and keep it. It is safe for concurrent
// use.
type Values struct {
	log session.Log

	mu    sync.Mutex
	known map[made]session.Session
	last  map[session.Ref]session.Hash // of the newest known commit that shows a version
	order []made
}

// made identifies a value by its version and the commit that shows it.
type made struct {
	ref  session.Ref
	hash session.Hash
}

const (
	// maxValues bounds the values that are kept; they share their chunks.
	maxValues = 4096
	// maxAncestors bounds how deep references may lead. Real ones form no
	// cycle, because they hold hashes; forged ones could.
	maxAncestors = 50_000
)

// NewValues returns a reader of a log.
func NewValues(log session.Log) *Values {
	return &Values{log: log, known: map[made]session.Session{}, last: map[session.Ref]session.Hash{}}
}

// Resolver returns v as a session.Resolver whose reads end with ctx.
func (v *Values) Resolver(ctx context.Context) session.Resolver { return resolver{ctx, v, 0} }

type resolver struct {
	ctx   context.Context
	v     *Values
	depth int
}

func (r resolver) Resolve(l session.Link) (session.Session, error) {
	return r.v.link(r.ctx, l, r.depth+1)
}

// Keep remembers a committed value, which saves folding it.
func (v *Values) Keep(s session.Session) {
	l, ok := s.Link()
	if !ok {
		return
	}
	m := made{l.Ref, l.Hash}
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
		return session.Session{}, fmt.Errorf("run: the reference to %s names no commit: %w", l.Ref, session.ErrForeign)
	case depth > maxAncestors:
		return session.Session{}, fmt.Errorf("run: more than %d sessions refer to each other: %w", maxAncestors, session.ErrForeign)
	}
	v.mu.Lock()
	s, ok := v.known[made{l.Ref, l.Hash}]
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
		s, ok := v.known[made{r, v.last[r]}]
		v.mu.Unlock()
		if ok {
			return s, nil
		}
	}
	return v.fold(ctx, session.Link{Ref: r}, 0)
}

// fold reads a log up to a version, and up to a commit where l names one.
// Without a commit, version zero is the newest.
func (v *Values) fold(ctx context.Context, l session.Link, depth int) (session.Session, error) {
	s := session.Open(l.Key, l.ID)
	r := resolver{ctx, v, depth}
	end := session.Position{}
	bounded := l.Seq != 0 || l.Version != 0
	for e, err := range v.log.Read(ctx, l.Key, session.Position{}) {
		if err != nil {
			return s, fmt.Errorf("run: read %s: %w", l.Key, err)
		}
		if end.Seq == 0 {
			s = session.Open(l.Key, e.Commit.Root)
		}
		end = e.At
		past := false
		for _, ev := range e.Commit.Events {
			next, err := session.Apply(s, ev, r)
			if err != nil {
				return s, fmt.Errorf("run: fold %s at commit %d: %w", l.Key, e.Commit.Seq, err)
			}
			if past = bounded && next.Ref().Version > l.Version; past {
				break
			}
			s = next.MadeBy(e.At)
		}
		if past || e.At.Seq == l.Seq {
			break
		}
	}
	switch {
	case end.Seq == 0:
		return s, fmt.Errorf("session %s: %w", l.ID, session.ErrNotFound)
	case bounded && s.Ref().Version != l.Version:
		return s, fmt.Errorf("version %d of session %s, which ends at %d: %w", l.Version, l.ID, s.Ref().Version, session.ErrNotFound)
	}
	if at, _ := s.Link(); l.Seq != 0 && (at.Seq != l.Seq || at.Hash != l.Hash) {
		return s, fmt.Errorf("run: %s is made by commit %d (%s), the reference names %d (%s): %w",
			l.Ref, at.Seq, at.Hash.Short(), l.Seq, l.Hash.Short(), session.ErrForeign)
	}
	return s, nil
}
