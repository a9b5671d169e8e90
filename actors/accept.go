package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/live"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Accept accepts a task: it claims the run here and executes it, or queues it behind
// the run that holds the session, or hands it to the incarnation that holds the
// session. It returns as soon as a log holds the task, so that the task's message may
// be acknowledged; execution continues after that. The answer for a run that has ended,
// or executes already, is AnswerCommitted.
//
// run.ErrBusy: no slot is free, or too many requests wait for the session; offer the
// task again later. run.ErrShutdown: the System drains. run.ErrNotSupported: this node
// does not offer the workflow. run.ErrKeyReused and other errors of the claim: the task
// is rejected. When ctx ends Accept returns its error, and the task may be accepted
// nevertheless; offering it again is harmless.
func (s *System) Accept(ctx context.Context, t journal.Task) (journal.Answer, error) {
	if err := t.Valid(); err != nil {
		return "", fmt.Errorf("%w: %w", run.ErrMalformed, err)
	}
	if s.executor == nil || !s.executor.offers(t.Workflow) {
		return "", fmt.Errorf("actors: workflow %q is not offered here: %w", t.Workflow, run.ErrNotSupported)
	}
	if err := s.needsOtherRevision(ctx, t); err != nil {
		return "", err
	}
	if (t.Branch != nil || t.Unborn) && !t.Resume {
		if err := s.presume(ctx, t.Session); err != nil {
			return "", err
		}
	}
	return s.accept(ctx, t)
}

// accept is Accept for a run that may be resumed here.
func (s *System) accept(ctx context.Context, t journal.Task) (journal.Answer, error) {
	return s.settle(ctx, t.Session, journal.Work{Task: &t}, func() (journal.Answer, error) { return s.begin(ctx, t, nil) })
}

// Enqueue records a task in its session's log without claiming it, so that the run is
// offered to the nodes of its workflow. With cancel the run has ended when the log
// holds it; behind a run that another incarnation executes it only waits, and must be
// cancelled there.
func (s *System) Enqueue(ctx context.Context, t journal.Task, cancel *journal.CancelRequested) error {
	if err := t.Valid(); err != nil {
		return fmt.Errorf("%w: %w", run.ErrMalformed, err)
	}
	if s.o.Runtime == nil {
		return fmt.Errorf("actors: this process takes no tasks: %w", run.ErrNotSupported)
	}
	if t.Unborn {
		if err := s.presume(ctx, t.Session); err != nil {
			return err
		}
	}
	_, err := s.settle(ctx, t.Session, journal.Work{Task: &t}, func() (journal.Answer, error) { return journal.AnswerQueued, s.o.Runtime.Enqueue(ctx, t, cancel) })
	return err
}

// dispatchTimeout bounds how long a dispatched run keeps its slot during the search for
// the incarnation that holds its session. A claim that has begun continues after that.
const dispatchTimeout = 10 * time.Second

