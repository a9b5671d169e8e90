package client

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Node returns the live node with a name, or with an incarnation that starts with name.
// It returns a dead node only if no live one matches. session.ErrNotFound lists the
// existing nodes.
func (c *Client) Node(ctx context.Context, name string) (messages.Node, error) {
	all, err := c.Nodes(ctx)
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

// DrainNode asks an incarnation to accept no more work, to hand its runs to other nodes
// and to exit. It returns once the node has started to drain. It requires the rights of
// a fleet operator, or the role operate; with that role it returns session.ErrTenant
// for a node that also serves other tenants. session.ErrNotFound means that there is no
// such live incarnation.
func (c *Client) DrainNode(ctx context.Context, incarnation string) error {
	return c.requests.DrainFor(ctx, c.tenant, incarnation)
}
