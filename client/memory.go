package client

import (
	"context"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/memory"
)

// Memories returns the names of the tenant's memories that have or had a note, sorted.
func (c *Client) Memories(ctx context.Context) ([]string, error) {
	return c.requests.Memories(ctx, c.tenant)
}

// Memory returns the tenant's memory of that name, from which agents recall. Reading
// requires any role, Write the role submit and Delete the role operate. Write ignores
// its Origin: a note records the user that wrote it. Write rejects a blank text.
func (c *Client) Memory(name string) (memory.Store, error) {
	return c.requests.Memory(c.tenant, name)
}

// EachNote calls fn with the notes of a memory at and below a name, sorted by name,
// until fn returns an error: at most limit of them, 0 for all. Notes that exceed the
// size of an answer are left out. An error at the end names them, and wraps
// memory.ErrTooLarge.
func (c *Client) EachNote(ctx context.Context, name, under string, limit int, fn func(uri, text string, from memory.Origin) error) error {
	m, err := c.requests.Memory(c.tenant, name)
	if err != nil {
		return err
	}
	return m.Each(ctx, under, limit, func(n wire.Note) error { return fn(n.URI, n.Text, n.Origin) })
}
