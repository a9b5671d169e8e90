package api

import (
	"context"
	"sync/atomic"

	"github.com/rathcluster/rath/internal/nats/archive"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/project"
	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/internal/nats/streams"
)

// Conn is a connection, and the parts over it. It is safe for concurrent use.
type Conn struct {
	Conn        *conn.Conn
	Messages    *conn.Messages
	Streams     *streams.Streams
	Logs        *eventlog.Logs
	Projections *project.Projections
	Archive     *archive.Archive
	Dispatch    *dispatch.Dispatch
	Requests    *requests.Requests
	controls    *controls
	// renewed is the last renewal of this node's entry, or nil.
	renewed atomic.Pointer[renewal]
}

// Connect connects and, unless Options.Client is set, verifies that the servers store as
// the level demands. It fails at once when no server answers (ErrUnreachable), when the
// servers reject the credentials (ErrDenied) and when they provide less durability
// (ErrDurability).
func Connect(ctx context.Context, o *streams.Options) (*Conn, error) {
	s, err := streams.OpenStore(ctx, o)
	if err != nil {
		return nil, err
	}
	return Over(s), nil
}

// Over returns the parts over s.
func Over(s *streams.Streams) *Conn {
	logs := eventlog.NewLogs(s)
	projections := project.NewProjections(s, logs)
	c := &Conn{
		Conn:        s.Conn,
		Messages:    s.Messages,
		Streams:     s,
		Logs:        logs,
		Projections: projections,
		Archive:     archive.NewArchive(s, logs, projections),
		Dispatch:    dispatch.NewDispatch(s, logs, projections),
		Requests:    requests.New(s.Conn),
	}
	c.controls = &controls{c}
	return c
}