// Dispatched accepts a run that a relay sends to this node, if a slot is free for it,
// and returns when a log holds the outcome: AnswerCommitted, also for a run that
// executes elsewhere or has ended, or AnswerQueued behind the run that holds its
// session. AnswerCrowded and AnswerClearing concern suspects. AnswerNotMine: this node
// does not offer the workflow, or not in the revision that the run needs. run.ErrBusy:
// no slot is free. run.ErrShutdown: the System drains. After any other error the run
// may have been claimed here nevertheless, or be claimed soon; dispatching it again is
// harmless.
func (s *System) Dispatched(ctx context.Context, t journal.Task) (journal.Answer, error) {
	if err := t.Valid(); err != nil {
		return "", fmt.Errorf("%w: %w", run.ErrMalformed, err)
	}
	if s.executor == nil || !s.executor.offers(t.Workflow) || s.needsOtherRevision(ctx, t) != nil {
		return journal.AnswerNotMine, nil
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
	a, err := s.settle(ctx, t.Session, journal.Work{Task: &t}, func() (journal.Answer, error) {
		slot := release
		release = nil // begin owns it now
		return s.begin(ctx, t, slot)
	})
	if release != nil {
		release()
	}
	switch {
	case errors.Is(err, run.ErrSuperseded): // the relay's knowledge is old
		return journal.AnswerCommitted, nil
	case errors.Is(err, run.ErrNotSupported):
		return journal.AnswerNotMine, nil
	case errors.Is(err, errDoubt): // no relay dispatches it if it is
		s.work.Run(func() { s.reclaim(t) })
	}
	return a, err
}

// presume activates a session without reading its log, which is probably empty: the log
// of a new task, or of a branch that is offered for the first time. If the log is not
// empty, the claim meets a conflict and is decided again after the log has been read.
func (s *System) presume(ctx context.Context, k session.Key) error {
	if box := s.held.get(k); box != nil && !box.isClosed() {
		return nil // an open mailbox is better than a presumption
	}
	_, err := s.activate(ctx, k, true)
	return err
}

// needsOtherRevision fails for a run that resumes under a revision other than this
// node's, as long as another node offers that revision.
func (s *System) needsOtherRevision(ctx context.Context, t journal.Task) error {
	if !t.Resume || t.Revision == "" || s.o.Workflows == nil || s.o.Runtime == nil || s.o.Runtime.Offered == nil {
		return nil
	}
	if g, ok := s.o.Workflows.Lookup(t.Workflow); ok && g.Revision != t.Revision && s.o.Runtime.Offered(ctx, t.Workflow, t.Revision) {
		return fmt.Errorf("actors: run %s goes on under revision %q of %s, offered here is %q: %w", t.ID, t.Revision, t.Workflow, g.Revision, run.ErrNotSupported)
	}
	return nil
}

// settle gets work to the holder of a session: elsewhere, or here. After a conflict
// here it asks the new holder.
func (s *System) settle(ctx context.Context, k session.Key, w journal.Work, here func() (journal.Answer, error)) (journal.Answer, error) {
	for try := 1; ; try++ {
		a, handled, err := s.elsewhere(ctx, k, w)
		if handled || err != nil {
			return a, err
		}
		a, err = here()
		if try < maxTries && errors.Is(err, session.ErrConflict) {
			continue
		}
		return a, err
	}
}

// elsewhere hands work to the incarnation that wrote the session last, if that is
// another live one with a run on the session. handled is false if the incarnation does
// not answer for the session.
func (s *System) elsewhere(ctx context.Context, k session.Key, w journal.Work) (a journal.Answer, handled bool, err error) {
	if s.o.Deliver == nil {
		return "", false, nil
	}
	h, err := s.holder(ctx, k)
	if err != nil || !h.busy || !s.other(h.incarnation) {
		return "", false, err
	}
	asked, answered := s.asking(ctx, h.incarnation)
	defer answered()
	a, err = s.o.Deliver(asked, h.incarnation, w)
	switch {
	case ctx.Err() != nil:
		return "", false, ctx.Err()
	case err == nil:
		return a, a == journal.AnswerCommitted || a == journal.AnswerQueued, nil
	case asked.Err() == nil && decided(err):
		return "", false, err
	}
	s.log.Info("the last writer of a session does not answer; activating it here",
		"session", k.String(), "incarnation", h.incarnation, "err", err)
	return "", false, nil
}

// begin claims a task here and executes it if the claim is granted. It continues when
// ctx ends, because a claim without an execution would hold the session; only the end
// of a drain cuts it off. release gives back the task's slot; without release, begin
// takes a slot.
func (s *System) begin(ctx context.Context, t journal.Task, release func()) (journal.Answer, error) {
	type result struct {
		answer journal.Answer
		err    error
	}
	k := keyOf(t)
	if err := s.executions.enter(k); err != nil {
		if release != nil {
			release()
		}
		return "", err
	}
	done := make(chan result, 1)
	s.drain.begins.Add(1)
	s.work.Run(func() {
		defer s.drain.begins.Done()
		defer s.executions.leave(k)
		a, err := s.claim(context.WithoutCancel(ctx), t, release)
		done <- result{a, err}
	})
	select {
	case r := <-done:
		return r.answer, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (s *System) claim(ctx context.Context, t journal.Task, release func()) (journal.Answer, error) {
	if release == nil {
		var ok bool
		if release, ok = s.executions.take(); !ok {
			return "", fmt.Errorf("%w: all %d slots are taken; retry when a run has ended", run.ErrBusy, cap(s.executions.slots))
		}
	}
	ex, err := s.claimed(ctx, t)
	if suspect, ok := errors.AsType[*journal.SuspectError](err); ok {
		return s.claimSuspect(ctx, t, suspect, release)
	}
	return s.begun(ctx, t, ex, err, release)
}

// begun executes a run whose claim was granted, and gives its slot back otherwise.
func (s *System) begun(ctx context.Context, t journal.Task, ex execution, err error, release func()) (journal.Answer, error) {
	if errors.Is(err, run.ErrState) {
		release()
		if s.executions.has(keyOf(t)) {
			return journal.AnswerCommitted, nil // it executes here
		}
		// The log names this activation as the executor, but its execution ended
		// without recording an end. The next activation may claim the run.
		if box := s.held.get(t.Session); box != nil {
			box.tell(&quit{})
		}
		return "", fmt.Errorf("actors: run %s: its last execution here was lost: %w", t.ID, session.ErrConflict)
	}
	if err != nil {
		release()
		return "", err
	}
	switch ex.State() {
	case run.Running:
		s.execute(ctx, ex, release)
		return journal.AnswerCommitted, nil
	case run.Queued:
		release()
		return journal.AnswerQueued, nil
	default:
		release()
		return journal.AnswerCommitted, nil
	}
}

// claimed asks the executor for a claim, until a drain cuts it off.
func (s *System) claimed(ctx context.Context, t journal.Task) (execution, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.drain.claims, cancel)()
	ex, err := s.executor.begin(ctx, t)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("actors: the claim of run %s was cut off: %w: %w", t.ID, run.ErrShutdown, err)
	}
	return ex, err
}

// executor claims runs, and execution is a claimed run: the part of package engine that
// this package uses.
type executor interface {
	offers(workflow string) bool
	begin(ctx context.Context, t journal.Task) (execution, error)
}

type execution interface {
	State() run.State
	Task() *journal.Task // only read
	Forward(ctx context.Context) (run.State, error)
	Park()
	Live() live.Report
}

type runtimeExecutor struct {
	rt        *engine.Runtime
	workflows *engine.Registry
}

func (e runtimeExecutor) offers(name string) bool {
	if e.workflows == nil {
		return false
	}
	_, ok := e.workflows.Lookup(name)
	return ok
}

func (e runtimeExecutor) begin(ctx context.Context, t journal.Task) (execution, error) {
	g, ok := e.workflows.Lookup(t.Workflow)
	if !ok {
		return nil, fmt.Errorf("actors: workflow %q is not offered here: %w", t.Workflow, run.ErrNotSupported)
	}
	return e.rt.Begin(ctx, g, t)
}
