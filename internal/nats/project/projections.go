package project

import (
	"maps"
	"slices"
	"sync"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
)

// Projections are the data derived from logs: lineage, results, and their watermarks. It is
// safe for concurrent use.
type Projections struct {
	conn     *conn.Conn
	messages *conn.Messages
	streams  *streams.Streams
	logs     *eventlog.Logs
	// Watermarks is the progress of this process's relays.
	Watermarks *watermarks
	// RunsFile is the file of the index of runs, which may be removed at any time; "" is
	// none. It is set before the first list.
	RunsFile string
	index    *runIndex

	gapsMu sync.Mutex
	gaps   map[string]bool // event streams, see Gaps
}

// NewProjections returns the projections of l, whose logs are in s.
func NewProjections(s *streams.Streams, l *eventlog.Logs) *Projections {
	c := &Projections{conn: s.Conn, messages: s.Messages, streams: s, logs: l, Watermarks: newWatermarks(s.Conn.Incarnation), gaps: map[string]bool{}}
	c.index = newRunIndex(c)
	return c
}

// Gaps returns the event streams whose lineage has a gap that a relay of this process found
// and could not fill.
func (c *Projections) Gaps() []string {
	c.gapsMu.Lock()
	defer c.gapsMu.Unlock()
	return slices.Sorted(maps.Keys(c.gaps))
}

// setGap notes whether the lineage of an event stream has a gap.
func (c *Projections) setGap(stream string, gap bool) {
	c.gapsMu.Lock()
	defer c.gapsMu.Unlock()
	if gap {
		c.gaps[stream] = true
	} else {
		delete(c.gaps, stream)
	}
}
