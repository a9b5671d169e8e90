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

// execute starts the workflow actor of a claimed run. ctx never ends and carries the
// values of tracing.
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
	panic string // "" if it returned
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
			m.panic = fmt.Sprintf("panic: %v", v)
			m.err = fmt.Errorf("actors: run %s: execution panicked: %v", w.ex.Task().ID, v)
			w.sys.log.Error("an execution panicked", "run", string(w.ex.Task().ID), "panic", v, "stack", string(debug.Stack()))
		}
		w.sys.protoactor.Root.Send(w.self, m)
	}()
	m.state, m.err = w.ex.Forward(w.ctx)
}

// ended gives the slot back. A run that the log still holds as running, though its
// execution has ended, is reclaimed: the log was absent, or this activation lost the
// session and another one has the run now.
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
	again := *t
	if m.panic != "" { // counts as the death of a node, which ends the repetition
		again.Suspect = &journal.Suspect{Death: m.panic}
	}
	w.sys.work.Run(func() { w.sys.reclaim(again) })
}

const (
	// The pauses between repeated offers of a run to this System grow from reclaimPause
	// to reclaimMost.
	reclaimPause = 250 * time.Millisecond
	reclaimMost  = 10 * time.Second
)

// reclaim offers a run that this System has claimed, or may have claimed, to itself
// until a log holds the outcome or a drain begins. No relay offers it as long as this
// incarnation lives. So a rejection ends nothing: its cause, such as an absent or full
// log, may last for hours. The run continues under its code here even if another node
// offers its revision by now.
func (s *System) reclaim(t journal.Task) {
	t.Resume, t.Seen = true, nil // the log has moved on since a relay saw the run
	for pause := reclaimPause; s.executions.reclaim(keyOf(t)); pause = min(2*pause, reclaimMost) {
		select {
		case <-time.After(pause):
		case <-s.drain.begun:
			return // another node gets it after this one has ended
		}
		s.executions.reclaimed(keyOf(t)) // this node may reclaim it again before accept returns
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
