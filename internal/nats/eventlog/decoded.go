package eventlog

import (
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/session"
)

// recent are the commits that this process has appended or decoded last, by their hash: no
// reader of an event stream decodes them again. It is safe for concurrent use.
type recent struct {
	mu    sync.Mutex
	of    map[session.Hash]*decoded
	ring  [recentSize]session.Hash // hashes of the cached commits, the oldest at next
	next  int
	bytes int // as they are stored
}

// decoded is a commit as commitlog.Decode returns it. Its readers share it and must not
// modify it.
type decoded struct {
	commit  commitlog.Commit
	bytes   int
	spilled bool // data of it lies in blobs

	once  sync.Once
	facts []journal.Fact // unless it is spilled
}

// recentSize and recentBytes bound the commits in the cache. The readers of a stream are at
// most recentSize commits apart when both keep up.
const (
	recentSize  = 2 * conn.FollowAhead
	recentBytes = 4 << 20
)

func newRecent() *recent { return &recent{of: make(map[session.Hash]*decoded, recentSize)} }

// forget forgets all commits. They are few, but they keep the larger memory around them
// alive.
func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.of)
	r.bytes = 0
}

// successor is commitlog.Successor.
func (r *recent) successor(k session.Key, after commitlog.Position, raw []byte) (commitlog.Commit, session.Hash, error) {
	hash := commitlog.HashOf(raw)
	d := r.get(hash)
	if d == nil {
		c, err := commitlog.Decode(raw)
		if err != nil {
			return c, session.Hash{}, err
		}
		d = r.put(hash, c, len(raw))
	}
	c := d.commit
	if d.spilled { // its reader fills in the data in blobs
		c.Events = slices.Clone(c.Events)
	}
	return c, hash, c.Follows(k, after)
}

// facts is journal.Facts of a commit that successor returned.
func (r *recent) facts(e commitlog.Entry) []journal.Fact {
	d := r.get(e.At.Hash)
	if d == nil || d.spilled {
		return journal.Facts(e.Commit)
	}
	d.once.Do(func() { d.facts = journal.Facts(d.commit) })
	return d.facts
}

// appended adds a commit of so many bytes. Its writer may continue to use c.
func (r *recent) appended(hash session.Hash, c commitlog.Commit, bytes int) {
	c.Events = slices.Clone(c.Events)
	for i := range c.Events {
		e := &c.Events[i]
		e.Time = time.UnixMilli(e.Time.UnixMilli()).UTC() // as it is stored
	}
	r.put(hash, c, bytes)
}

func (r *recent) get(hash session.Hash) *decoded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[hash]
}

func (r *recent) put(hash session.Hash, c commitlog.Commit, bytes int) *decoded {
	d := &decoded{commit: c, bytes: bytes}
	d.spilled = slices.ContainsFunc(c.Events, func(e session.Event) bool { return !e.Blob.Digest.IsZero() })
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.of[hash]; known != nil {
		return known
	}
	r.drop(r.next)
	for i := 1; r.bytes+bytes > recentBytes && len(r.of) > 0; i++ {
		r.drop((r.next + i) % recentSize)
	}
	r.ring[r.next], r.of[hash] = hash, d
	r.next, r.bytes = (r.next+1)%recentSize, r.bytes+bytes
	return d
}

// drop forgets the commit at a place of the ring, if there is one; the caller holds mu.
func (r *recent) drop(place int) {
	if d := r.of[r.ring[place]]; d != nil {
		delete(r.of, r.ring[place])
		r.bytes -= d.bytes
	}
}
