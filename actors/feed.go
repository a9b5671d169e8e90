package actors

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// feeds hands the commits that are made here to those who follow a session, so
// that following costs no read of the log per commit.
type feeds struct {
	mu sync.RWMutex
	m  map[session.Key]map[*follower]struct{}
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
		f.m = map[session.Key]map[*follower]struct{}{}
	}
	if f.m[k] == nil {
		f.m[k] = map[*follower]struct{}{}
	}
	f.m[k][n] = struct{}{}
	return n
}

func (f *feeds) remove(k session.Key, n *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.m[k], n)
	if len(f.m[k]) == 0 {
		delete(f.m, k)
	}
}

func (f *feeds) publish(e session.Entry) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for n := range f.m[e.Commit.Key] {
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

// Follow implements run.Store. Commits that were made here while it follows
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
			behind = behind || lost
			for _, e := range entries {
				switch {
				case e.At.Seq <= after.Seq || behind:
					continue
				case e.At.Seq != after.Seq+1:
					behind = true
					continue
				}
				after = e.At
				if !yield(e, nil) {
					return
				}
			}
			if behind {
				for e, err := range s.sys.o.Log.Read(ctx, k, after) {
					if ctx.Err() != nil || !yield(e, err) || err != nil {
						return
					}
					after = e.At
				}
				behind = false
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-s.sys.stopped:
				yield(session.Entry{}, fmt.Errorf("actors: follow %s: %w", k, run.ErrShutdown))
				return
			case <-n.news:
			case <-poll.C:
				behind = s.sys.held.get(k) == nil
			}
		}
	}
}
