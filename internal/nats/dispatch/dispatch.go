package dispatch

import (
	"sync"
	"sync/atomic"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/project"
	"github.com/rathcluster/rath/internal/nats/streams"
)

// Dispatch ingests tasks, gives runs to nodes, and accepts the runs given to this process.
// It is safe for concurrent use.
type Dispatch struct {
	conn        *conn.Conn
	messages    *conn.Messages
	streams     *streams.Streams
	logs        *eventlog.Logs
	projections *project.Projections
	// Quotas are the quotas of all tenants.
	Quotas *Quotas
	// Registry has the offers of the nodes, and Delivery brings work to incarnations.
	Registry *Registry
	Delivery *Delivery
	// host accepts the runs dispatched to this process; nil while it accepts none.
	host atomic.Pointer[gateway]
	// deadLetters counts the dead letters that this process stored.
	deadLetters atomic.Uint64

	relaysMu sync.Mutex
	relays   map[uint32]*dispatcher // of the partitions that this process relays
}

// NewDispatch returns the dispatch of runs whose logs are l in s, with the results in p.
func NewDispatch(s *streams.Streams, l *eventlog.Logs, p *project.Projections) *Dispatch {
	c := &Dispatch{
		conn: s.Conn, messages: s.Messages, streams: s, logs: l, projections: p,
		Registry: &Registry{s.Messages, s}, Delivery: &Delivery{s.Conn},
		relays: map[uint32]*dispatcher{},
	}
	c.Quotas = newQuotas(c.Ledgers(), c.listQuotas, l.Minter())
	return c
}
