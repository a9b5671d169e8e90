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
// sequence, at most limit of them, 0 for as many as fit. The page's Next is
// where the following one begins; it has come to Last when all was read. Tail
// goes on with what comes.
func (c *Client) Lineage(ctx context.Context, name string, after uint64, limit int) (wire.Lineage, error) {
	limit = cmp.Or(limit, wire.MaxLimit) // a page without a number has few records
	p, err := query[wire.Lineage](ctx, c, messages.QueryLineage, wire.Query{Session: name, After: after, Limit: limit})
	if err != nil {
		return p, fmt.Errorf("lineage: %w", err)
	}
	return p, nil
}

// RepairLineage has the relays look for lineage that is missing before other lineage, and
// derive it again, and returns the outcome of each partition. It takes the role operate.
// Repairing again changes nothing.
func (c *Client) RepairLineage(ctx context.Context) ([]wire.Repaired, error) {
	all, err := c.conn.Repair(ctx, c.tenant)
	if err != nil {
		err = fmt.Errorf("repair lineage: %w", err)
	}
	return all, err
}
