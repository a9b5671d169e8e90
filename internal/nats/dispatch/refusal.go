package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// refused finishes a task that was refused before and is delivered again, if the intake
// that refused it got no further than the alias: the result is stored last.
func (i *intake) refused(ctx context.Context, l *incomingTask, code run.Code) error {
	if ended, err := i.hasEnded(ctx, l); ended || err != nil {
		return err
	}
	return i.deadLetter(ctx, l, code.Err(fmt.Sprintf("task %s was rejected before; submit it under another id", l.id)))
}

// cancelledMeanwhile applies a cancel that came too early for the log. Once a session is
// chosen for a task, only the session's log decides the run's outcome, because another
// delivery of the task may be on its way there. If this delivery took longer than the
// client waits, as on a frozen node, the alias may mark the task as refused. Then the run
// is cancelled, so that no run continues after its client was notified of a refusal.
func (i *intake) cancelledMeanwhile(ctx context.Context, subject string, t journal.Task) error {
	have, _, err := eventlog.ReadAlias(ctx, i.c.logs, subject)
	if err == nil && have.Cancelled == nil && have.Refused != "" {
		have.Cancelled = &journal.CancelRequested{Run: t.ID, ID: "refused", Reason: "its task was rejected before it reached a log"}
	}
	if err != nil || have.Cancelled == nil || i.Signal == nil {
		return err
	}
	err = i.Signal(ctx, journal.Signal{To: t.Session, Run: t.ID, Cancel: have.Cancelled})
	if errors.Is(err, run.ErrState) {
		return nil // it has ended
	}
	return err
}

// refuse makes a dead letter of a task that no node will ever run.
func (i *intake) refuse(ctx context.Context, l *incomingTask, cause error) error {
	if l.id != "" && l.tenant != "" && !errors.Is(cause, run.ErrKeyReused) {
		subject := eventlog.RunAliasSubject(l.tenant, l.id)
		a := translate.Alias{Digest: l.digest, Refused: run.CodeOf(cause)}
		have, revision, _, err := eventlog.CreateAlias(ctx, i.c.logs, subject, a)
		if err != nil {
			return err
		}
		if have.Task() != l.digest {
			// Another task has the id. A reused id outranks every other reason for the
			// refusal.
			cause = fmt.Errorf("task %s: %w, and: %s", l.id, run.ErrKeyReused, cause.Error())
		} else if have.Session != "" {
			// If a log holds the task, only that log decides the run's outcome, even if the
			// cause was found before that log was read, or is the state of the run itself.
			if held, err := i.held(ctx, l, have.Session); held || err != nil {
				return err
			}
		}
		// The cause may pass, and the task may be delivered again: that must not begin
		// a run whose client was answered that it was refused.
		for have.Task() == l.digest && have.Refused == "" {
			have.Refused = a.Refused
			if have, revision, _, err = eventlog.PutAlias(ctx, i.c.logs, subject, revision, have); err != nil {
				return err
			}
		}
	}
	return i.deadLetter(ctx, l, cause)
}

// deadLetter stores a refused task in the stream DLQ, and publishes the reason.
func (i *intake) deadLetter(ctx context.Context, l *incomingTask, cause error) error {
	now := time.Now()
	if err := i.storeDeadLetter(ctx, l, cause, now); err != nil {
		return err
	}
	if err := i.tellStarter(ctx, l, rejection(l.id, cause)); err != nil {
		return err
	}
	return i.publishRefused(ctx, l, cause, now)
}

// tellStarter brings the outcome of a task that no log will hold to the run that started
// it, if one did.
func (i *intake) tellStarter(ctx context.Context, l *incomingTask, e journal.RunEnd) error {
	s := l.task.Rejected(e)
	if s == nil || i.Signal == nil {
		return nil
	}
	if err := i.Signal(ctx, *s); err != nil && !messages.Refusal(err) {
		return fmt.Errorf("nats/dispatch: tell run %s about run %s: %w", s.Run, l.id, err)
	}
	return nil
}

// rejection is the outcome of a started run whose task is rejected.
func rejection(id run.ID, cause error) journal.RunEnd {
	e := wire.ErrorOf(cause)
	return journal.RunEnd{Run: id, State: run.Failed, Code: e.Code, Error: e.Text}
}

