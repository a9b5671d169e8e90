package natsbus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// SignalConsumer is the consumer of WORK that all nodes share for signals.
const SignalConsumer = "work-signals"

// signalsAtOnce bounds the signals that a node applies at the same time. They
// need no slot: a cancel makes one free.
const signalsAtOnce = 64

// WorkConsumer is the consumer of WORK that the nodes of a pool share for a
// class of workflows. What is pending there, delivered or not, is what the
// pool has still to begin.
func WorkConsumer(pool, class string) string { return "work-" + pool + "-" + class }

// offerPatience bounds the storing of one offer; a sweep repeats it.
const offerPatience = 30 * time.Second

// PublishWork offers a run to the nodes of a pool, in a class, or a signal to
// any node: its pool and class are not used.
func (c *Conn) PublishWork(ctx context.Context, pool, class string, w run.Work) error {
	body := messages.WorkOf(w)
	data, err := body.Encode()
	if err != nil {
		return err
	}
	k := session.Key{Tenant: body.Tenant, ID: body.Session}
	subject := messages.WorkSubject(pool, class, k)
	if w.Signal != nil {
		subject = messages.SignalSubject(k)
	}
	patient, cancel := context.WithTimeout(ctx, offerPatience)
	defer cancel()
	for wait := newBackoff(); ; {
		if _, err = c.publish(patient, &nats.Msg{Subject: subject, Data: data}); err == nil {
			return nil
		}
		if wait.sleep(patient) != nil {
			return fmt.Errorf("natsbus: store work for run %s on %s: %w", body.Run, subject, err)
		}
	}
}

// PullWork takes work for a pool until ctx ends: runs to take up, as many at
// once as slots returns and those of interactive workflows first, and signals.
// accept returns when a log holds what was asked for. An error that says that
// nobody ever can drops the work; with any other one it comes again after a
// while.
func (c *Conn) PullWork(ctx context.Context, pool string, slots func() int, accept func(ctx context.Context, w run.Work) error) error {
	if err := validPool(pool); err != nil {
		return err
	}
	if err := c.retireConsumer(ctx, "work-"+pool, prefixWork+pool+".>"); err != nil {
		return err
	}
	handle := func(ctx context.Context, m jsMsg) fate { return c.handleWork(ctx, m, accept) }
	of := func(class string) *puller {
		return &puller{
			c: c, stream: StreamWork, durable: WorkConsumer(pool, class), filter: prefixWork + pool + "." + class + ".>",
			slots: slots, handle: handle, lobby: newLobby(len(prefixWork + pool + "." + class + ".")),
		}
	}
	first, batch := of(messages.ClassInteractive), of(messages.ClassBatch)
	batch.behind = first
	signals := &puller{
		c: c, stream: StreamWork, durable: SignalConsumer, filter: prefixWork + messages.SignalPool + ".>",
		slots: func() int { return signalsAtOnce }, handle: handle,
	}
	return together(ctx, first.run, batch.run, signals.run)
}

// retireConsumer removes the consumer of a pool without classes, as former
// builds made it: the server takes no two with the same messages. Another
// pool's consumer may have its name.
func (c *Conn) retireConsumer(ctx context.Context, durable, filter string) error {
	_, err := patiently(ctx, func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		old, err := c.js.Consumer(ctx, StreamWork, durable)
		if err == nil && old.CachedInfo().Config.FilterSubject == filter {
			err = c.js.DeleteConsumer(ctx, StreamWork, durable)
		}
		return struct{}{}, err
	})
	switch {
	case err == nil, errors.Is(err, jetstream.ErrConsumerNotFound), ctx.Err() != nil:
		return nil
	}
	return fmt.Errorf("natsbus: pull from stream %s: %w", StreamWork, streamError(err))
}

func (c *Conn) handleWork(ctx context.Context, m jsMsg, accept func(ctx context.Context, w run.Work) error) fate {
	w, err := messages.DecodeWork(m.Data())
	if err == nil {
		err = accept(ctx, w)
	}
	switch {
	case err == nil:
		return done
	case errors.Is(err, run.ErrShutdown), errors.Is(err, run.ErrBusy) && w.Task != nil:
		return other
	case errors.Is(err, run.ErrNotSupported):
		// Not offered here any more; perhaps it is again some time.
		c.o.Logger.Warn("a run waits for a node that offers its workflow", "subject", m.Subject(), "err", err)
		return later
	case messages.Refusal(err):
		c.o.Logger.Info("work has come too late", "subject", m.Subject(), "err", err)
		return done
	}
	c.o.Logger.Warn("work was not accepted and comes again", "subject", m.Subject(), "err", err)
	return later
}
