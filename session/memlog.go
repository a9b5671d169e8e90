package session

import (
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
	"sync"
)

// MemoryLog is a Log in memory, for tests and for runs that need no
// durability. Its zero value is ready to use.
type MemoryLog struct {
	mu    sync.Mutex
	token uint64
	logs  map[Key][]Entry
	snaps map[Key]memSnap
	pages map[string][]byte
}

type memSnap struct {
	at    Position
	state []byte
}

var (
	_ Log         = (*MemoryLog)(nil)
	_ Snapshotter = (*MemoryLog)(nil)
)

// Append implements Log.
func (m *MemoryLog) Append(ctx context.Context, at Position, c Commit) (Position, error) {
	if err := ctx.Err(); err != nil {
		return Position{}, err
	}
	raw, err := Encode(c)
	if err != nil {
		return Position{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	log := m.logs[c.Key]
	var end Position
	if len(log) > 0 {
		end = log[len(log)-1].At
	}
	if end != at {
		return Position{}, fmt.Errorf("session: append %d to %s, which is at %d: %w", c.Seq, c.Key, end.Seq, ErrConflict)
	}
	own, hash, err := Successor(c.Key, at, raw)
	if err != nil {
		return Position{}, err
	}
	m.token++
	pos := Position{Seq: c.Seq, Token: m.token, Hash: hash}
	if m.logs == nil {
		m.logs = map[Key][]Entry{}
	}
	m.logs[c.Key] = append(log, Entry{Commit: own, At: pos, Raw: string(raw)})
	return pos, nil
}

// Read implements Log.
func (m *MemoryLog) Read(ctx context.Context, k Key, after Position) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		m.mu.Lock()
		log := m.logs[k]
		m.mu.Unlock()
		for _, e := range log[min(after.Seq, uint64(len(log))):] {
			if err := ctx.Err(); err != nil {
				yield(Entry{}, err)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Last implements Log.
func (m *MemoryLog) Last(ctx context.Context, k Key) (Entry, error) {
	if err := ctx.Err(); err != nil {
		return Entry{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	log := m.logs[k]
	if len(log) == 0 {
		return Entry{}, fmt.Errorf("session: %s: %w", k, ErrNotFound)
	}
	return log[len(log)-1], nil
}

// Keys returns the sessions that have commits, sorted.
func (m *MemoryLog) Keys() []Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := make([]Key, 0, len(m.logs))
	for k := range m.logs {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b Key) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
	return keys
}

// Save implements Snapshotter.
func (m *MemoryLog) Save(_ context.Context, k Key, at Position, state []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.snaps == nil {
		m.snaps = map[Key]memSnap{}
	}
	if old, ok := m.snaps[k]; !ok || old.at.Seq < at.Seq {
		m.snaps[k] = memSnap{at, slices.Clone(state)}
	}
	return nil
}

// Load implements Snapshotter.
func (m *MemoryLog) Load(_ context.Context, k Key) (Position, []byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.snaps[k]
	if !ok {
		return Position{}, nil, fmt.Errorf("session: snapshot of %s: %w", k, ErrNotFound)
	}
	return s.at, slices.Clone(s.state), nil
}

// SavePage implements Snapshotter.
func (m *MemoryLog) SavePage(_ context.Context, t Tenant, digest string, page []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pages == nil {
		m.pages = map[string][]byte{}
	}
	m.pages[string(t)+"/"+digest] = slices.Clone(page)
	return nil
}

// LoadPage implements Snapshotter.
func (m *MemoryLog) LoadPage(_ context.Context, t Tenant, digest string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.pages[string(t)+"/"+digest]
	if !ok {
		return nil, fmt.Errorf("session: page %s: %w", digest, ErrNotFound)
	}
	return slices.Clone(p), nil
}

// HashOf returns the hash that names stored bytes.
func HashOf(raw []byte) Hash { return sha256.Sum256(raw) }