func (i *intake) publishRefused(ctx context.Context, l *incomingTask, cause error, now time.Time) error {
	e := *wire.ErrorOf(cause)
	i.c.conn.Logger.Info("a task was rejected", "subject", l.msg.Subject(), "run", string(l.id), "code", string(e.Code), "reason", e.Text)
	if l.id == "" || l.tenant == "" {
		return nil
	}
	ev := translate.Refused(l.tenant, l.id, l.workflow, e)
	ev.Time = now.UnixMilli()
	data, err := messages.Encode(ev)
	if err == nil {
		// The task may be acknowledged over another connection, and is not redelivered
		// then.
		err = i.c.conn.Tell(ctx, messages.RunSubject(l.tenant, l.id, messages.OnEvent), data)
	}
	if err != nil || e.Code == run.CodeKeyReused {
		return err
	}
	if ended, err := i.hasEnded(ctx, l); ended || err != nil {
		return err
	}
	return i.c.projections.PutResult(ctx, l.tenant, translate.RefusedResult(l.id, l.workflow, e, now), true)
}

// placing is how long a delivery of a task that chose a session may still bring the task
// there.
const placing = time.Minute

// held reports whether the log of a task's chosen session holds the task. It fails while
// another delivery may be bringing the task there, unless the task is refused because of
// its session or its body.
func (i *intake) held(ctx context.Context, l *incomingTask, home session.ID) (bool, error) {
	has, err := i.has(ctx, l, home)
	if errors.Is(err, session.ErrArchived) {
		has, err = i.endedIn(ctx, l)
	}
	if has || err != nil || l.placed {
		return has, err
	}
	meta, err := l.msg.Metadata()
	if err == nil && time.Since(meta.Timestamp) < placing {
		err = fmt.Errorf("nats/dispatch: task %s: session %s was chosen for it, whose log does not hold it yet", l.id, home)
	}
	return false, err
}

// has reports whether the log of a session holds the task.
func (i *intake) has(ctx context.Context, l *incomingTask, home session.ID) (bool, error) {
	for e, err := range i.c.logs.Log().Read(ctx, session.Key{Tenant: l.tenant, ID: home}, commitlog.Position{}) {
		if err != nil {
			return false, err
		}
		for _, f := range journal.Facts(e.Commit) {
			if _, ok := f.What.(journal.Submitted); ok && f.Run == l.id {
				return true, nil
			}
		}
	}
	return false, nil
}

// storeDeadLetter stores the task in the stream DLQ, unless another delivery of it did.
func (i *intake) storeDeadLetter(ctx context.Context, l *incomingTask, cause error, now time.Time) error {
	meta, err := l.msg.Metadata()
	if err != nil {
		return fmt.Errorf("nats/dispatch: store dead letter: %w", err)
	}
	data, err := messages.Encode(messages.NewDeadLetter(l.msg.Subject(), l.id, l.msg.Data(), cause, now))
	if err != nil {
		return err
	}
	subject := messages.DeadLetterSubject(l.tenant, l.workflow, meta.Sequence.Stream, meta.Timestamp)
	_, mine, err := i.c.messages.PutAfter(ctx, streams.StreamDLQ, subject, 0, data)
	if err != nil {
		return fmt.Errorf("nats/dispatch: store dead letter: %w", err)
	}
	if mine {
		i.c.deadLetters.Add(1)
	}
	return nil
}

// PutCancelled stores and publishes the result of a run that was cancelled before a log
// held it. The node that handles the cancel and the node that ingests the task both call
// it. A client may receive both results, so both have the bytes that follow from the alias.
func (c *Dispatch) PutCancelled(ctx context.Context, tenant session.Tenant, id run.ID) error {
	subject := eventlog.RunAliasSubject(tenant, id)
	m, err := c.messages.LeaderLast(ctx, "KV_"+streams.BucketAlias, subject)
	var note translate.Alias
	if err == nil {
		err = json.Unmarshal(m.Data, &note)
	}
	if err == nil && note.Cancelled == nil {
		err = conn.ErrNoMessage
	}
	if err != nil {
		return fmt.Errorf("nats/dispatch: read %s: %w", subject, err)
	}
	reason := note.Cancelled.Reason
	if reason == "" {
		reason = NoteEarly
	}
	r := translate.RefusedResult(id, "", wire.Error{Code: run.CodeCancelled, Text: reason}, m.Time)
	r.State = run.Cancelled
	return c.projections.PutResult(ctx, tenant, r, true)
}

const (
	NoteEarly  = "cancelled before a session held the run"
	NoteUnborn = "no task of this id was taken yet; one that waits or comes ends as cancelled"
)
