package actors

import (
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/commitlog"
	"github.com/rathcluster/rath/session"
)

// feeds hands the commits that are made here to the followers of a session, so that
// following costs no read of the log per commit.
type feeds struct {
	mu sync.RWMutex
	m  map[session.Key][]*follower
}

// follower follows one session; it holds the commits that it has not taken.
type follower struct {
	news chan struct{}

	mu      sync.Mutex
	entries []commitlog.Entry
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

func (f *feeds) publish(e commitlog.Entry) {
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

func (n *follower) take() (entries []commitlog.Entry, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	entries, lost = n.entries, n.lost
	n.entries, n.lost = nil, false
	return entries, lost
}
