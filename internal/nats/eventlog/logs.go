package eventlog

import (
	"sync/atomic"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

// Logs are the logs of sessions with their snapshots, blobs and names, over streams.
// It is safe for concurrent use.
type Logs struct {
	conn     *conn.Conn
	messages *conn.Messages
	streams  *streams.Streams
	// recent are the commits that this process has decoded.
	recent  *recent
	foreign foreignCounts
	// blobTime is the last answer used by BlobTime.
	blobTime atomic.Pointer[blobTime]
	// Place is EventSubject, except in tests whose ids are not minted.
	Place func(session.Key) (stream, subject string, err error)
}

// NewLogs returns the logs over s.
func NewLogs(s *streams.Streams) *Logs {
	return &Logs{conn: s.Conn, messages: s.Messages, streams: s, recent: newRecent(), Place: EventSubject}
}
