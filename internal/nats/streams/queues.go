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
	// AckWait is how long a node that takes a message may be silent about it
	// before another one gets it. While a node is at it, it says so.
	AckWait = 3 * time.Second
	// HoldMost bounds how long a node handles a message, which is longer than any
	// single wait for a log or for another node takes. What it began goes on
	// where it has to; the message comes again, here or elsewhere.
	HoldMost = time.Minute
	// WaitMost is the longest for which a message is given back.
	WaitMost = 30 * time.Second
)

// PullQueue is a durable consumer that nodes share: what is pending there is work
// for one of them.
type PullQueue struct {
	Stream, Durable, filter string
}

// TasksConsumer is the one consumer of TASKS, shared by all nodes: what is
// pending there no log holds yet.
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
		MaxAckPending: -1, // what waits for its turn must not keep others waiting
		// A message is sent to a node once a majority of the servers has noted that,
		// which takes no disk: the position says nothing that the stream, which is
		// synced, and the logs do not say. A server does not change that of a
		// queue that is there: it is made again.
		MemoryStorage: true,
	}
}

// differences compares the consumer with how it should be.
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

// LookQueue returns the consumer, nil if it is not there.
func (r *Reconciler) LookQueue(ctx context.Context, q PullQueue) (jetstream.Consumer, error) {
	consumer, err := conn.Call(ctx, r.conn, conn.APIConsumerInfo+q.Stream+"."+q.Durable, func(ctx context.Context) (jetstream.Consumer, error) {
		return r.conn.JS.Consumer(ctx, q.Stream, q.Durable)
	})
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, nil
	}
	return consumer, err
}

// putQueue makes the consumer.
func (r *Reconciler) putQueue(ctx context.Context, q PullQueue) (jetstream.Consumer, error) {
	return conn.Call(ctx, r.conn, conn.APIConsumerCreate+q.Stream+"."+q.Durable, func(ctx context.Context) (jetstream.Consumer, error) {
		return r.conn.JS.CreateConsumer(ctx, q.Stream, q.config())
	})
}

// OpenQueue returns the consumer to take messages from. A missing one is created
// if the credentials allow it, and one that no server serves is created again. A
// caller that opens it repeatedly keeps the election.
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

// removeQueue removes the consumer, if it is there.
func (r *Reconciler) removeQueue(ctx context.Context, q PullQueue) error {
	_, err := conn.Call(ctx, r.conn, conn.APIConsumerDelete+q.Stream+"."+q.Durable, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.conn.JS.DeleteConsumer(ctx, q.Stream, q.Durable)
	})
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil // another node was faster
	}
	return err
}
