package client

import (
	"cmp"
	"context"
	"fmt"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
)

// Lineage returns one page of the lineage of the tree that a session, by id or
// name, is part of, or of everything in the tenant for "": the records after a
// cursor, see Tail, at most limit of them, 0 for as many as fit. The page's Next is the
// cursor of the following one; without More all was read.
func (c *Client) Lineage(ctx context.Context, name, after string, limit int) (messages.LineagePage, error) {
	limit = cmp.Or(limit, wire.MaxLimit) // a page without a number has few records
	p, err := query[messages.LineagePage](ctx, c, messages.QueryLineage, wire.Query{Session: name, Cursor: after, Limit: limit})
	if err != nil {
		return p, fmt.Errorf("lineage: %w", err)
	}
	return p, nil
}

// RepairLineage has the relays look for lineage that is missing before other lineage, and
// derive it again, and returns the outcome of each partition. It takes the role operate.
// Repairing again changes nothing.
func (c *Client) RepairLineage(ctx context.Context) ([]messages.Repaired, error) {
	all, err := c.requests.Repair(ctx, c.tenant)
	if err != nil {
		err = fmt.Errorf("repair lineage: %w", err)
	}
	return all, err
}
