package access

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
)

const (
	// readEvery is how often a view asks the leader of the bucket for changes: a
	// revocation takes effect within that time and one request.
	readEvery = time.Second
	// readGap is the least time between reads for unknown tokens.
	readGap = 20 * time.Millisecond
	// maxAge is the age from which a view answers no request. A leader that was cut off
	// from its cluster answers for up to ten seconds more, so that no request is answered
	// from data that is half a minute old.
	maxAge = 20 * time.Second
)

// view is the bucket in memory, at most maxAge behind. It polls the leader, which never
// answers with outdated data, instead of a subscription: one request shows both the changes
// and the age of the rest. Its methods may be called concurrently.
type view struct {
	store *Store
	log   *slog.Logger
	soon  chan struct{} // holds a request to read now

	mu      sync.Mutex
	waiting []chan struct{}  // closed after the next read
	entries map[string]*live // by kind and id
	read    time.Time        // when the last complete read began
	last    uint64           // the sequence of its last message
}

// live is an entry that is in force. ended is closed when it is not any more.
type live struct {
	Entry
	ended chan struct{}
}

func newView(s *Store, log *slog.Logger) *view {
	return &view{store: s, log: log, soon: make(chan struct{}, 1), entries: map[string]*live{}}
}

// run keeps the view until ctx ends, and then ends all entries.
func (v *view) run(ctx context.Context) {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	defer v.endAll()
	warned := false
	for {
		v.mu.Lock()
		waiting := v.waiting
		v.waiting = nil
		v.mu.Unlock()
		err := v.update(ctx)
		for _, w := range waiting {
			close(w)
		}
		if err != nil && ctx.Err() == nil && !warned {
			v.log.Warn("the tokens cannot be read; requests are answered with 503 until they can", "err", err)
		}
		warned = err != nil
		select {
		case <-tick.C:
		case <-v.soon:
			conn.Pause(ctx, readGap) // more requests share the read
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// update reads the changes since the last read, or everything if that was too long ago: the
// markers of removed entries may be gone since then.
func (v *view) update(ctx context.Context) error {
	now := time.Now()
	v.mu.Lock()
	from, old := v.last, now.Sub(v.read) > maxAge
	v.mu.Unlock()
	if old {
		all := map[string]*live{}
		last := uint64(0)
		for m, err := range v.store.messages.DirectPage(ctx, bucket, streams.KeySubject(messages.BucketAccess, ">"), 1) {
			if err != nil {
				break // the leader continues below, one by one
			}
			v.apply(all, &m)
			last = m.Seq
		}
		if err := v.follow(ctx, now, last, func(m *conn.Message) { v.apply(all, m) }, func(last uint64) { v.replace(all, last, now) }); err != nil {
			return err
		}
		return nil
	}
	return v.follow(ctx, now, from, func(m *conn.Message) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.apply(v.entries, m)
	}, func(last uint64) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.last, v.read = last, now
		v.expire(now)
	})
}

// follow passes each message of the bucket after a sequence, from its leader, and then
// calls done with the last sequence.
func (v *view) follow(ctx context.Context, now time.Time, last uint64, apply func(*conn.Message), done func(last uint64)) error {
	for {
		m, err := v.store.messages.LeaderGet(ctx, bucket, conn.GetRequest{Seq: last + 1, NextBySubject: streams.KeySubject(messages.BucketAccess, ">")})
		if errors.Is(err, conn.ErrNoMessage) {
			done(last)
			return nil
		}
		if err != nil {
			return err
		}
		apply(&m)
		last = m.Seq
	}
}

// apply brings one message of the bucket into entries.
func (v *view) apply(entries map[string]*live, m *conn.Message) {
	key := m.Subject[len(streams.KeySubject(messages.BucketAccess, "")):]
	if old := entries[key]; old != nil {
		close(old.ended)
		delete(entries, key)
	}
	if m.Header.Get(headerOperation) != "" {
		for k, e := range entries { // sessions that began with the token
			if e.Token != "" && kindToken+"."+e.Token == key {
				close(e.ended)
				delete(entries, k)
			}
		}
		return
	}
	e, err := parseEntry(m)
	if err != nil {
		v.log.Warn("an entry among the tokens is not valid and grants nothing", "err", err)
		return
	}
	began := e.Token == "" || entries[kindToken+"."+e.Token] != nil // the token is in force
	if began && !e.expired(time.Now()) {
		entries[key] = &live{*e, make(chan struct{})}
	}
}

// replace puts a complete read in the place of the entries. Entries that did not change
// continue.
func (v *view) replace(all map[string]*live, last uint64, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for key, old := range v.entries {
		if e := all[key]; e != nil && e.Hash == old.Hash && e.Created == old.Created {
			e.ended = old.ended
		} else {
			close(old.ended)
		}
	}
	v.entries, v.last, v.read = all, last, now
	v.expire(now)
}

// expire ends the entries whose time is over.
func (v *view) expire(now time.Time) {
	for key, e := range v.entries {
		if e.expired(now) {
			close(e.ended)
			delete(v.entries, key)
		}
	}
}

func (v *view) endAll() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for key, e := range v.entries {
		close(e.ended)
		delete(v.entries, key)
	}
	v.read = time.Time{}
}

// errStale is the error of a view that cannot be renewed.
var errStale = errors.New("access: the tokens could not be read for a while: the NATS servers do not answer this gateway; try again")

// find returns the entry of a kind with an id, nil if there is none. An unknown id makes
// the view read once more, because another process may have created the entry just now. The
// first requests wait for the first read.
func (v *view) find(ctx context.Context, kind, id string) (*live, error) {
	e, err := v.have(kind, id)
	if e != nil || err != nil && !v.unread() {
		return e, err
	}
	v.refresh(ctx)
	return v.have(kind, id)
}

// refresh returns after a read that began later than this call, or after readEvery.
func (v *view) refresh(ctx context.Context) {
	read := make(chan struct{})
	v.mu.Lock()
	v.waiting = append(v.waiting, read)
	v.mu.Unlock()
	select {
	case v.soon <- struct{}{}:
	default:
	}
	limit := time.NewTimer(readEvery)
	defer limit.Stop()
	select {
	case <-read:
	case <-limit.C:
	case <-ctx.Done():
	}
}

// unread reports whether the view has read nothing yet.
func (v *view) unread() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.read.IsZero()
}

// have returns the entry that the view holds.
func (v *view) have(kind, id string) (*live, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if now.Sub(v.read) > maxAge {
		return nil, errStale
	}
	e := v.entries[kind+"."+id]
	if e == nil || e.expired(now) {
		return nil, nil
	}
	return e, nil
}
