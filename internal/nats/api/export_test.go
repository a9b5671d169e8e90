package api

import (
	"context"
	"errors"
	"iter"
	"net"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
)

type (
	natsMsg = nats.Msg
	netConn = net.Conn
)

// Kill ends the connection as the death of its process does: no request in progress is
// finished.
func (c *Conn) Kill() { c.Conn.NC.Close() }

// Cut breaks the connection, which is restored by itself.
func (c *Conn) Cut() error { return c.Conn.NC.ForceReconnect() }

// Relays returns the partitions whose lineage is relayed here.
func (c *Conn) Relays() []uint32 {
	var out []uint32
	for p := range c.Streams.Partitions() {
		if _, here := c.Projections.Watermarks.Here(streams.EventStream(c.Streams.Generation(), p)); here {
			out = append(out, p)
		}
	}
	return out
}

// Stored yields the messages of a stream, and later ones as they arrive.
func (c *Conn) Stored(ctx context.Context, stream, filter string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		in := make(chan conn.Message, conn.FollowAhead)
		err := conn.Following(ctx, func(ctx context.Context) error {
			return c.Messages.Follow(ctx, stream, filter, 1, in)
		}, func(ctx context.Context) error {
			for {
				select {
				case m := <-in:
					if !yield(m.Data, nil) {
						return nil
					}
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			yield(nil, err)
		}
	}
}

// Traffic returns how many messages this connection has sent and got.
func (c *Conn) Traffic() (sent, got uint64) {
	s := c.Conn.NC.Stats()
	return s.OutMsgs, s.InMsgs
}
