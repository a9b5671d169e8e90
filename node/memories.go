package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/nats/notes"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/session"
)

// maxMemories is how many unused memories stay open. Tasks choose names freely, and
// an open memory costs its notes in memory.
const maxMemories = 64

// memories opens memories when they are used, and keeps the most recently used ones
// open until close.
type memories struct {
	log    *slog.Logger
	opener func(t session.Tenant, name string) (openable, error)

	mu     sync.Mutex
	open   map[memoryKey]*openMemory
	uses   uint64
	closed bool
}

// openable is a memory that costs resources while it is open.
type openable interface {
	memory.Store
	memory.Archiver
	io.Closer
}

type memoryKey struct {
	tenant session.Tenant
	name   string
}

// openMemory is a memory that is open. memories.mu guards it.
type openMemory struct {
	store openable
	users int
	last  uint64 // of memories.uses
}

// remember makes the node's runs use the memories of the fleet. A node that is bound to
// a tenant reaches them through the nodes for all tenants.
func (n *Instance) remember() {
	n.memories = &memories{log: n.o.Logger, opener: func(t session.Tenant, name string) (openable, error) {
		if n.link.bound != nil {
			return n.link.bound.Memory(t, name)
		}
		o := &notes.Options{Logger: n.o.Logger}
		if model, vectors := n.models.memory(); model != "" {
			o.Embedder, o.Model = namedEmbedder{n.runtime, t, model}, vectors
		}
		return notes.Open(n.link.conn.Streams, t, name, o)
	}}
}

// namedEmbedder makes the vectors of a tenant's notes with the model that the node's list
// names for it.
type namedEmbedder struct {
	runtime *engine.Runtime
	tenant  session.Tenant
	model   string
}

// Embed implements llm.Embedder.
func (e namedEmbedder) Embed(ctx context.Context, texts []string) (*llm.Embeddings, error) {
	m, err := e.runtime.Embedder(ctx, e.tenant, e.model)
	if err != nil {
		return nil, err
	}
	return m.Embed(ctx, texts)
}

// Memory returns the memory of a name that runs of a tenant use.
func (n *Instance) Memory(ctx context.Context, t session.Tenant, name string) (memory.Store, error) {
	if n.o.Memory != nil {
		return n.o.Memory(ctx, t, name)
	}
	return n.memories.get(ctx, t, name)
}

func (m *memories) get(_ context.Context, t session.Tenant, name string) (memory.Store, error) {
	if err := session.ValidID("memory", name); err != nil {
		return nil, err
	}
	return &namedMemory{of: m, key: memoryKey{t, name}}, nil
}

// acquire opens a memory, if it is not open, and keeps it open until release.
func (m *memories) acquire(k memoryKey) (*openMemory, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, memory.ErrClosed
	}
	o := m.open[k]
	if o == nil {
		store, err := m.opener(k.tenant, k.name)
		if err != nil {
			return nil, err
		}
		if m.open == nil {
			m.open = map[memoryKey]*openMemory{}
		}
		o = &openMemory{store: store}
		m.open[k] = o
	}
	m.uses++
	o.users, o.last = o.users+1, m.uses
	return o, nil
}

// release gives a memory back.
func (m *memories) release(o *openMemory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o.users--
	idle := 0
	var oldest memoryKey
	for k, other := range m.open {
		if other.users > 0 {
			continue
		}
		if idle++; idle == 1 || other.last < m.open[oldest].last {
			oldest = k
		}
	}
	if idle > maxMemories {
		m.shut(oldest)
	}
}

// shut closes an unused memory. m.mu is held.
func (m *memories) shut(k memoryKey) {
	o := m.open[k]
	delete(m.open, k)
	if err := o.store.Close(); err != nil {
		m.log.Warn("a memory did not close cleanly", "tenant", string(k.tenant), "memory", k.name, "err", err)
	}
}

func (m *memories) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	var errs []error
	for _, o := range m.open {
		errs = append(errs, o.store.Close())
	}
	m.open = nil
	return errors.Join(errs...)
}

// namedMemory is a memory by its name, open while it is used.
type namedMemory struct {
	of  *memories
	key memoryKey
}

var (
	_ memory.Store    = (*namedMemory)(nil)
	_ memory.Archiver = (*namedMemory)(nil)
)

func (n *namedMemory) do(fn func(openable) error) error {
	o, err := n.of.acquire(n.key)
	if err != nil {
		return fmt.Errorf("node: memory %s: %w", n.key.name, err)
	}
	defer n.of.release(o)
	return fn(o.store)
}

// Write implements memory.Store.
func (n *namedMemory) Write(ctx context.Context, uri, text string, from memory.Origin) error {
	return n.do(func(s openable) error { return s.Write(ctx, uri, text, from) })
}

// Read implements memory.Store.
func (n *namedMemory) Read(ctx context.Context, uri string) (text string, err error) {
	err = n.do(func(s openable) (err error) { text, err = s.Read(ctx, uri); return err })
	return text, err
}

// Find implements memory.Store.
func (n *namedMemory) Find(ctx context.Context, q memory.Query) (hits []memory.Hit, err error) {
	err = n.do(func(s openable) (err error) { hits, err = s.Find(ctx, q); return err })
	return hits, err
}

// List implements memory.Store.
func (n *namedMemory) List(ctx context.Context, uri string) (uris []string, err error) {
	err = n.do(func(s openable) (err error) { uris, err = s.List(ctx, uri); return err })
	return uris, err
}

// Delete implements memory.Store.
func (n *namedMemory) Delete(ctx context.Context, uri string) error {
	return n.do(func(s openable) error { return s.Delete(ctx, uri) })
}

// Archive implements memory.Archiver.
func (n *namedMemory) Archive(ctx context.Context, session, key string, messages []memory.Message, from memory.Origin) (uri string, err error) {
	err = n.do(func(s openable) (err error) {
		uri, err = s.Archive(ctx, session, key, messages, from)
		return err
	})
	return uri, err
}

// Page returns notes with their texts and origins: see notes.Store.
func (n *namedMemory) Page(ctx context.Context, under, after string, limit, room int) (page []notebook.Note, more bool, err error) {
	err = n.do(func(s openable) (err error) {
		page, more, err = s.(*notes.Store).Page(ctx, under, after, limit, room) // clients ask no bound node
		return err
	})
	return page, more, err
}
