package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/memory/local"
	"github.com/rathcluster/rath/session"
)

// maxMemories is how many unused memories stay open. Tasks choose names freely, and
// an open memory costs two files and its notes in memory.
const maxMemories = 64

// memories opens the memories below a directory when they are used, and keeps
// those that were used last open until close.
type memories struct {
	dir    string
	log    *slog.Logger
	opener func(path string) (*local.Store, error) // nil is local.Open

	mu     sync.Mutex
	open   map[string]*openMemory // by path
	uses   uint64
	closed bool
}

// openMemory is a memory that is open or being opened. memories.mu guards it, but
// for store and err, which are set when ready is closed.
type openMemory struct {
	ready  chan struct{}
	store  *local.Store
	err    error
	users  int
	last   uint64 // of memories.uses
	broken bool   // it takes no writes before it is opened again
}

func (m *memories) get(_ context.Context, t session.Tenant, name string) (memory.Store, error) {
	if err := session.ValidID("memory", name); err != nil {
		return nil, err
	}
	n := &namedMemory{of: m, name: name, path: filepath.Join(m.dir, string(t), name)}
	// One that cannot be opened is found here, not at its first use.
	return n, n.do(func(*local.Store) error { return nil })
}

// acquire opens the memory at a path, if it is not open, and keeps it so until
// release. A user of another memory does not wait while a large one is read.
func (m *memories) acquire(path string) (*openMemory, error) {
	o, first, err := m.enter(path)
	if err != nil {
		return nil, err
	}
	if first {
		o.store, o.err = m.read(path)
		close(o.ready)
	}
	<-o.ready
	if o.err == nil {
		return o, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open[path] == o {
		delete(m.open, path) // the next user tries again
	}
	return nil, o.err
}

// enter counts a user of the memory at a path; first says that it has to open it.
func (m *memories) enter(path string) (o *openMemory, first bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, false, memory.ErrClosed
	}
	o = m.open[path]
	if o != nil && o.broken && o.users == 0 {
		m.shut(path, o)
		o = nil
	}
	if first = o == nil; first {
		if m.open == nil {
			m.open = map[string]*openMemory{}
		}
		o = &openMemory{ready: make(chan struct{})}
		m.open[path] = o
	}
	m.uses++
	o.users, o.last = o.users+1, m.uses
	return o, first, nil
}

func (m *memories) read(path string) (*local.Store, error) {
	if m.opener != nil {
		return m.opener(path)
	}
	return local.Open(path, nil)
}

// release gives a memory back, with what came of its use.
func (m *memories) release(o *openMemory, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o.users--
	o.broken = o.broken || errors.Is(err, local.ErrBroken)
	idle := 0
	oldest := ""
	for path, other := range m.open {
		if other.users > 0 {
			continue
		}
		idle++
		if oldest == "" || other.last < m.open[oldest].last {
			oldest = path
		}
	}
	if idle > maxMemories {
		m.shut(oldest, m.open[oldest])
	}
}

// shut closes an unused memory. m.mu is held.
func (m *memories) shut(path string, o *openMemory) {
	delete(m.open, path)
	if err := o.store.Close(); err != nil {
		m.log.Warn("a memory did not close cleanly", "path", path, "err", err)
	}
}

func (m *memories) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	var errs []error
	for _, o := range m.open {
		if <-o.ready; o.err == nil {
			errs = append(errs, o.store.Close())
		}
	}
	m.open = nil
	return errors.Join(errs...)
}

// namedMemory is a memory by its name, open while it is used.
type namedMemory struct {
	of         *memories
	name, path string
}

var (
	_ memory.Store    = (*namedMemory)(nil)
	_ memory.Archiver = (*namedMemory)(nil)
)

func (n *namedMemory) do(fn func(*local.Store) error) error {
	o, err := n.of.acquire(n.path)
	if err != nil {
		return fmt.Errorf("node: memory %s: %w", n.name, err)
	}
	err = fn(o.store)
	n.of.release(o, err)
	return err
}

// Write implements memory.Store.
func (n *namedMemory) Write(ctx context.Context, uri, text string, from memory.Origin) error {
	return n.do(func(s *local.Store) error { return s.Write(ctx, uri, text, from) })
}

// Read implements memory.Store.
func (n *namedMemory) Read(ctx context.Context, uri string) (text string, err error) {
	err = n.do(func(s *local.Store) (err error) { text, err = s.Read(ctx, uri); return err })
	return text, err
}

// Find implements memory.Store.
func (n *namedMemory) Find(ctx context.Context, q memory.Query) (hits []memory.Hit, err error) {
	err = n.do(func(s *local.Store) (err error) { hits, err = s.Find(ctx, q); return err })
	return hits, err
}

// List implements memory.Store.
func (n *namedMemory) List(ctx context.Context, uri string) (uris []string, err error) {
	err = n.do(func(s *local.Store) (err error) { uris, err = s.List(ctx, uri); return err })
	return uris, err
}

// Delete implements memory.Store.
func (n *namedMemory) Delete(ctx context.Context, uri string) error {
	return n.do(func(s *local.Store) error { return s.Delete(ctx, uri) })
}

// Archive implements memory.Archiver.
func (n *namedMemory) Archive(ctx context.Context, session, key string, messages []memory.Message, from memory.Origin) (uri string, err error) {
	err = n.do(func(s *local.Store) (err error) {
		uri, err = s.Archive(ctx, session, key, messages, from)
		return err
	})
	return uri, err
}
