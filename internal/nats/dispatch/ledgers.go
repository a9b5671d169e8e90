package dispatch

import (
	"context"
	"errors"

	"github.com/rathcluster/rath/internal/models/limiter"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
)

// Ledgers returns the store of the ledgers of limits, in the bucket REGISTRY.
func (c *Dispatch) Ledgers() limiter.Store { return ledgers{c} }

type ledgers struct{ c *Dispatch }

// Read implements limiter.Store.
func (l ledgers) Read(ctx context.Context, name string) (limiter.Entry, error) {
	m, err := l.c.messages.LeaderGet(ctx, "KV_"+streams.BucketRegistry, conn.GetRequest{LastBySubject: streams.KeySubject(streams.BucketRegistry, name)})
	if errors.Is(err, conn.ErrNoMessage) {
		return limiter.Entry{}, nil
	}
	return limiter.Entry{Data: m.Data, Seq: m.Seq, Time: m.Time}, err
}

// Write implements limiter.Store.
func (l ledgers) Write(ctx context.Context, name string, last uint64, data []byte) error {
	_, err := l.c.messages.PublishExpecting(ctx, streams.KeySubject(streams.BucketRegistry, name), last, nil, data)
	if errors.Is(err, conn.ErrExpectation) {
		return limiter.ErrChanged
	}
	return err
}
