package natsbus

import (
	"github.com/rathcluster/rath/session"
)

// Logs are the logs of sessions with their snapshots, blobs and names, over streams.
// It is safe for concurrent use.
type Logs struct {
	*Streams
	// recent are the commits that this process has decoded.
	recent  *recent
	foreign foreignCounts
	// place is EventSubject, but for tests whose ids are not minted.
	place func(session.Key) (stream, subject string, err error)
}

// NewLogs returns the logs over s.
func NewLogs(s *Streams) *Logs {
	return &Logs{Streams: s, recent: newRecent(), place: EventSubject}
}
