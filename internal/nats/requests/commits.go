package requests

import (
	"context"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Commits returns a page of a session's log after a position, nil for its beginning.
func (c *Requests) Commits(ctx context.Context, k session.Key, at *messages.CommitPosition) (page messages.Commits, err error) {
	err = c.Ask(ctx, k.Tenant, messages.QueryCommits, wire.Query{Session: string(k.ID), Limit: wire.MaxLimit, At: at}, &page)
	return page, err
}
