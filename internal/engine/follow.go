package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The pauses after which an execution follows its log again that it lost.
const (
	followPause     = 100 * time.Millisecond
	followPauseMost = 5 * time.Second
)

// follow takes in what others append to the run's log from a position on, until ctx
// ends or an event stops the run. A step may take hours, so it follows again after
// each error of the log.
func (ex *Execution) follow(ctx context.Context, at session.Position, stop context.CancelCauseFunc) {
	for pause := followPause; ; pause = min(2*pause, followPauseMost) {
		for e, err := range ex.rt.Store.Follow(ctx, ex.home, at) {
			if err != nil {
				break // if it lasts, the next commit fails
			}
			at, pause = e.At, followPause
			if why := ex.receiveEvents(e.Commit.Events); why != nil {
				stop(why)
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// receiveEvents takes in events for the run, and returns why it is to stop.
func (ex *Execution) receiveEvents(events []session.Event) error {
	for i := range events {
		switch events[i].Kind {
		case journal.KindSignalReceived, journal.KindQuarantined, journal.KindRebudgeted, journal.KindCancel:
			// Apart from the loop, which waits on a small stack for all of the run.
			if why := ex.receiveEvent(events[i]); why != nil {
				return why
			}
		}
	}
	return nil
}

func (ex *Execution) receiveEvent(e session.Event) error {
	switch e.Kind {
	case journal.KindSignalReceived:
		if v, err := journal.Decode[journal.SignalReceived](e); err == nil && v.Run == ex.id {
			ex.receive(v)
		}
	case journal.KindQuarantined:
		if v, err := journal.Decode[journal.Quarantined](e); err == nil && !v.Released {
			ex.Park()
		}
	case journal.KindRebudgeted:
		if v, err := journal.Decode[journal.Rebudgeted](e); err == nil && v.Run == ex.id {
			ex.mu.Lock()
			ex.account.Limit, ex.granted.Record.Task.Budget = v.Budget, v.Budget
			ex.life.setDeadline(ex.rt.Clock, ex.granted.Record.Deadline())
			ex.mu.Unlock()
		}
	case journal.KindCancel:
		if v, err := journal.Decode[journal.CancelRequested](e); err == nil && v.Run == ex.id {
			return fmt.Errorf("%w: %s", run.ErrCancelled, v.Reason)
		}
	}
	return nil
}
