package actors

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rathcluster/rath/session"
)

// supervisor is the parent of all session and workflow actors, and the only authority
// on the actor of a session. System.held is a copy of its map, so that a request to an
// active session bypasses the supervisor.
type supervisor struct {
	sys      *System
	sessions map[session.Key]*child
	keys     map[string]session.Key // by the actor's id
	flows    map[string]*actor.PID
	parked   *park // executions are parked, also those that start later
	halted   *halt // executions are cut off, also those that start later
	stopping bool
	props    *actor.Props // of all children: they make next
	next     actor.Actor
}

// spawn starts a child. Props of its own would take more memory than a small actor.
func (s *supervisor) spawn(c actor.Context, a actor.Actor) *actor.PID {
	s.next = a
	defer func() { s.next = nil }()
	return c.Spawn(s.props)
}

type child struct {
	box *mailbox
	pid *actor.PID
}

// activate asks for the actor of a session; reply gets nil if no more actors are
// started. A new actor presumes that the log is empty if unborn is true.
type activate struct {
	signal
	key    session.Key
	unborn bool
	reply  chan *mailbox
}

// launch starts the workflow actor of an execution.
type launch struct{ w *workflowActor }

// park lets all executions end their steps and begin no other.
type park struct{ signal }

// halt cuts all executions off.
type halt struct {
	signal
	cause error
}

// Receive implements protoactor's Actor.
func (s *supervisor) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *activate:
		if s.stopping {
			m.reply <- nil
			return
		}
		m.reply <- s.session(c, m.key, m.unborn)
	case *ping:
		m.reply <- struct{}{}
	case *launch:
		pid := s.spawn(c, m.w)
		s.flows[pid.Id] = pid
		if s.parked != nil {
			c.Send(pid, s.parked)
		}
		if s.halted != nil {
			c.Send(pid, s.halted)
		}
	case *park:
		s.parked = m
		for _, pid := range s.flows {
			c.Send(pid, m)
		}
	case *halt:
		s.halted = m
		for _, pid := range s.flows {
			c.Send(pid, m)
		}
	case *quit:
		s.stopping = true
		for _, ch := range s.sessions {
			c.Send(ch.pid, m)
		}
		s.stopIfDone(c)
	case *actor.Terminated:
		s.forget(m.Who.Id)
		s.stopIfDone(c)
	case *actor.Stopped:
		close(s.sys.stopped)
	}
}

// session returns the mailbox of a session's actor, which it starts if there is none.
// An actor whose mailbox is closed writes no more; its successor need not wait for its
// end.
func (s *supervisor) session(c actor.Context, k session.Key, unborn bool) *mailbox {
	if ch := s.sessions[k]; ch != nil {
		if !ch.box.isClosed() {
			return ch.box
		}
		delete(s.keys, ch.pid.Id)
	}
	box := &mailbox{bound: s.sys.o.MaxPending, awake: true}
	a := &sessionActor{sys: s.sys, key: k, box: box, unborn: unborn}
	pid := s.spawn(c, a)
	root := s.sys.protoactor.Root
	box.tell = func(signal any) { root.Send(pid, signal) }
	s.sessions[k], s.keys[pid.Id] = &child{box, pid}, k
	s.sys.held.set(k, box)
	return box
}

// forget removes an actor that has stopped.
func (s *supervisor) forget(id string) {
	delete(s.flows, id)
	k, ok := s.keys[id]
	if !ok {
		return // a workflow, or a session that has a successor
	}
	delete(s.keys, id)
	delete(s.sessions, k)
	s.sys.held.set(k, nil)
}

func (s *supervisor) stopIfDone(c actor.Context) {
	if s.stopping && len(s.sessions) == 0 && len(s.flows) == 0 {
		c.Stop(c.Self())
	}
}

// stopFailed is the supervisor's strategy for a child that panicked outside of the
// middleware: stop it. An actor is never restarted with doubtful memory.
func stopFailed() actor.SupervisorStrategy {
	return actor.NewOneForOneStrategy(0, 0, func(any) actor.Directive { return actor.StopDirective })
}

// recovering turns a panic in an actor into its end, with an answer to all waiting
// callers. Otherwise protoactor would restart the actor, and callers would get no
// answer.
func (s *System) recovering(next actor.ReceiverFunc) actor.ReceiverFunc {
	return func(c actor.ReceiverContext, m *actor.MessageEnvelope) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			s.log.Error("an actor panicked", "actor", c.Self().Id, "panic", v, "stack", string(debug.Stack()))
			if a, ok := c.Actor().(interface{ panicked(v any) }); ok {
				a.panicked(v)
			}
		}()
		next(c, m)
	}
}

// ping goes to the supervisor and back.
type ping struct {
	signal
	reply chan struct{}
}

// Answering returns nil when the System is able to activate sessions and to count its
// runs, or has ended in order; it returns ctx's error when it is stuck. It asks neither
// the log nor any other process, so only a fault in this process makes it fail. The
// call itself may hang in a System that is stuck: make it where that does no harm.
func (s *System) Answering(ctx context.Context) error {
	m := &ping{reply: make(chan struct{}, 1)}
	s.protoactor.Root.Send(s.top, m)
	select {
	case <-m.reply:
	case <-s.stopped:
	case <-ctx.Done():
		return fmt.Errorf("actors: the supervisor of all sessions does not answer: %w", context.Cause(ctx))
	}
	s.Running()
	return nil
}
