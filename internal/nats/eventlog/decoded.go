package eventlog

import (
	"slices"
	"sync"

	"github.com/rathcluster/rath/internal/commitlog"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/session"
)

// recent are the commits that this process has decoded last, by their hash: what
// one reader of an event stream has decoded the other one need not. It is safe for
// concurrent use.
type recent struct {
	mu   sync.Mutex
	of   map[session.Hash]commitlog.Commit
	ring []session.Hash
	next int
}

// recentSize bounds the commits that are kept. The readers of a stream are that
// far from each other at the most when both keep up.
const recentSize = 2 * conn.FollowAhead

func newRecent() *recent {
	return &recent{of: make(map[session.Hash]commitlog.Commit, recentSize), ring: make([]session.Hash, recentSize)}
}

// forget forgets all commits. Few are kept, but they lie among much that is not.
func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.of)
	clear(r.ring)
}

// successor is commitlog.Successor.
func (r *recent) successor(k session.Key, after session.Position, raw []byte) (commitlog.Commit, session.Hash, error) {
	hash := commitlog.HashOf(raw)
	r.mu.Lock()
	c, ok := r.of[hash]
	r.mu.Unlock()
	if !ok {
		var err error
		if c, err = commitlog.Decode(raw); err != nil {
			return c, session.Hash{}, err
		}
		r.put(hash, c)
	}
	// Its reader may fill in data that lies in blobs.
	c.Events = slices.Clone(c.Events)
	return c, hash, c.Follows(k, after)
}

func (r *recent) put(hash session.Hash, c commitlog.Commit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.of[hash]; ok {
		return
	}
	delete(r.of, r.ring[r.next])
	r.ring[r.next], r.of[hash] = hash, c
	r.next = (r.next + 1) % len(r.ring)
}
