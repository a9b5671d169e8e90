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
	known map[session.Ref]session.Session
	order []session.Ref
}

// maxValues bounds the values that are kept; they share their chunks.
const maxValues = 4096

// NewValues returns a reader of a log.
func NewValues(log session.Log) *Values {
	return &Values{log: log, known: map[session.Ref]session.Session{}}
}

// Resolver returns v as a session.Resolver whose reads end with ctx.
func (v *Values) Resolver(ctx context.Context) session.Resolver { return resolver{ctx, v} }

type resolver struct {
	ctx context.Context
	v   *Values
}

func (r resolver) Resolve(l session.Link) (session.Session, error) { return r.v.Link(r.ctx, l) }

// Keep remembers a committed value, which saves folding it.
func (v *Values) Keep(s session.Session) {
	if _, ok := s.Link(); !ok {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	ref := s.Ref()
	if _, ok := v.known[ref]; ok {
		return
	}
	if len(v.order) >= maxValues {
		delete(v.known, v.order[0])
		v.order = v.order[1:]
	}
	v.known[ref] = s
	v.order = append(v.order, ref)
}

// Link returns the value that a stored reference names, and fails if the log
// holds another commit there.
func (v *Values) Link(ctx context.Context, l session.Link) (session.Session, error) {
	v.mu.Lock()
	s, ok := v.known[l.Ref]
	v.mu.Unlock()
	if own, made := s.Link(); ok && made && own.Hash == l.Hash {
		return s, nil
	}
	s, err := v.fold(ctx, l.Ref, l)
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
		s, ok := v.known[r]
		v.mu.Unlock()
		if ok {
			return s, nil
		}
	}
	return v.fold(ctx, r, session.Link{})
}

func (v *Values) fold(ctx context.Context, r session.Ref, l session.Link) (session.Session, error) {
	s := session.Open(r.Key, r.ID)
	any := false
	for e, err := range v.log.Read(ctx, r.Key, session.Position{}) {
		if err != nil {
			return s, fmt.Errorf("run: read %s: %w", r.Key, err)
		}
		if !any {
			s = session.Open(r.Key, e.Commit.Root)
			any = true
		}
		past := false
		for _, ev := range e.Commit.Events {
			next, err := session.Apply(s, ev, v.Resolver(ctx))
			if err != nil {
				return s, fmt.Errorf("run: fold %s at commit %d: %w", r.Key, e.Commit.Seq, err)
			}
			if r.Version != 0 && next.Ref().Version > r.Version {
				past = true
				break
			}
			s = next.MadeBy(e.At)
		}
		if l.Seq != 0 && e.Commit.Seq == l.Seq {
			if e.At.Hash != l.Hash {
				return s, fmt.Errorf("run: %s: commit %d is %s, the reference names %s: %w", r, l.Seq, e.At.Hash.Short(), l.Hash.Short(), session.ErrForeign)
			}
			past = true
		}
		if past {
			break
		}
	}
	switch {
	case !any:
		return s, fmt.Errorf("session %s: %w", r.ID, session.ErrNotFound)
	case r.Version != 0 && s.Ref().Version != r.Version:
		return s, fmt.Errorf("version %d of session %s, which ends at %d: %w", r.Version, r.ID, s.Ref().Version, session.ErrNotFound)
	}
	return s, nil
}
