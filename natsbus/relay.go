package natsbus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// DefaultPool is the pool of nodes and workflows that name none.
	DefaultPool = "default"
	// DefaultSweep is how often open runs are looked through.
	DefaultSweep = 30 * time.Second
)

// RelayOptions say what a relay works with; nil means the defaults.
type RelayOptions struct {
	// Incarnation is this process: it lives.
	Incarnation string
	// Alive reports whether another incarnation lives; nil asks it.
	Alive func(incarnation string) bool
	// Pool says which pool offers a workflow; nil is DefaultPool for all.
	Pool func(workflow string) string
	// Sweep is how often the open runs are looked through after the pass at
	// the start; zero means DefaultSweep.
	Sweep time.Duration
	// Swept, if set, is told of each pass: how many runs of a partition are
	// open and how many of them were offered.
	Swept func(partition uint32, open, offered int)
}

func (o *RelayOptions) complete() RelayOptions {
	var r RelayOptions
	if o != nil {
		r = *o
	}
	if r.Pool == nil {
		r.Pool = func(string) string { return DefaultPool }
	}
	if r.Sweep <= 0 {
		r.Sweep = DefaultSweep
	}
	return r
}

// Relay passes on what follows from the commits of one event stream, until
// ctx ends. Two pumps do so independently of each other:
//
// One offers runs to the nodes (stream WORK), delivers signals between
// sessions and publishes results (stream RESULT). At its start, and now and
// then after that, it offers the open runs again that nobody executes: those
// that were queued and those whose holder does not answer. Offering a run
// twice is harmless.
//
// The other publishes lineage records (stream LINEAGE), each exactly once and
// in the order of the stream, and tells them to who watches their run.
//
// Both go on after a restart where they were. One relay per partition suffices;
// two do no harm but repeat records, which readers recognise.
//
// Relay returns nil when ctx has ended and both pumps have; another error is
// one that does not pass, such as a missing stream.
func (c *Conn) Relay(ctx context.Context, generation, partition uint32, o *RelayOptions) error {
	opts := o.complete()
	out := &outbox{c: c, o: opts, generation: generation, partition: partition, stream: EventStream(generation, partition)}
	told := &lineageRelay{c: c, generation: generation, partition: partition, stream: EventStream(generation, partition)}
	return together(ctx, c.again("outbox", out.stream, out.run), c.again("lineage", told.stream, told.run))
}

// again returns a pump that starts over when it fails, unless its stream is
// not there when it starts for the first time.
func (c *Conn) again(name, stream string, pump func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := c.lastSequence(ctx, stream); errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		for wait := newBackoff(); ; {
			began := time.Now()
			err := pump(ctx)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			c.o.Logger.Error("a relay pump failed and starts over", "pump", name, "stream", stream, "err", err)
			if time.Since(began) > time.Minute {
				wait = newBackoff()
			}
			if err := wait.sleep(ctx); err != nil {
				return err
			}
		}
	}
}

// RelayAll is Relay for every partition of the connection's generation.
func (c *Conn) RelayAll(ctx context.Context, o *RelayOptions) error {
	var relays []func(context.Context) error
	for p := range c.o.Partitions {
		relays = append(relays, func(ctx context.Context) error { return c.Relay(ctx, c.o.Generation, p, o) })
	}
	return together(ctx, relays...)
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
		return fmt.Errorf("natsbus: relay: %w", err)
	}
	return nil
}
