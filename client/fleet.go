package client

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Fleet reads the status of the nodes and of their store, and handles rejected tasks.
type Fleet struct{ c *Client }

// Nodes returns the live nodes, sorted by name, and for half a minute the dead ones,
// with Dead and Silent set.
func (f *Fleet) Nodes(ctx context.Context) ([]messages.Node, error) {
	ns, err := query[wire.Nodes](ctx, f.c, messages.QueryNodes, wire.Query{})
	return ns.Nodes, err
}

// Node returns the live node with a name, or with an incarnation that starts with name.
// It returns a dead node only if no live one matches. session.ErrNotFound lists the
// existing nodes.
func (f *Fleet) Node(ctx context.Context, name string) (messages.Node, error) {
	all, err := f.Nodes(ctx)
	if err != nil {
		return messages.Node{}, fmt.Errorf("node %s: %w", name, err)
	}
	var hits []messages.Node
	var names []string
	for _, n := range all {
		names = append(names, n.Name)
		if n.Name == name || n.Incarnation == name {
			hits = append(hits, n)
		}
	}
	if len(hits) == 0 && name != "" {
		for _, n := range all {
			if strings.HasPrefix(n.Incarnation, name) {
				hits = append(hits, n)
			}
		}
	}
	if len(hits) > 1 { // a dead node and its successor
		if live := slices.DeleteFunc(slices.Clone(hits), func(n messages.Node) bool { return n.Dead }); len(live) == 1 {
			hits = live
		}
	}
	switch len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		return messages.Node{}, fmt.Errorf("node %q: %w; these live: %s", name, session.ErrNotFound, strings.Join(names, ", "))
	}
	var ids []string
	for _, n := range hits {
		ids = append(ids, n.Incarnation)
	}
	return messages.Node{}, fmt.Errorf("node %q stands for %d: %w; name one of %s", name, len(hits), run.ErrMalformed, strings.Join(ids, ", "))
}

// Drain asks an incarnation to accept no more work, to hand its runs to other nodes and
// to exit. It returns once the node has started to drain. It requires the rights of a
// fleet operator, or the role operate; with that role it returns session.ErrTenant for
// a node that also serves other tenants. session.ErrNotFound means that there is no
// such live incarnation.
func (f *Fleet) Drain(ctx context.Context, incarnation string) error {
	return f.c.requests.DrainFor(ctx, f.c.tenant, incarnation)
}

// Streams returns the usage of the streams that every run needs, sorted by name, as
// reported by the answering node. If the disk of the store is nearly full, "disk" is
// the first entry.
func (f *Fleet) Streams(ctx context.Context) ([]messages.StreamFill, error) {
	ns, err := query[wire.Nodes](ctx, f.c, messages.QueryNodes, wire.Query{})
	return ns.Streams, err
}

// Tasks returns the number of submitted tasks whose ids are kept, and how many of them
// no node has accepted yet: those are not runs.
func (f *Fleet) Tasks(ctx context.Context) (submitted, waiting uint64, err error) {
	page, err := query[wire.Runs](ctx, f.c, messages.QueryRuns, wire.Query{Limit: 1, All: true})
	if err != nil {
		return 0, 0, fmt.Errorf("count the tasks: %w", err)
	}
	return page.Submitted, page.Waiting, nil
}

// DeadLetters returns the rejected tasks that were neither retried nor dropped, oldest
// first: at most limit of them, 0 for all.
func (f *Fleet) DeadLetters(ctx context.Context, limit int) ([]messages.StoredLetter, error) {
	var all []messages.StoredLetter
	for after := uint64(0); ; {
		page, err := f.c.requests.DeadLetters(ctx, f.c.tenant, after, min(max(limit-len(all), 0), wire.MaxLimit))
		if err != nil {
			return all, fmt.Errorf("dead letters: %w", err)
		}
		all = append(all, page.Letters...)
		if limit > 0 && len(all) >= limit {
			return all[:limit], nil
		}
		if after = page.Next; after == 0 {
			return all, nil
		}
	}
}

// DeadLetter returns one rejected task by its sequence, with its message.
func (f *Fleet) DeadLetter(ctx context.Context, at uint64) (messages.DeadLetter, error) {
	return f.c.requests.DeadLetter(ctx, f.c.tenant, at)
}

// RetryDeadLetter submits a rejected task again and returns the run's id. d.By is kept
// as evidence. It returns run.ErrState for a task that would be rejected again.
func (f *Fleet) RetryDeadLetter(ctx context.Context, at uint64, d messages.Control) (run.ID, error) {
	id, err := f.c.requests.RetryDeadLetter(ctx, f.c.tenant, at, d)
	if err != nil {
		return "", fmt.Errorf("retry: %w", err)
	}
	f.c.remember(id)
	return id, nil
}

// DropDeadLetter removes a rejected task from the list. d.By and d.Reason are kept as
// evidence.
func (f *Fleet) DropDeadLetter(ctx context.Context, at uint64, d messages.Control) error {
	if err := f.c.requests.DropDeadLetter(ctx, f.c.tenant, at, d); err != nil {
		return fmt.Errorf("drop: %w", err)
	}
	return nil
}

// Quota returns the quota of the tenant and its usage on the current UTC day. Setting is zero
// for a tenant that never had one.
func (f *Fleet) Quota(ctx context.Context) (messages.Quota, error) {
	return query[messages.Quota](ctx, f.c, messages.QueryQuota, wire.Query{})
}

// ChangeQuota changes the quota of the tenant: verb is messages.VerbQuotaSet, VerbQuotaOpen
// or VerbQuotaRemove. It requires the rights of a fleet operator. A request that failed can
// be repeated, but repeated openings with amounts add up.
func (f *Fleet) ChangeQuota(ctx context.Context, verb string, d messages.Control) error {
	if err := d.Check(verb); err != nil {
		return err
	}
	return f.c.requests.Quota(ctx, f.c.tenant, verb, d)
}
