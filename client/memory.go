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

// Memory returns a memory of the tenant, the one that agents recall from by the same name.
// Reading takes any role, Write the role submit and Delete the role operate. Of the Origin
// that Write is given nothing is kept: a note says which user wrote it. Write refuses a
// blank text.
func (c *Client) Memory(name string) (memory.Store, error) {
	return c.requests.Memory(c.tenant, name)
}

// EachNote calls fn with the notes of a memory at and below a name, sorted by theirs, until
// it returns an error: at most limit of them, 0 for all. Notes that no answer holds
// are left out, and named by an error after all others, which wraps memory.ErrTooLarge.
func (c *Client) EachNote(ctx context.Context, name, under string, limit int, fn func(uri, text string, from memory.Origin) error) error {
	m, err := c.requests.Memory(c.tenant, name)
	if err != nil {
		return err
	}
	return m.Each(ctx, under, limit, func(n wire.Note) error { return fn(n.URI, n.Text, n.Origin) })
}
