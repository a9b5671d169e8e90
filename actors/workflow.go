package actors

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
)

// execute starts the workflow actor of a claimed run. ctx, which never ends,
// brings what tracing put into it.
func (s *System) execute(ctx context.Context, ex execution, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &workflowActor{sys: s, ex: ex, slot: s.executions.start(keyOf(*ex.Task()), ex, release), ctx: ctx, cancel: cancel}
	s.protoactor.Root.Send(s.top, &launch{w})
}

// workflowActor executes one attempt of a run and ends with it. Forward runs
// in a goroutine of its own, so that the actor can be stopped.
type workflowActor struct {
	sys    *System
	ex     execution
	slot   *slot
	ctx    context.Context
	cancel context.CancelCauseFunc
	self   *actor.PID
}

// forwarded reports that Forward returned.
type forwarded struct {
	state run.State
	err   error
}

// Receive implements protoactor's Actor.
func (w *workflowActor) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		w.self = c.Self()
		w.sys.work.Run(w.forward)
	case *park:
		w.ex.Park()
	case *halt:
		w.cancel(m.cause)
	case *forwarded:
		w.ended(m)
		c.Stop(w.self)
	case *actor.Stopping:
		w.cancel(run.ErrShutdown)
	}
}

func (w *workflowActor) forward() {
	m := &forwarded{state: run.Running}
	defer func() {
		if v := recover(); v != nil {
			m.err = fmt.Errorf("actors: run %s: execution panicked: %v", w.ex.Task().ID, v)
			w.sys.log.Error("an execution panicked", "run", string(w.ex.Task().ID), "panic", v, "stack", string(debug.Stack()))
		}
		w.sys.protoactor.Root.Send(w.self, m)
	}()
	m.state, m.err = w.ex.Forward(w.ctx)
}

// ended gives the slot back. A run that the log still holds as running, though
// its execution is over, is taken up again: the log was away, or this
// activation lost the session and another one has the run now.
func (w *workflowActor) ended(m *forwarded) {
	w.cancel(nil)
	w.sys.executions.end(w.slot)
	t := w.ex.Task()
	l := w.sys.log.With("run", string(t.ID), "session", t.Session.String(), "workflow", t.Workflow)
	if m.state != run.Running {
		l.Debug("execution ended", "state", string(m.state), "err", m.err)
		return
	}
	l.Warn("execution stopped before its run's end", "err", m.err)
	w.sys.work.Run(func() { w.sys.reclaim(*t) })
}

const (
	// The pauses between the times that a run is offered to this System again
	// grow from reclaimPause to reclaimMost.
	reclaimPause = 250 * time.Millisecond
	reclaimMost  = 10 * time.Second
)

// reclaim offers a run to this System that it has claimed, or may have, until a log
// says how it stands or a drain begins. No relay offers it as long as this
// incarnation lives. So a refusal ends nothing: what causes it, such as a log that is
// away or full, may last for hours. And the run goes on under the code that had it, also
// if another node offers its revision by now.
func (s *System) reclaim(t journal.Task) {
	t.Resume, t.Seen = true, nil // the log has moved on since a relay saw the run
	for pause := reclaimPause; s.executions.reclaim(keyOf(t)); pause = min(2*pause, reclaimMost) {
		select {
		case <-time.After(pause):
		case <-s.drain.begun:
			return // another node gets it once this one is gone
		}
		s.executions.reclaimed(keyOf(t)) // it may end here again before accept returns
		a, err := s.accept(context.Background(), t)
		if a == journal.AnswerCrowded {
			continue
		}
		if err == nil || errors.Is(err, run.ErrShutdown) || errors.Is(err, run.ErrUnknownRun) {
			return
		}
		s.log.Warn("a run could not be taken up again", "run", string(t.ID), "session", t.Session.String(), "err", err)
	}
}
