package project

import (
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
)

// Projections are what is derived from logs: lineage, results, and how far they are. It
// is safe for concurrent use.
type Projections struct {
	conn    *conn.Conn
	streams *streams.Streams
	logs    *eventlog.Logs
	// Watermarks is how far the relays of this process are.
	Watermarks *watermarks
}

// NewProjections returns the projections of l, whose logs are in s.
func NewProjections(s *streams.Streams, l *eventlog.Logs) *Projections {
	return &Projections{conn: s.Conn, streams: s, logs: l, Watermarks: newWatermarks(s.Conn.Incarnation)}
}
