package natsbus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/run"
)

const (
	// DefaultPool is the pool of nodes and workflows that name none.
	DefaultPool = "default"
	// DefaultSweep is how often open runs are looked through.
	DefaultSweep = 10 * time.Second
)

// RelayOptions say what a relay works with; nil means the defaults.
type RelayOptions struct {
	// Incarnation is this process: it lives. Empty is one that holds no
	// sessions.
	Incarnation string
	// Alive reports, without waiting, whether another incarnation lives; nil
	// asks it.
	Alive func(incarnation string) bool
	// Changed tells that what Alive says may have changed: runs that a dead
	// node held are then offered at once, not only with the next sweep.
	Changed <-chan struct{}
	// Pool says which pool offers a workflow in a revision ("" for any), and
	// in which class; nil reads the registry.
	Pool func(ctx context.Context, workflow, revision string) (pool, class string)
	// Here gives a signal to the process that relays, and reports whether it has
	// the signal's session in memory, and what came of it: then the signal needs
	// no way over the servers. It is asked for at most a second, and may be
	// given a signal twice. Nil has no sessions.
	Here func(ctx context.Context, s run.Signal) (held bool, err error)
	// Woken, if set, is told of each run that an incarnation was asked to go on
	// with, and whether it took it.
	Woken func(incarnation string, id run.ID, taken bool)
	// Take gives a woken run to the process that relays, as ServeDeliver does if
	// another one relays: a run whose wait is over is offered to the incarnation
	// that wrote its session last before its pool. Nil takes nothing.
	Take func(ctx context.Context, w run.Work) (Answer, error)
	// Sweep is how often the open runs are looked through after the pass at
	// the start; zero means DefaultSweep.
	Sweep time.Duration
	// Swept, if set, is told of each pass: how many runs of a partition are
	// open and how many of them were offered.
	Swept func(partition uint32, open, offered int)
}

func (o *RelayOptions) complete(c *Conn) RelayOptions {
	var r RelayOptions
	if o != nil {
		r = *o
	}
	if r.Pool == nil {
		r.Pool = c.newCatalog().pool
	}
	if r.Sweep <= 0 {
		r.Sweep = DefaultSweep
	}
	return r
}

// Relay is this process's part in passing on what follows from commits. StartRelay
// begins it, and it ends with the context that it was given.
type Relay struct {
	ended chan struct{}
	err   error // once it has ended
}

// Wait returns once the relay has ended: nil if its context did, else an error that
// does not pass, such as a missing stream. It may be called by several at once.
func (r *Relay) Wait() error {
	<-r.ended
	return r.err
}

// StartRelay passes on, until ctx ends, what follows from the commits of the
// connection's generation, together with all other processes that do: each event
// stream is relayed by one of them at a time. Who leaves gives up his part at once;
// the part of one that crashes is taken over within some three seconds, and one
// that was frozen finds out before it goes on. Whoever starts it waits for its end
// before he closes the connection.
//
// From its start on, who asks for what was committed (ServeQueries, Relayed) waits
// until it is known which partitions this process relays: what an earlier one did
// not get to is not passed over. So a node starts its relay before it answers.
//
// Of each stream two pumps take care, independently of each other.
//
// One offers runs to the nodes (stream WORK), delivers signals between
// sessions and publishes results (stream RESULT). At its start, now and then
// after that and when a node has died, it sweeps the open runs: those that
// nobody executes are offered again, those for which something is due are told
// so. Doing that twice is harmless.
//
// The other publishes lineage records (stream LINEAGE) in the order of the
// stream, and tells them to who watches their run. Where relays overlap some
// records are repeated, which readers recognise: see Ordered.
//
// Both go on after a restart where they were. Whoever relays the first partition
// also makes the streams in memory anew that no server serves any more.
func (c *Conn) StartRelay(ctx context.Context, o *RelayOptions) *Relay {
	members := c.newRoster(o)
	r := &Relay{ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		if err := members.run(ctx); err != nil {
			r.err = fmt.Errorf("natsbus: relay: %w", err)
		}
	}()
	return r
}

// relay relays one partition until ctx ends.
func (c *Conn) relay(ctx context.Context, r *roster, partition uint32, poke <-chan struct{}) error {
	g := c.o.Generation
	out := &outbox{c: c, o: r.o, last: r.last, generation: g, partition: partition, stream: EventStream(g, partition), poke: poke, onDuty: r.onDuty}
	told := &lineageRelay{c: c, generation: g, partition: partition, stream: EventStream(g, partition), onDuty: r.onDuty}
	pumps := []func(context.Context) error{c.again("outbox", out.stream, out.run), c.again("lineage", told.stream, told.run)}
	if partition == 0 {
		pumps = append(pumps, c.tend)
	}
	return together(ctx, pumps...)
}

// again returns a pump that starts over when it fails, unless its stream is
// not there when it starts for the first time.
func (c *Conn) again(name, stream string, pump func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := c.streamThere(ctx, stream); err != nil {
			return err
		}
		for wait := newBackoff(); ; {
			began := time.Now()
			err := pump(ctx)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if !errors.Is(err, errOffDuty) {
				c.o.Logger.Error("a relay pump failed and starts over", "pump", name, "stream", stream, "err", err)
			}
			if time.Since(began) > time.Minute {
				wait = newBackoff()
			}
			if err := wait.sleep(ctx); err != nil {
				return err
			}
		}
	}
}

// streamThere fails for a stream that does not exist.
func (c *Conn) streamThere(ctx context.Context, stream string) error {
	if _, err := c.lastSequence(ctx, stream); errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	return nil
}

// together runs all functions until ctx ends or one fails, waits for all of
// them and returns the first error that is not the end of ctx.
func together(ctx context.Context, fs ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, f := range fs {
		wg.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}
