package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/project"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// DefaultPool is the pool of nodes and workflows that name none.
const DefaultPool = "default"

// Relay is this process's share of the work that follows from commits. StartRelay begins
// it, and it ends with its context.
type Relay struct {
	ended chan struct{}
	err   error // once it has ended
}

// Wait returns once the relay has ended: nil if its context ended, else a permanent error,
// such as a missing stream. It is safe for concurrent use.
func (r *Relay) Wait() error {
	<-r.ended
	return r.err
}

// StartRelay relays the work that follows from the commits of the connection's generation,
// until ctx ends, together with all other processes that do: one process at a time relays
// each event stream. A process that leaves releases its share at once. The share of a
// crashed process is taken over within about three seconds, and a process that was frozen
// notices that before it resumes. The caller waits for the relay's end before it closes the
// connection.
//
// From the start of the relay, a query for a commit (ServeQueries, WaitCaughtUp) waits
// until the partitions of this process are known, so that work left by an earlier relay is
// not skipped. So a node starts its relay before it answers queries.
//
// Two independent pumps serve each stream.
//
// One dispatches runs to the nodes, applies signals between sessions and stores results
// (stream RESULT); see package schedule. Repeated actions are harmless.
//
// The other publishes lineage records (stream LINEAGE) in the order of the stream, and then
// to the clients that watch their run. Where relays overlap some records are repeated,
// which readers detect: see Ordered.
//
// Both resume at their position after a restart. The relay of the first partition also
// recreates the streams in memory that no server serves any more.
func (c *Dispatch) StartRelay(ctx context.Context, o *RelayOptions) *Relay {
	members := c.newRelayMembership("relay", o)
	members.known = c.projections.Watermarks.Expect()
	members.start = func(partition uint32) func(context.Context, <-chan struct{}) error {
		stream := streams.EventStream(c.streams.Generation(), partition)
		c.projections.Watermarks.Begin(stream)
		return func(ctx context.Context, poke <-chan struct{}) error {
			defer c.projections.Watermarks.End(stream)
			return c.relay(ctx, members, partition, poke)
		}
	}
	r := &Relay{ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		if err := members.run(ctx); err != nil {
			r.err = fmt.Errorf("nats/dispatch: relay: %w", err)
		}
	}()
	return r
}

// Follow follows the event streams and the dead letters as f does, until ctx ends, together
// with all other processes that follow under its name: one process at a time follows each
// stream, as with StartRelay. The process with the first partition also runs other.
func (c *Dispatch) Follow(ctx context.Context, o *RelayOptions, f *project.Follower, other func(context.Context) error) error {
	members := c.newRelayMembership(f.Name, o)
	members.start = func(partition uint32) func(context.Context, <-chan struct{}) error {
		all := []func(context.Context) error{func(ctx context.Context) error { return c.projections.FollowEvents(ctx, f, partition) }}
		if partition == 0 {
			all = append(all, other, func(ctx context.Context) error { return c.projections.FollowLetters(ctx, f) })
		}
		for i := range all {
			all[i] = c.again(f.Name, streams.EventStream(c.streams.Generation(), partition), all[i])
		}
		return func(ctx context.Context, _ <-chan struct{}) error { return conn.Together(ctx, all...) }
	}
	return members.run(ctx)
}

// Submit stores a task in the name of a user. A task that is stored twice is accepted once.
func (c *Dispatch) Submit(ctx context.Context, t session.Tenant, user, workflow string, task *messages.Task) error {
	body, err := task.Encode()
	if err != nil {
		return err
	}
	return c.messages.PublishAtLeastOnce(ctx, &nats.Msg{Subject: messages.TaskSubject(t, user, workflow), Data: body})
}

// relay relays one partition until ctx ends.
func (c *Dispatch) relay(ctx context.Context, r *relayMembership, partition uint32, poke <-chan struct{}) error {
	g := c.streams.Generation()
	out := &dispatcher{c: c, o: r.o, generation: g, partition: partition, stream: streams.EventStream(g, partition), recheck: poke, requests: make(chan func())}
	defer c.relaying(partition, out)()
	told := &project.LineageRelay{C: c.projections, Generation: g, Partition: partition, Stream: streams.EventStream(g, partition), LeaseValid: r.leaseValid}
	pumps := []func(context.Context) error{c.again("dispatcher", out.stream, out.run), c.again("lineage", told.Stream, told.Run)}
	if partition == 0 {
		pumps = append(pumps, c.streams.Reconciler.ReconcileStreams, c.streams.Reconciler.ReconcileTasks)
	}
	return conn.Together(ctx, pumps...)
}

// again returns a pump that restarts when it fails, unless its stream does not exist at the
// first start.
func (c *Dispatch) again(name, stream string, pump func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := c.streamThere(ctx, stream); err != nil {
			return err
		}
		for wait := conn.NewBackoff(); ; {
			began := time.Now()
			err := pump(ctx)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if !errors.Is(err, project.ErrLeaseExpired) {
				c.conn.Logger.Error("a relay pump failed and starts over", "pump", name, "stream", stream, "err", err)
			}
			if time.Since(began) > time.Minute {
				wait = conn.NewBackoff()
			}
			if err := wait.Sleep(ctx); err != nil {
				return err
			}
		}
	}
}

// streamThere fails for a stream that does not exist.
func (c *Dispatch) streamThere(ctx context.Context, stream string) error {
	if _, err := c.messages.LastSequence(ctx, stream); errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	return nil
}
