package project

import "github.com/rathcluster/rath/internal/nats/eventlog"

// Projections are what is derived from logs: lineage, results, and how far they are. It
// is safe for concurrent use.
type Projections struct {
	*eventlog.Logs
	// Watermarks is how far the relays of this process are.
	Watermarks *watermarks
}

// NewProjections returns the projections of l.
func NewProjections(l *eventlog.Logs) *Projections {
	return &Projections{Logs: l, Watermarks: newWatermarks(l.Incarnation)}
}
