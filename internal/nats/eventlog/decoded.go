package eventlog

import (
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/commitlog"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/session"
)

// recent are the commits that this process has appended or decoded last, by their
// hash: what it knows of a commit already, no reader of an event stream decodes
// again. It is safe for concurrent use.
type recent struct {
	mu   sync.Mutex
	of   map[session.Hash]*decoded
	ring []session.Hash
	next int
}

// decoded is a commit as commitlog.Decode returns it. Its readers share it and change
// nothing in it.
type decoded struct {
	commit commitlog.Commit
	facts  func() []journal.Fact // nil if data of the commit lies in blobs
}

// recentSize bounds the commits that are kept. The readers of a stream are that
// far from each other at the most when both keep up.
const recentSize = 2 * conn.FollowAhead

func newRecent() *recent {
	return &recent{of: make(map[session.Hash]*decoded, recentSize), ring: make([]session.Hash, recentSize)}
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
	d := r.get(hash)
	if d == nil {
		c, err := commitlog.Decode(raw)
		if err != nil {
			return c, session.Hash{}, err
		}
		d = r.put(hash, c)
	}
	c := d.commit
	if d.facts == nil { // its reader fills in what lies in blobs
		c.Events = slices.Clone(c.Events)
	}
	return c, hash, c.Follows(k, after)
}

// facts is journal.Facts of a commit that successor returned.
func (r *recent) facts(e commitlog.Entry) []journal.Fact {
	if d := r.get(e.At.Hash); d != nil && d.facts != nil {
		return d.facts()
	}
	return journal.Facts(e.Commit)
}

// appended takes a commit that its writer goes on to use.
func (r *recent) appended(hash session.Hash, c commitlog.Commit) {
	c.Events = slices.Clone(c.Events)
	for i := range c.Events {
		e := &c.Events[i]
		e.Time = time.UnixMilli(e.Time.UnixMilli()).UTC() // as it is stored
	}
	r.put(hash, c)
}

func (r *recent) get(hash session.Hash) *decoded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[hash]
}

func (r *recent) put(hash session.Hash, c commitlog.Commit) *decoded {
	d := &decoded{commit: c}
	if !slices.ContainsFunc(c.Events, func(e session.Event) bool { return !e.Blob.Digest.IsZero() }) {
		d.facts = sync.OnceValue(func() []journal.Fact { return journal.Facts(d.commit) })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.of[hash]; known != nil {
		return known
	}
	delete(r.of, r.ring[r.next])
	r.ring[r.next], r.of[hash] = hash, d
	r.next = (r.next + 1) % len(r.ring)
	return d
}
