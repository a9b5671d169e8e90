package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/conn"
)

// Lag is the backlog of one work queue. Autoscalers scale on it.
type Lag struct {
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	// Pending is the number of messages not yet delivered. Unacked is the number of
	// delivered messages whose requests no log holds yet, except the last one of each node.
	Pending int64 `json:"pending"`
	Unacked int64 `json:"unacked"`
}

// Lag returns the backlog of each work queue. It needs the rights of an operator.
func (c *Streams) Lag(ctx context.Context) ([]Lag, error) {
	var out []Lag
	for _, name := range []string{StreamTasks} {
		_, err := conn.Call(ctx, c.Conn, conn.APIConsumerList+name, func(ctx context.Context) (struct{}, error) {
			s, err := c.Conn.JS.Stream(ctx, name)
			if err != nil {
				return struct{}{}, err
			}
			list := s.ListConsumers(ctx)
			for i := range list.Info() {
				out = append(out, Lag{Stream: name, Consumer: i.Name, Pending: int64(i.NumPending), Unacked: int64(i.NumAckPending)})
			}
			return struct{}{}, list.Err()
		})
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // no task was ever submitted
		}
		if err != nil {
			return nil, fmt.Errorf("nats/streams: lag of stream %s: %w; it takes the credentials of an operator", name, err)
		}
	}
	return out, nil
}

// Subjects returns how many messages a stream holds under each subject that
// matches a filter.
func (c *Streams) Subjects(ctx context.Context, stream, filter string) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, conn.RetryBudget)
	defer cancel()
	s, err := c.Conn.JS.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("nats/streams: look at stream %s: %w", stream, conn.StreamError(err))
	}
	if s.CachedInfo().State.Msgs == 0 {
		return map[string]uint64{}, nil
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, fmt.Errorf("nats/streams: look at stream %s: %w", stream, err)
	}
	if info.State.Subjects == nil {
		return map[string]uint64{}, nil
	}
	return info.State.Subjects, nil
}
