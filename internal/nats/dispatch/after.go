package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/run"
)

const (
	// firstLook is how long the intake of a task waits for the runs that it names, whose
	// tasks other goroutines may be taking, and lookAgain the pause between two looks. Later
	// it looks at each delivery.
	firstLook = 2 * time.Second
	lookAgain = 25 * time.Millisecond
)

// findPredecessors finds the homes of the runs that must have ended before a task's. It
// fails for a run whose task was rejected, or that is not known after the tasks which were
// published before. As each one is accepted before the task, runs cannot wait for each other
// in a circle.
func (i *intake) findPredecessors(ctx context.Context, l *incomingTask, after []journal.Predecessor) error {
	until := time.Now()
	if !l.again() { // many tasks that name unknown runs take no more of the intake
		until = until.Add(firstLook)
	}
	for n := range after {
		for after[n].Session == "" {
			err := i.findPredecessor(ctx, l, &after[n])
			if again := errors.Is(err, errUnderWay); err != nil && (!again || time.Now().After(until)) {
				return err
			} else if again {
				conn.Pause(ctx, lookAgain)
			}
		}
	}
	return nil
}

// errUnderWay is returned for a run whose task may be on its way.
var errUnderWay = errors.New("nats/dispatch: a run that the task names is not known yet")

func (i *intake) findPredecessor(ctx context.Context, l *incomingTask, p *journal.Predecessor) error {
	meta, err := l.msg.Metadata()
	if err != nil {
		return err
	}
	// The stream is read first: a task that it has no more is in the aliases.
	before, err := i.c.messages.Holds(ctx, streams.StreamTasks, 1, meta.Sequence.Stream-1)
	if err != nil {
		return err
	}
	have, _, err := eventlog.ReadAlias(ctx, i.c.logs, eventlog.RunAliasSubject(l.tenant, p.Run))
	// A run that starts two others may have published them in any order.
	before = before || l.task.StartedBy != nil && time.Since(meta.Timestamp) < placing
	switch {
	case err != nil:
		return err
	case have.Refused != "":
		return fmt.Errorf("task %s: field after: the task of run %s was rejected (%s) and never begins: %w; submit that one again under another id, and name it",
			l.id, p.Run, have.Refused, run.ErrState)
	case have.Session != "":
		p.Session = have.Session
		return nil
	case have.Task() == "" && before:
		return fmt.Errorf("%w: run %s", errUnderWay, p.Run)
	}
	return fmt.Errorf("task %s: field after: %s: %w; submit that run first, or leave it out", l.id, p.Run, run.ErrUnknownRun)
}

// answerInstead answers a request about the end of a run whose log cannot answer, because it
// is archived, with the run's result. Without a result the request is sent again, because the
// task may be on its way to the log, unless a prune removed it.
func (d *dispatcher) answerInstead(ctx context.Context, s journal.Signal) schedule.Outcome {
	r, err := d.c.projections.Result(ctx, s.To.Tenant, s.Run)
	e := journal.RunEnd{Run: s.Run, Session: s.To.ID, State: r.State, Code: r.Code}
	switch {
	case errors.Is(err, run.ErrPruned):
		e.State, e.Code = run.Failed, run.CodePruned
	case err != nil:
		d.c.conn.Logger.Debug("a run whose end another one awaits has no result yet", "run", string(s.Run), "by", string(s.Awaited.By), "err", err)
		return schedule.Outcome{}
	}
	return d.signal(ctx, *s.Awaited.Answer(s.To.Tenant, e))
}
