package dispatch

import (
	"context"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/session"
)

// RelayOptions configure a relay; nil means the defaults.
type RelayOptions struct {
	// Incarnation is the living incarnation of this process. Empty is a process that holds
	// no sessions.
	Incarnation string
	// Known returns, without blocking, whether another incarnation is alive, and whether
	// that is known at all; the relay probes an unknown one. A nil Known knows no
	// incarnation.
	Known func(incarnation string) (alive, known bool)
	// Changed signals that the answers of Known may have changed: runs of a dead node are
	// then dispatched at once.
	Changed <-chan struct{}
	// Pools returns the pools that offer a tenant a workflow in a revision ("" for any), at
	// least one, the preferred one first; nil reads the registry. After an error it is
	// called again.
	Pools func(ctx context.Context, t session.Tenant, workflow, revision string) ([]schedule.Pool, error)
	// Signal applies a signal to its session, wherever the session is held, and returns
	// once that is durable. It may receive a signal twice. Nil applies none.
	Signal func(ctx context.Context, s journal.Signal) error
	// Strangers receives the incarnations of the relays of another gossip, sorted, when they
	// change: they have sent heartbeats for 30 s while Known called them dead. Nil ignores them.
	Strangers func(incarnations []string)
}

func (o *RelayOptions) complete(c *Dispatch) RelayOptions {
	var r RelayOptions
	if o != nil {
		r = *o
	}
	if r.Pools == nil {
		r.Pools = c.Registry.newCatalog().pools
	}
	return r
}
