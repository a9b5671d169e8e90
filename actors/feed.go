package actors

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// feeds hands the commits that are made here to those who follow a session, so
// that following costs no read of the log per commit.
type feeds struct {
	mu sync.RWMutex
	m  map[session.Key][]*follower
}

// follower is one who follows, with the commits it has not looked at.
type follower struct {
	news chan struct{}

	mu      sync.Mutex
	entries []session.Entry
	lost    bool // there were more than are kept
}

const (
	// maxFollow bounds what is kept for a follower; a slower one reads the log.
	maxFollow = 64
	// followPoll is how often a follower of a session that is not active here
	// looks at the log.
	followPoll = 2 * time.Second
)

func (f *feeds) add(k session.Key) *follower {
	n := &follower{news: make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.m == nil {
		f.m = map[session.Key][]*follower{}
	}
	f.m[k] = append(f.m[k], n)
	return n
}

func (f *feeds) remove(k session.Key, n *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.m[k] = slices.DeleteFunc(f.m[k], func(o *follower) bool { return o == n }); len(f.m[k]) == 0 {
		delete(f.m, k)
	}
}

func (f *feeds) publish(e session.Entry) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, n := range f.m[e.Commit.Key] {
		n.mu.Lock()
		if len(n.entries) < maxFollow {
			n.entries = append(n.entries, e)
		} else {
			n.lost = true
		}
		n.mu.Unlock()
		select {
		case n.news <- struct{}{}:
		default:
		}
	}
}

func (n *follower) take() (entries []session.Entry, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	entries, lost = n.entries, n.lost
	n.entries, n.lost = nil, false
	return entries, lost
}

// Follow implements journal.Store. Commits that were made here while it follows
// come without their stored bytes (Raw is empty); those that it reads from the
// log have them.
func (s *store) Follow(ctx context.Context, k session.Key, after session.Position) iter.Seq2[session.Entry, error] {
	return func(yield func(session.Entry, error) bool) {
		n := s.sys.feeds.add(k)
		defer s.sys.feeds.remove(k, n)
		poll := time.NewTicker(followPoll)
		defer poll.Stop()
		// What came before must be read, unless the actor says there is nothing.
		behind := true
		if box := s.sys.held.get(k); box != nil {
			at, ok := box.position()
			behind = !ok || at.Seq != after.Seq
		}
		for {
			entries, lost := n.take()
			missed, ok := pass(entries, &after, behind || lost, yield)
			if ok && missed {
				ok = s.read(ctx, k, &after, yield)
			}
			if behind = false; !ok {
				return
			}
			if missed {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-s.sys.stopped:
				refuse(k, yield)
				return
			case <-n.news:
			case <-poll.C:
				behind = s.sys.held.get(k) == nil
			}
		}
	}
}

// What follows is apart from Follow, which waits for as long as a run does and is to
// need a small stack.

// pass yields the entries that come after a position, which it moves, unless some
// before them were missed.
//
//go:noinline
func pass(entries []session.Entry, after *session.Position, behind bool, yield func(session.Entry, error) bool) (missed, ok bool) {
	for i := range entries {
		e := &entries[i]
		switch {
		case behind:
			return true, true
		case e.At.Seq <= after.Seq:
			continue
		case e.At.Seq != after.Seq+1:
			return true, true
		}
		*after = e.At
		if !yield(*e, nil) {
			return false, false
		}
	}
	return behind, true
}

//go:noinline
func refuse(k session.Key, yield func(session.Entry, error) bool) {
	yield(session.Entry{}, fmt.Errorf("actors: follow %s: %w", k, run.ErrShutdown))
}

// read yields what the log holds after a position, which it moves.
func (s *store) read(ctx context.Context, k session.Key, after *session.Position, yield func(session.Entry, error) bool) bool {
	for e, err := range s.sys.o.Log.Read(ctx, k, *after) {
		if ctx.Err() != nil || !yield(e, err) || err != nil {
			return false
		}
		*after = e.At
	}
	return true
}
