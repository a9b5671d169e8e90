package streams

import (
	"cmp"
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/conn"
)

// ErrClientOnly is returned for operations that a connection with Options.Client does not
// support.
var ErrClientOnly = errors.New("nats/streams: this connection does not store; connect without Options.Client")

// Streams is the streams, at one durability, over one connection. It is safe for
// concurrent use.
type Streams struct {
	Conn     *conn.Conn
	Messages *conn.Messages
	O        Options
	gate     gate
	// Capacity is the usage of the event streams, see WatchRoom.
	Capacity *capacity
	// Reconciler finds streams and queues, and recreates lost ones.
	Reconciler *Reconciler
}

// OpenStore connects and verifies as Connect does.
func OpenStore(ctx context.Context, opts *Options) (*Streams, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := &Streams{O: o, gate: newGate()}
	found := o.Partitions != 0 || o.Client
	if o.Partitions == 0 {
		c.O.Partitions = cmp.Or(o.NewPartitions, DefaultPartitions)
	}
	var err error
	if c.Conn, err = conn.Connect(ctx, &o.Options); err != nil {
		return nil, err
	}
	c.Messages = c.Conn.Messages
	c.Capacity = newCapacity(c.Conn, &c.O)
	c.Reconciler = &Reconciler{c.Conn, c.Messages, &c.O}
	if !o.Client {
		err = c.Durable(ctx)
	}
	if err == nil && !found {
		err = c.findPartitions(ctx)
	}
	if err != nil {
		c.Conn.NC.Close()
		return nil, err
	}
	return c, nil
}

// findPartitions reads the number of partitions of the generation, if it exists.
func (c *Streams) findPartitions(ctx context.Context) error {
	name := EventStream(c.O.Generation, 0)
	first, _, err := c.Reconciler.findStream(ctx, &Lookup{Election: conn.Election{Log: c.Conn.Logger}}, jetstream.StreamConfig{Name: name})
	if err != nil {
		return c.O.provisionError(jetstream.StreamConfig{Name: name}, err)
	}
	if first == nil {
		return nil
	}
	// A build that did not record the number used the default.
	n, err := PartitionsOf(&first.Config)
	if n != 0 {
		c.O.Partitions = n
	}
	return err
}

// Generation and Partitions return the event streams of new sessions.
func (c *Streams) Generation() uint32 { return c.O.Generation }

// Partitions is the number of event streams of the generation.
func (c *Streams) Partitions() uint32 { return c.O.Partitions }
