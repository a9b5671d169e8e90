package dispatch

import (
	"context"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/session"
)

// RelayOptions say what a relay works with; nil means the defaults.
type RelayOptions struct {
	// Incarnation is this process: it lives. Empty is one that holds no
	// sessions.
	Incarnation string
	// Known says, without waiting, whether another incarnation lives, and whether
	// that is known at all: one of which it is not is asked. Nil knows nothing.
	Known func(incarnation string) (alive, known bool)
	// Changed tells that what Known says may have changed: runs that a dead
	// node held are then dispatched at once.
	Changed <-chan struct{}
	// Pools says which pools offer a tenant a workflow in a revision ("" for any), at least
	// one, the preferred one first; nil reads the registry. After an error it is asked again.
	Pools func(ctx context.Context, t session.Tenant, workflow, revision string) ([]schedule.Pool, error)
	// Signal applies a signal to its session, wherever that is held, and returns
	// once that is durable. It may be given a signal twice. Nil applies none.
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
