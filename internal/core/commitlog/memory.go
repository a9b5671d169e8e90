package commitlog

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/rathcluster/rath/session"
)

// Memory is a Log in memory, for tests and for runs that need no
// durability. Its zero value is ready to use.
type Memory struct {
	mu    sync.Mutex
	token uint64
	logs  map[session.Key][]Entry
	snaps map[session.Key]snapshot
	pages map[string][]byte
}

type snapshot struct {
	at    Position
	state []byte
}

var (
	_ Log         = (*Memory)(nil)
	_ Snapshotter = (*Memory)(nil)
)

// Append implements Log.
func (m *Memory) Append(ctx context.Context, at Position, c Commit) (Position, error) {
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
		return Position{}, fmt.Errorf("session: append %d to %s, which is at %d: %w", c.Seq, c.Key, end.Seq, session.ErrConflict)
	}
	own, hash, err := Successor(c.Key, at, raw)
	if err != nil {
		return Position{}, err
	}
	m.token++
	pos := Position{Seq: c.Seq, Token: m.token, Hash: hash}
	if m.logs == nil {
		m.logs = map[session.Key][]Entry{}
	}
	m.logs[c.Key] = append(log, Entry{Commit: own, At: pos, Raw: string(raw)})
	return pos, nil
}

// Read implements Log.
func (m *Memory) Read(ctx context.Context, k session.Key, after Position) iter.Seq2[Entry, error] {
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
func (m *Memory) Last(ctx context.Context, k session.Key) (Entry, error) {
	if err := ctx.Err(); err != nil {
		return Entry{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	log := m.logs[k]
	if len(log) == 0 {
		return Entry{}, fmt.Errorf("session: %s: %w", k, session.ErrNotFound)
	}
	return log[len(log)-1], nil
}

// Keys returns the sessions that have commits, sorted.
func (m *Memory) Keys() []session.Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := make([]session.Key, 0, len(m.logs))
	for k := range m.logs {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b session.Key) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
	return keys
}

// Save implements Snapshotter.
func (m *Memory) Save(_ context.Context, k session.Key, at Position, state []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.snaps == nil {
		m.snaps = map[session.Key]snapshot{}
	}
	if old, ok := m.snaps[k]; !ok || old.at.Seq < at.Seq {
		m.snaps[k] = snapshot{at, slices.Clone(state)}
	}
	return nil
}

// Load implements Snapshotter.
func (m *Memory) Load(_ context.Context, k session.Key) (Position, []byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.snaps[k]
	if !ok {
		return Position{}, nil, fmt.Errorf("session: snapshot of %s: %w", k, session.ErrNotFound)
	}
	return s.at, slices.Clone(s.state), nil
}

// SavePage implements Snapshotter.
func (m *Memory) SavePage(_ context.Context, t session.Tenant, digest string, page []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pages == nil {
		m.pages = map[string][]byte{}
	}
	m.pages[string(t)+"/"+digest] = slices.Clone(page)
	return nil
}

// LoadPage implements Snapshotter.
func (m *Memory) LoadPage(_ context.Context, t session.Tenant, digest string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.pages[string(t)+"/"+digest]
	if !ok {
		return nil, fmt.Errorf("session: page %s: %w", digest, session.ErrNotFound)
	}
	return slices.Clone(p), nil
}
