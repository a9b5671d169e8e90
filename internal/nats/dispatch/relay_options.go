package dispatch

import (
	"context"

	"github.com/rathcluster/rath/internal/journal"
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
	// Pool says which pool offers a tenant a workflow in a revision ("" for any), and
	// in which class; nil reads the registry. After an error it is asked again.
	Pool func(ctx context.Context, t session.Tenant, workflow, revision string) (pool, class string, err error)
	// Signal applies a signal to its session, wherever that is held, and returns
	// once that is durable. It may be given a signal twice. Nil applies none.
	Signal func(ctx context.Context, s journal.Signal) error
}

func (o *RelayOptions) complete(c *Dispatch) RelayOptions {
	var r RelayOptions
	if o != nil {
		r = *o
	}
	if r.Pool == nil {
		r.Pool = c.newCatalog().pool
	}
	return r
}
