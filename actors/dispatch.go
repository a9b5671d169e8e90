package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/run"
)

// dispatchTimeout bounds how long a dispatched run keeps its slot while it is
// found out which incarnation holds its session. A claim that was begun goes on
// after that.
const dispatchTimeout = 10 * time.Second

// Dispatched takes a run that a relay sends to this node, if a slot is free for
// it now, and returns when a log says how it stands: Committed, also for a run
// that executes elsewhere or is over, or Queued behind the run that holds its
// session. NotMine: this node does not offer the workflow, or not in the
// revision that the run needs. run.ErrBusy: no slot is free. run.ErrShutdown:
// the System drains. After any other error the run may be claimed here all the
// same, or be claimed soon; dispatching it again is harmless.
func (s *System) Dispatched(ctx context.Context, t journal.Task) (Answer, error) {
	if err := t.Valid(); err != nil {
		return "", fmt.Errorf("%w: %w", run.ErrMalformed, err)
	}
	if s.executor == nil || !s.executor.offers(t.Workflow) || s.needsOtherRevision(ctx, t) != nil {
		return NotMine, nil
	}
	k := keyOf(t)
	if err := s.executions.enter(k); err != nil {
		return "", err
	}
	defer s.executions.leave(k)
	release, ok := s.executions.take()
	if !ok {
		return "", fmt.Errorf("%w: all %d slots are taken", run.ErrBusy, cap(s.executions.slots))
	}
	s.drain.begins.Add(1)
	defer s.drain.begins.Done()
	ctx, cancel := context.WithTimeout(ctx, dispatchTimeout)
	defer cancel()
	if t.Branch != nil && !t.Resume {
		if err := s.presume(ctx, t.Session); err != nil {
			release()
			return "", err
		}
	}
	a, err := s.settle(ctx, t.Session, journal.Work{Task: &t}, func() (Answer, error) {
		slot := release
		release = nil // it is begin's now
		return s.begin(ctx, t, slot)
	})
	if release != nil {
		release()
	}
	switch {
	case errors.Is(err, run.ErrSuperseded): // the relay's knowledge is old
		return Committed, nil
	case errors.Is(err, run.ErrNotSupported):
		return NotMine, nil
	case errors.Is(err, errDoubt): // no relay dispatches it if it is
		s.work.run(func() { s.reclaim(t) })
	}
	return a, err
}
