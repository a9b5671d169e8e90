package archive

import (
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/project"
	"github.com/rathcluster/rath/internal/nats/streams"
)

// Archive removes sessions from streams, and restores them. It is safe for concurrent use.
type Archive struct {
	conn        *conn.Conn
	messages    *conn.Messages
	streams     *streams.Streams
	logs        *eventlog.Logs
	projections *project.Projections
}

// NewArchive returns the archive of the logs l in s and of p, which is derived from them.
func NewArchive(s *streams.Streams, l *eventlog.Logs, p *project.Projections) *Archive {
	return &Archive{conn: s.Conn, messages: s.Messages, streams: s, logs: l, projections: p}
}
