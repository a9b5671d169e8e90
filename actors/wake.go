package actors

import (
	"context"
	"fmt"
	"time"

	"github.com/rathcluster/rath/run"
)

// wakeFor bounds how long a woken run keeps its slot while it is found out who
// holds its session. A claim that was begun goes on after that.
const wakeFor = 10 * time.Second

// wake takes a woken run, if a slot is free for it now.
func (s *System) wake(ctx context.Context, t run.Task) (Answer, error) {
	if err := t.Valid(); err != nil {
		return "", fmt.Errorf("%w: %w", run.ErrMalformed, err)
	}
	if s.engine == nil || !s.engine.offers(t.Workflow) || s.elsewhereOffered(ctx, t) != nil {
		return NotMine, nil
	}
	k := keyOf(t)
	if err := s.executions.enter(k); err != nil {
		return "", err
	}
	defer s.executions.leave(k)
	release, ok := s.executions.now()
	if !ok {
		return "", fmt.Errorf("%w: all %d slots are taken", run.ErrBusy, cap(s.executions.slots))
	}
	s.drain.begins.Add(1)
	s.work.run(func() {
		defer s.drain.begins.Done()
		s.woken(context.WithoutCancel(ctx), t, release)
	})
	return Taken, nil
}

// woken gets a run that was taken to a claim, by the way of every other one, or
// offers it to the others.
func (s *System) woken(ctx context.Context, t run.Task, release func()) {
	settling, cancel := context.WithTimeout(ctx, wakeFor)
	defer cancel()
	_, err := s.settle(settling, t.Session, run.Work{Task: &t}, func() (Answer, error) {
		slot := release
		release = nil // it is begin's now
		return s.begin(settling, t, slot)
	})
	if release != nil {
		release()
	}
	if err == nil {
		return
	}
	l := s.log.With("run", string(t.ID), "session", t.Session.String())
	l.Info("a run that was taken up here could not be claimed; it is offered to others", "err", err)
	if s.o.Offer == nil {
		return
	}
	if err := s.o.Offer(ctx, t); err != nil {
		l.Warn("a run was not offered; the next sweep does", "err", err)
	}
}
