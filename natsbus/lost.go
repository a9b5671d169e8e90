package natsbus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Servers that restart before they have caught up with each other, or that take
// what they store of a consumer for left over, can leave a stream or a consumer
// behind that their cluster knows and none of them ever leads again. They do not
// mend that. What is lost so and holds nothing that is not in a log elsewhere is
// removed and made anew: the consumers of work queues, which begin again with
// all that their stream holds, and the streams in memory, whose content sweeps
// and nodes bring again. What comes twice is harmless.

// lost reports whether an error of the patient search for something means that:
// the servers answer for a stream of the truth.
func (c *Conn) lost(ctx context.Context, err error) bool {
	return electing(err) && ctx.Err() == nil && c.led(ctx, EventStream(c.o.Generation, 0))
}

// led reports whether the leader of a stream answers.
func (c *Conn) led(ctx context.Context, stream string) bool {
	info, err := c.lookStream(ctx, stream)
	return err == nil && info != nil
}

// findQueue is lookQueue with patience, and says whether the consumer is lost
// though its stream is not.
func (c *Conn) findQueue(ctx context.Context, e *election, q pullQueue) (consumer jetstream.Consumer, lost bool, err error) {
	e.what = "consumer " + q.durable
	consumer, err = throughElection(ctx, e, func(ctx context.Context) (jetstream.Consumer, error) { return c.lookQueue(ctx, q) })
	return consumer, electing(err) && ctx.Err() == nil && c.led(ctx, q.stream), err
}

// unserved is why something lost is made anew.
const unserved = "no server serves it"

// renewQueue removes a consumer that does not give what it should, and makes it
// again, unless another node did since it was made: in nanoseconds, zero for
// whichever is there.
func (c *Conn) renewQueue(ctx context.Context, q pullQueue, made int64, why string) (jetstream.Consumer, error) {
	if made != 0 {
		now, err := c.lookQueue(ctx, q)
		if err == nil && now != nil && now.CachedInfo().Created.UnixNano() != made {
			return now, nil
		}
	}
	c.o.Logger.Warn("a consumer is made anew: "+why, "stream", q.stream, "consumer", q.durable)
	// Whether it is gone its absence tells: who would answer is what it lacks.
	if err := c.removeQueue(ctx, q); err != nil && !passing(err) {
		return nil, err
	}
	consumer, err := c.lookQueue(ctx, q)
	if err != nil || consumer != nil {
		return consumer, err
	}
	return c.putQueue(ctx, q)
}

// renewStream removes a lost stream and makes it again.
func (c *Conn) renewStream(ctx context.Context, want jetstream.StreamConfig) error {
	c.o.Logger.Warn("a stream is made anew: "+unserved, "stream", want.Name)
	_, err := apiWithin(ctx, c, apiStreamDelete+want.Name, askStream, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.js.DeleteStream(ctx, want.Name)
	})
	if err != nil && !passing(err) && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	// Whether it is gone its absence tells.
	if info, err := c.lookStream(ctx, want.Name); err != nil || info != nil {
		return err
	}
	return c.makeStream(ctx, want)
}

func (c *Conn) makeStream(ctx context.Context, want jetstream.StreamConfig) error {
	_, err := apiWithin(ctx, c, apiStreamCreate+want.Name, provisionFor, func(ctx context.Context) (jetstream.Stream, error) {
		return c.js.CreateStream(ctx, want)
	})
	return err
}

// replaceable reports whether a stream may be made anew when it is lost.
func replaceable(want *jetstream.StreamConfig) bool { return want.Storage == jetstream.MemoryStorage }

// tendEvery is how often the streams in memory are looked after.
const tendEvery = 10 * time.Second

// tend looks after the streams in memory until ctx ends: one that is lost, or
// that is gone because whoever made it anew died meanwhile, is made. A server
// without others loses them only with the connection: it is asked once for each.
func (c *Conn) tend(ctx context.Context) error {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for tended := uint64(0); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now := c.incarnation()
		if tended == now && c.nc.ConnectedClusterName() == "" {
			continue
		}
		tended = now
		for _, want := range layout(&c.o) {
			if !replaceable(&want) {
				continue
			}
			if err := c.tendStream(ctx, want); err != nil && ctx.Err() == nil {
				tended = 0
				c.o.Logger.Error("a stream in memory is not served, and cannot be made anew; "+c.o.provision(), "stream", want.Name, "err", err)
			}
		}
	}
}

func (c *Conn) tendStream(ctx context.Context, want jetstream.StreamConfig) error {
	info, err := c.findStream(ctx, &election{log: c.o.Logger}, want.Name)
	switch {
	case c.lost(ctx, err):
		return c.renewStream(ctx, want)
	case err != nil:
		return fmt.Errorf("natsbus: stream %s: %w", want.Name, err)
	case info == nil:
		return c.makeStream(ctx, want)
	}
	return nil
}
