package natsbus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// signalsAtOnce bounds the signals that a node applies at the same time. They
// need no slot: a cancel makes one free.
const signalsAtOnce = 64

// offerPatience bounds the storing of one offer; a sweep repeats it.
const offerPatience = 30 * time.Second

// PublishWork offers a run to the nodes of a pool, in a class, or a signal to
// any node: its pool and class are not used.
func (c *Conn) PublishWork(ctx context.Context, pool, class string, w run.Work) error {
	w.Woken = false // that is a question to one node
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

// The ranks of the queues that share the slots of a node: derived work goes
// before tasks.
const (
	rankInteractive = iota
	rankBatch
	rankTasks
)

// PullWork takes work for a pool until ctx ends: runs to take up, as many at
// once as slots returns and those of interactive workflows first, and signals.
// accept returns when a log holds what was asked for. An error that says that
// nobody ever can drops the work; with any other one it comes again after a
// while.
func (c *Conn) PullWork(ctx context.Context, pool string, slots func() int, accept func(ctx context.Context, w run.Work) error) error {
	if err := validPool(pool); err != nil {
		return err
	}
	handle := func(ctx context.Context, m jsMsg) fate { return c.handleWork(ctx, m, accept) }
	of := func(class string) *puller {
		return &puller{
			c: c, pullQueue: workQueue(pool, class),
			slots: slots, handle: handle, lobby: c.lobby,
		}
	}
	first, batch := of(messages.ClassInteractive), of(messages.ClassBatch)
	first.rank, batch.rank, batch.behind = rankInteractive, rankBatch, first
	spare := func() bool { return !first.crowded() && !batch.crowded() }
	c.spare.Store(&spare)
	defer c.spare.CompareAndSwap(&spare, nil)
	signals := &puller{
		c: c, pullQueue: signalsQueue(),
		slots: func() int { return signalsAtOnce }, handle: handle,
	}
	return together(ctx, first.run, batch.run, signals.run)
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
	case errors.Is(err, run.ErrNotSupported) && w.Task != nil && c.over(ctx, w.Task):
		c.o.Logger.Info("work has come too late", "subject", m.Subject(), "err", err)
		return done
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

// over reports whether a run is known to have ended, as when it was cancelled, or
// another pool offers its workflow now.
func (c *Conn) over(ctx context.Context, t *run.Task) bool {
	told, err := c.told(ctx, t.Session.Tenant, t.ID)
	return told && err == nil
}
