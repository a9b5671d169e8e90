package client

import (
	"context"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/memory"
)

// Memory reads and writes the tenant's memories, from which agents recall.
type Memory struct{ c *Client }

// List returns the names of the tenant's memories that have or had a note, sorted.
func (m *Memory) List(ctx context.Context) ([]string, error) {
	return m.c.requests.Memories(ctx, m.c.tenant)
}

// Open returns the tenant's memory of that name, from which agents recall. Reading
// requires any role, Write the role submit and Delete the role operate. Write ignores
// its Origin: a note records the user that wrote it. Write rejects a blank text.
func (m *Memory) Open(name string) (memory.Store, error) {
	return m.c.requests.Memory(m.c.tenant, name)
}

// Each calls fn with the notes of a memory at and below a name, sorted by name, until
// fn returns an error: at most limit of them, 0 for all. Notes that exceed the size of
// an answer are left out. An error at the end names them, and wraps memory.ErrTooLarge.
func (m *Memory) Each(ctx context.Context, name, under string, limit int, fn func(uri, text string, from memory.Origin) error) error {
	notes, err := m.c.requests.Memory(m.c.tenant, name)
	if err != nil {
		return err
	}
	return notes.Each(ctx, under, limit, func(n wire.Note) error { return fn(n.URI, n.Text, n.Origin) })
}
