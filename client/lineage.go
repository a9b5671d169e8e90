package client

import (
	"cmp"
	"context"
	"fmt"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
)

// Lineage returns one page of the lineage of the tree of a session, by id or name, or
// of the whole tenant for "": the records after a cursor, see Tail, at most limit of
// them, 0 for as many as fit. The page's Next is the cursor of the following page;
// without More the reader is up to date.
func (c *Client) Lineage(ctx context.Context, name, after string, limit int) (messages.LineagePage, error) {
	limit = cmp.Or(limit, wire.MaxLimit) // a page without a number has few records
	p, err := query[messages.LineagePage](ctx, c, messages.QueryLineage, wire.Query{Session: name, Cursor: after, Limit: limit})
	if err != nil {
		return p, fmt.Errorf("lineage: %w", err)
	}
	return p, nil
}

// RepairLineage makes the relays search for gaps in the lineage and derive the missing
// records again. It returns the outcome of each partition. It requires the role
// operate. Repeating it is harmless.
func (c *Client) RepairLineage(ctx context.Context) ([]messages.Repaired, error) {
	all, err := c.requests.Repair(ctx, c.tenant)
	if err != nil {
		err = fmt.Errorf("repair lineage: %w", err)
	}
	return all, err
}
