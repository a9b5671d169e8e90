package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/conn"
)

const (
	// AckWait is the time without a progress report after which a message is redelivered to
	// another node. A node reports progress while it handles a message.
	AckWait = 3 * time.Second
	// HoldMost bounds the time for which a node handles a message. It exceeds every single
	// wait for a log or for another node. Work that must continue continues; the message is
	// redelivered to this node or another one.
	HoldMost = time.Minute
	// WaitMost is the maximum delay of a rejected message.
	WaitMost = 30 * time.Second
)

// PullQueue is a durable consumer that nodes share: each pending message is work for one of
// them.
type PullQueue struct {
	Stream, Durable, filter string
}

// TasksConsumer is the one consumer of TASKS, shared by all nodes. No log holds its pending
// tasks yet.
const TasksConsumer = "tasks"

// TasksQueue is the queue of the tasks that no log holds yet.
func TasksQueue() PullQueue {
	return PullQueue{Stream: StreamTasks, Durable: TasksConsumer, filter: subjectTasks}
}

func (q PullQueue) config() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       q.Durable,
		FilterSubject: q.filter,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       AckWait,
		MaxDeliver:    -1,
		MaxAckPending: -1, // a held message must not block others
		// The servers deliver a message once a majority has recorded the delivery, which
		// takes no disk: the position is implied by the logs and by the stream, which is
		// synced. A server does not change the storage of an existing consumer, so the
		// consumer is recreated.
		MemoryStorage: true,
	}
}

// differences compares the consumer with its wanted configuration.
func (q PullQueue) differences(have *jetstream.ConsumerConfig) []Difference {
	want := q.config()
	var out []Difference
	for _, s := range []struct {
		name       string
		have, want any
		fixed      bool
	}{
		{"filter", have.FilterSubject, want.FilterSubject, false},
		{"ack policy", have.AckPolicy, want.AckPolicy, true},
		{"ack wait", have.AckWait, want.AckWait, false},
		{"max deliver", have.MaxDeliver, want.MaxDeliver, false},
		{"max ack pending", have.MaxAckPending, want.MaxAckPending, false},
		{"deliver policy", have.DeliverPolicy, want.DeliverPolicy, true},
		{"inactive threshold", have.InactiveThreshold, time.Duration(0), false},
	} {
		if s.have == s.want {
			continue
		}
		d := Difference{Setting: s.name, Have: fmt.Sprint(s.have), Want: fmt.Sprint(s.want)}
		if s.fixed {
			d.Refused = "a server does not change that: stop all nodes, remove the consumer (nats consumer rm " + q.Stream + " " + q.Durable + ") and provision again"
		}
		out = append(out, d)
	}
	return out
}

// LookQueue returns the consumer, nil if it does not exist.
func (r *Reconciler) LookQueue(ctx context.Context, q PullQueue) (jetstream.Consumer, error) {
	consumer, err := conn.Call(ctx, r.conn, conn.APIConsumerInfo+q.Stream+"."+q.Durable, func(ctx context.Context) (jetstream.Consumer, error) {
		return r.conn.JS.Consumer(ctx, q.Stream, q.Durable)
	})
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, nil
	}
	return consumer, err
}

// putQueue creates the consumer.
func (r *Reconciler) putQueue(ctx context.Context, q PullQueue) (jetstream.Consumer, error) {
	return conn.Call(ctx, r.conn, conn.APIConsumerCreate+q.Stream+"."+q.Durable, func(ctx context.Context) (jetstream.Consumer, error) {
		return r.conn.JS.CreateConsumer(ctx, q.Stream, q.config())
	})
}

// OpenQueue returns the consumer from which to pull messages. It creates a missing one if
// the credentials allow it, and recreates one that no server serves. A caller that opens it
// repeatedly keeps e.
func (r *Reconciler) OpenQueue(ctx context.Context, e *Lookup, q PullQueue) (jetstream.Consumer, error) {
	r.resume(e)
	consumer, lost, err := r.findQueue(ctx, e, q)
	if lost {
		consumer, err = r.recreateQueue(ctx, q, 0, unserved)
	} else if err == nil && consumer == nil {
		consumer, err = r.putQueue(ctx, q)
	}
	if errors.Is(err, conn.ErrDenied) {
		return nil, fmt.Errorf("consumer %s of stream %s is missing: %s: %w", q.Durable, q.Stream, r.o.provision(), err)
	}
	return consumer, err
}

// removeQueue removes the consumer, if it exists.
func (r *Reconciler) removeQueue(ctx context.Context, q PullQueue) error {
	_, err := conn.Call(ctx, r.conn, conn.APIConsumerDelete+q.Stream+"."+q.Durable, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.conn.JS.DeleteConsumer(ctx, q.Stream, q.Durable)
	})
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil // another node was faster
	}
	return err
}
