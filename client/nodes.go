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

// Node returns the node that lives under a name, or whose incarnation begins
// so; one that is known to be dead only if no other has it. session.ErrNotFound
// lists those that there are.
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
	if len(hits) > 1 { // a node that died and the one in its place
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

// DrainNode asks an incarnation to take no more work, to give its runs to
// others and to end. It returns when the node has begun to. It takes the rights of an
// operator of the fleet, or the role operate: then session.ErrTenant marks a node that
// works for other tenants, too. session.ErrNotFound: no such incarnation lives.
func (c *Client) DrainNode(ctx context.Context, incarnation string) error {
	return c.requests.DrainFor(ctx, c.tenant, incarnation)
}
