package natsbus

import (
	"context"
	"sync/atomic"

	"github.com/rathcluster/rath/session"
)

// Conn is a connection to the streams, and what runs on them. It is safe for concurrent use.
type Conn struct {
	*store
	// watermarks is how far the relays of this process are.
	watermarks *watermarks
	// recent are the commits that the relays of this process have decoded.
	recent *recent
	// host takes what is dispatched to this process; nil while it takes nothing.
	host    atomic.Pointer[gateway]
	foreign foreignCounts
	// renewed is the last renewal of this node's entry, nil before there was one.
	renewed atomic.Pointer[renewal]
	// place is EventSubject, but for tests whose ids are not minted.
	place func(session.Key) (stream, subject string, err error)
}

// Connect connects and, unless Options.Client is set, verifies that the
// servers store as the level demands. It fails at once when no server answers
// (ErrUnreachable), when they refuse the credentials (ErrDenied) and when they
// promise less (ErrDurability).
func Connect(ctx context.Context, o *Options) (*Conn, error) {
	st, err := openStore(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Conn{store: st, watermarks: newWatermarks(), recent: newRecent(), place: EventSubject}, nil
}
