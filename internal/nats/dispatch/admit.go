package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Admit returns nil if a new run of a session may begin, and the reason otherwise.
func (c *Dispatch) Admit(ctx context.Context, k session.Key) error {
	stream, _, err := c.logs.Place(k)
	if err != nil {
		return err
	}
	return c.streams.Capacity.Admit(ctx, stream, k.Tenant)
}

// admit returns nil if a task that no log holds may begin, and the reason otherwise. The
// intake calls it before it stores anything for the task. A rejected task waits in its
// stream: JetStream has acknowledged it. The stream of tasks answers busy once too many
// wait. A task whose deadline passes meanwhile is refused.
func (i *intake) admit(ctx context.Context, t journal.Task, home session.ID) error {
	err := i.c.Admit(ctx, session.Key{Tenant: t.Session.Tenant, ID: home})
	if errors.Is(err, streams.ErrNoRoom) && !t.Deadline.IsZero() && !time.Now().Before(t.Deadline) {
		return fmt.Errorf("task %s: %w before there was room for it: %s", t.ID, run.ErrDeadline, err.Error())
	}
	return err
}

// admitAgain does that for a task that has its session from an earlier delivery,
// which may have got it into the log.
func (i *intake) admitAgain(ctx context.Context, t journal.Task) error {
	refused := i.admit(ctx, t, t.Session.ID)
	if !errors.Is(refused, streams.ErrNoRoom) && !errors.Is(refused, run.ErrDeadline) {
		return refused
	}
	_, err := i.c.logs.Log().Last(ctx, t.Session)
	switch {
	case errors.Is(err, session.ErrNotFound):
		return refused
	case errors.Is(err, session.ErrArchived):
		return nil // the node that claims it reports that
	}
	return err
}

// publishHeld notifies the clients that watch a run that its task waits, at its 1st, 2nd,
// 4th delivery and so on. A client that misses the message queries the run.
func (i *intake) publishHeld(l *incomingTask, cause error) {
	meta, err := l.msg.Metadata()
	if err != nil || meta.NumDelivered&(meta.NumDelivered-1) != 0 {
		return
	}
	ev := translate.TaskHeld(l.tenant, l.id, l.workflow, *wire.ErrorOf(cause))
	ev.Time = time.Now().UnixMilli()
	data, err := messages.Encode(ev)
	if err == nil {
		err = i.c.conn.NC.Publish(messages.RunSubject(l.tenant, l.id, messages.OnEvent), data)
	}
	if err != nil {
		i.c.conn.Logger.Debug("a notification about a waiting task was not sent", "run", string(l.id), "err", err)
	}
}
