package api

import (
	"context"
	"sync/atomic"

	"github.com/rathcluster/rath/internal/nats/archive"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/project"
	"github.com/rathcluster/rath/internal/nats/streams"
)

// Conn is a connection to the streams, and what runs on them. It is safe for concurrent use.
type Conn struct {
	*dispatch.Dispatch
	// renewed is the last renewal of this node's entry, nil before there was one.
	renewed atomic.Pointer[renewal]
}

// Connect connects and, unless Options.Client is set, verifies that the
// servers store as the level demands. It fails at once when no server answers
// (ErrUnreachable), when they refuse the credentials (ErrDenied) and when they
// promise less (ErrDurability).
func Connect(ctx context.Context, o *streams.Options) (*Conn, error) {
	st, err := streams.OpenStore(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Conn{Dispatch: dispatch.NewDispatch(archive.NewArchive(project.NewProjections(eventlog.NewLogs(st))))}, nil
}
