package natsbus

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/session"
)

// ErrClientOnly is returned for what a connection with Options.Client
// cannot do.
var ErrClientOnly = errors.New("natsbus: this connection does not store; connect without Options.Client")

// Conn is a connection to the streams. It is safe for concurrent use.
type Conn struct {
	*conn.Conn
	o    Options
	gate gate
	// watermarks is how far the relays of this process are.
	watermarks *watermarks
	// capacity is how full the event streams are, see WatchRoom.
	capacity *capacity
	// recent are the commits that the relays of this process have decoded.
	recent *recent
	// host takes what is dispatched to this process; nil while it takes nothing.
	host         atomic.Pointer[gateway]
	tenantUsages tenantUsages
	foreign      foreignCounts
	// renewed is the last renewal of this node's entry, nil before there was one.
	renewed atomic.Pointer[renewal]
	// place is EventSubject, but for tests whose ids are not minted.
	place func(session.Key) (stream, subject string, err error)
}

// Connect connects and, unless Options.Client is set, verifies that the
// servers store as the level demands. It fails at once when no server answers
// (ErrUnreachable), when they refuse the credentials (ErrDenied) and when they
// promise less (ErrDurability).
func Connect(ctx context.Context, opts *Options) (*Conn, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := &Conn{
		o: o, gate: newGate(), watermarks: newWatermarks(), capacity: newCapacity(), recent: newRecent(), place: EventSubject,
	}
	found := o.Partitions != 0 || o.Client
	if o.Partitions == 0 {
		c.o.Partitions = cmp.Or(o.NewPartitions, DefaultPartitions)
	}
	var err error
	if c.Conn, err = conn.Connect(ctx, &o.Options); err != nil {
		return nil, err
	}
	if !o.Client {
		err = c.Durable(ctx)
	}
	if err == nil && !found {
		err = c.findPartitions(ctx)
	}
	if err != nil {
		c.NC.Close()
		return nil, err
	}
	return c, nil
}

// findPartitions asks how many partitions the generation has, if it is there.
func (c *Conn) findPartitions(ctx context.Context) error {
	name := EventStream(c.o.Generation, 0)
	first, _, err := c.findStream(ctx, &lookup{Election: conn.Election{Log: c.Logger}}, jetstream.StreamConfig{Name: name})
	if err != nil {
		return c.o.provisionError(jetstream.StreamConfig{Name: name}, err)
	}
	if first == nil {
		return nil
	}
	// A build that did not note the number made as many as are the default.
	n, err := partitionsOf(&first.Config)
	if n != 0 {
		c.o.Partitions = n
	}
	return err
}

// Generation and Partitions say which event streams new sessions use.
func (c *Conn) Generation() uint32 { return c.o.Generation }

// Partitions is the number of event streams of the generation.
func (c *Conn) Partitions() uint32 { return c.o.Partitions }
