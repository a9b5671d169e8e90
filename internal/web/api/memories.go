package api

import (
	"context"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/messages"
)

// listMemories answers with the names of the tenant's memories.
func listMemories(ctx context.Context, c *call) (any, error) {
	return c.ask(ctx, messages.QueryMemory, wire.Query{})
}

// listNotes answers with a page of the notes of a memory. The cursor is the name of the last
// note of the page before.
func listNotes(ctx context.Context, c *call) (any, error) {
	p, err := c.pageAfter()
	if err != nil {
		return nil, err
	}
	return c.ask(ctx, messages.QueryMemory, wire.Query{Memory: c.path("memory"), URI: c.text("under"), AfterNote: p.after, Limit: p.limit, All: true})
}

func showNote(ctx context.Context, c *call) (any, error) {
	return c.ask(ctx, messages.QueryNote, wire.Query{Memory: c.path("memory"), URI: c.text("uri"), Level: c.text("level")})
}

func recall(ctx context.Context, c *call) (any, error) {
	limit, err := c.number("limit", memory.MaxLimit)
	if err != nil {
		return nil, err
	}
	return c.ask(ctx, messages.QueryRecall, wire.Query{Memory: c.path("memory"), Text: c.text("text"), URI: c.text("under"), Limit: int(limit)})
}

func writeNote(ctx context.Context, c *call) (any, error) {
	d, err := messages.DecodeControl(c.body)
	if err != nil {
		return nil, err
	}
	uri, note, err := d.Note(messages.VerbMemoryWrite)
	if err != nil {
		return nil, err
	}
	m, err := c.client().Memory.Open(c.path("memory"))
	if err != nil {
		return nil, err
	}
	return done(m.Write(ctx, uri, note, memory.Origin{}))
}

func forgetNotes(ctx context.Context, c *call) (any, error) {
	uri, _, err := messages.Control{URI: c.text("uri")}.Note(messages.VerbMemoryForget)
	if err != nil {
		return nil, err
	}
	m, err := c.client().Memory.Open(c.path("memory"))
	if err != nil {
		return nil, err
	}
	return done(m.Delete(ctx, uri))
}
