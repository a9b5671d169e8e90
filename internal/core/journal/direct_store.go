package journal

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/session"
)

// StoreOptions configure [NewStore]; nil means the defaults.
type StoreOptions struct {
	Incarnation string           // of the writer; "" is "direct"
	Now         func() time.Time // nil is time.Now
	Values      *Values          // shared cache; nil makes one
	// OnCommit, if set, gets every commit after it is durable. It is called
	// while the session is locked, so it must not wait for the Store.
	OnCommit func(commitlog.Entry)
}

// NewStore returns a Store that writes to a log without actors: one lock per session,
// one commit per request. It serves in-memory use, and is the reference against which
// the session actors are tested.
func NewStore(log commitlog.Log, o *StoreOptions) Store {
	d := &directStore{log: log, sessions: map[session.Key]*held{}}
	if o != nil {
		d.o = *o
	}
	if d.o.Incarnation == "" {
		d.o.Incarnation = "direct"
	}
	if d.o.Now == nil {
		d.o.Now = time.Now
	}
	if d.o.Values == nil {
		d.o.Values = NewValues(log)
	}
	return d
}

// appendTimeout bounds the time of a commit.
const appendTimeout = 30 * time.Second

type directStore struct {
	log commitlog.Log
	o   StoreOptions

	mu       sync.Mutex
	sessions map[session.Key]*held
}

type held struct {
	mu        sync.Mutex
	w         *StateMachine
	followers []*follower
}

// follower follows one session.
type follower struct {
	at   commitlog.Position // of the last commit passed on
	take func(*commitlog.Entry)
}

func (d *directStore) held(k session.Key) *held {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.sessions[k]
	if h == nil {
		h = &held{}
		d.sessions[k] = h
	}
	return h
}

// with calls decide on the session's writer and appends the staged events.
func (d *directStore) with(ctx context.Context, k session.Key, decide func(w *StateMachine, now time.Time) error) (at commitlog.Position, staged bool, err error) {
	h := d.held(k)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return at, false, err
	}
	if h.w == nil {
		if h.w, err = LoadStateMachine(ctx, d.log, d.o.Values, k, d.o.Incarnation); err != nil {
			return at, false, err
		}
	}
	decided := decide(h.w, d.o.Now())
	c, ok := h.w.Take()
	if !ok {
		return h.w.At(), false, decided
	}
	// The end of a caller's context must not cost the session its writer.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendTimeout)
	defer cancel()
	at, err = d.log.Append(bounded, h.w.At(), c)
	if err != nil {
		h.w = nil // the staged events were not appended; the next request folds again
		return at, false, fmt.Errorf("journal: commit to %s: %w", k, err)
	}
	h.w.Committed(at)
	d.o.Values.Keep(h.w.Session())
	if d.o.OnCommit != nil {
		d.o.OnCommit(commitlog.Entry{Commit: c, At: at})
	}
	for _, f := range h.followers {
		if at.Seq == f.at.Seq+1 {
			f.at = at
			f.take(&commitlog.Entry{Commit: c, At: at})
		} else {
			d.pass(k, f)
		}
	}
	return at, true, decided
}

// Claim implements Store.
func (d *directStore) Claim(ctx context.Context, c Claim) (g *ClaimResult, err error) {
	if c.Incarnation == "" {
		c.Incarnation = d.o.Incarnation
	}
	at, staged, err := d.with(ctx, c.Session, func(w *StateMachine, now time.Time) (err error) {
		g, err = w.Claim(c, now)
		return err
	})
	if err != nil {
		return nil, err
	}
	if staged {
		g.Finish(at, session.Session{}, session.Session{}, nil) // its commit has no other events
	}
	return g, nil
}

// Commit implements Store.
func (d *directStore) Commit(ctx context.Context, b Batch) (a Ack, err error) {
	at, staged, err := d.with(ctx, b.Session, func(w *StateMachine, now time.Time) (err error) {
		a, err = w.Commit(b, now)
		return err
	})
	if err != nil {
		return Ack{}, err
	}
	if staged {
		a.Finish(at)
	}
	return a, nil
}

// Apply implements Store.
func (d *directStore) Apply(ctx context.Context, s Signal) error {
	_, _, err := d.with(ctx, s.To, func(w *StateMachine, now time.Time) error { return w.Signal(s, now) })
	return err
}

// Follow implements Store.
func (d *directStore) Follow(k session.Key, after commitlog.Position, take func(*commitlog.Entry)) (stop func()) {
	h, f := d.held(k), &follower{at: after, take: take}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.followers = append(h.followers, f)
	d.pass(k, f)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.followers = slices.DeleteFunc(h.followers, func(o *follower) bool { return o == f })
	}
}

// pass passes the log's new commits to a follower. The lock of its session is held.
func (d *directStore) pass(k session.Key, f *follower) {
	for e, err := range d.log.Read(context.Background(), k, f.at) {
		if err != nil {
			return // the next commit retries it
		}
		f.at = e.At
		f.take(&e)
	}
}
