package api

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// listSessions answers with a page of the oldest sessions of all trees.
func listSessions(ctx context.Context, c *call) (any, error) {
	q, err := c.page()
	if err != nil {
		return nil, err
	}
	return c.ask(ctx, messages.QueryGraph, q)
}

// showSession answers with a session and a page of its chunks. The answer for a version
// never changes.
func showSession(ctx context.Context, c *call) (any, error) {
	q, err := c.page()
	if err != nil {
		return nil, err
	}
	v, err := c.number("version", maxSequence)
	if err != nil {
		return nil, err
	}
	q.Session = c.path("session")
	if v > 0 {
		q.Session = fmt.Sprintf("%s:%d", q.Session, v)
	}
	return c.ask(ctx, messages.QuerySession, q)
}

// showTree answers with a page of the sessions of a session's tree.
func showTree(ctx context.Context, c *call) (any, error) {
	q, err := c.page()
	if err != nil {
		return nil, err
	}
	q.Session, q.Format = c.path("session"), c.text("picture")
	return c.ask(ctx, messages.QueryGraph, q)
}

// listLineage answers with a page of lineage: of the tree of the session in the address, or
// of the tenant.
func listLineage(ctx context.Context, c *call) (any, error) {
	limit, err := c.number("limit", wire.MaxLimit)
	if err != nil {
		return nil, err
	}
	q := wire.Query{Session: c.path("session"), Cursor: c.text("after"), Limit: int(limit)}
	if q.Limit == 0 {
		q.Limit = defaultPage
	}
	return c.ask(ctx, messages.QueryLineage, q)
}

// listCommits answers with a page of the stored log of a session.
func listCommits(ctx context.Context, c *call) (any, error) {
	var from *messages.CommitPosition
	if at := c.text("at"); at != "" {
		from = &messages.CommitPosition{}
		if err := json.Unmarshal([]byte(at), from); err != nil {
			return nil, &strict.Error{Message: "query", Field: "at", Problem: strict.Problem(err), Remedy: "send the next of the page before as it came"}
		}
	}
	return c.client().Sessions.Commits(ctx, session.ID(c.path("session")), from)
}

// messageSession sends a message to a session.
func messageSession(ctx context.Context, c *call) (any, error) {
	d, err := c.control(messages.VerbSessionMessage)
	if err != nil {
		return nil, err
	}
	return done(c.client().Sessions.Message(ctx, c.path("session"), d))
}

// importSessions imports the sessions of an archive or of a session file.
func importSessions(ctx context.Context, c *call) (any, error) {
	rows, err := c.client().Sessions.Import(ctx, c.body)
	return wire.ImportAnswer{Answer: wire.Answer{Done: true}, Imported: rows}, err
}
