package engine

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// follow receives the events that others append to the run's log from a position on,
// until it is stopped. An event that ends the run calls end.
func (s *signals) follow(at commitlog.Position, end context.CancelCauseFunc) (stop func()) {
	return s.ex.rt.Store.Follow(s.ex.home, at, func(e *commitlog.Entry) {
		if why := s.receiveEvents(e.Commit.Events); why != nil {
			end(why)
		}
	})
}

// receiveEvents receives events for the run, and returns the reason if the run has to
// stop.
func (s *signals) receiveEvents(events []session.Event) error {
	for i := range events {
		switch events[i].Kind {
		case journal.KindSignalReceived, journal.KindQuarantined, journal.KindRebudgeted, journal.KindCancel, journal.KindSettled:
			if why := s.receiveEvent(events[i]); why != nil {
				return why
			}
		}
	}
	return nil
}

func (s *signals) receiveEvent(e session.Event) error {
	ex := s.ex
	switch e.Kind {
	case journal.KindSignalReceived:
		if v, err := journal.Decode[journal.SignalReceived](e); err == nil && v.Run == ex.id {
			s.receive(v)
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
	case journal.KindSettled:
		if v, err := journal.Decode[journal.Settled](e); err == nil && v.Run == ex.id && v.N == 0 {
			ex.mu.Lock()
			ex.account.branches.Revise(v.Part)
			ex.account.hold()
			ex.mu.Unlock()
		}
	case journal.KindCancel:
		if v, err := journal.Decode[journal.CancelRequested](e); err == nil && v.Run == ex.id {
			if v.Force {
				ex.mu.Lock()
				ex.life.hurry()
				ex.mu.Unlock()
			}
			return fmt.Errorf("%w: %s", run.ErrCancelled, v.Reason)
		}
	}
	return nil
}
