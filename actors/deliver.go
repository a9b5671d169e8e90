package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Signal applies a fact from outside a run: at the incarnation that holds the session,
// else here. It returns nil once the fact is durable, or run.ErrState if the fact no
// longer has an effect.
func (s *System) Signal(ctx context.Context, sig journal.Signal) error {
	if err := sig.To.Valid(); err != nil {
		return fmt.Errorf("%w: %w", run.ErrMalformed, err)
	}
	_, err := s.settle(ctx, sig.To, journal.Work{Signal: &sig}, func() (journal.Answer, error) {
		return journal.AnswerCommitted, s.apply(ctx, sig, s.o.Deliver == nil)
	})
	if gone := errors.Is(err, run.ErrState) || errors.Is(err, run.ErrUnknownRun) || errors.Is(err, session.ErrArchived); gone && sig.Unwanted() != nil {
		return s.Signal(ctx, *sig.Unwanted()) // the run ended before the grant came
	}
	report := sig.Received != nil && sig.Received.Kind == journal.Report
	if report && (errors.Is(err, run.ErrState) || errors.Is(err, run.ErrUnknownRun)) {
		return s.closeBranch(ctx, sig)
	}
	return err
}

// closeBranch ends the session of a branch if the parent's log shows that the parent no
// longer waits for its end. The signal of the parent may have been lost.
func (s *System) closeBranch(ctx context.Context, sig journal.Signal) error {
	branch := sig.Received.Branch.Link.Key
	d, err := s.o.Values.BranchOutcome(ctx, sig.To, sig.Run, branch.ID)
	if err != nil {
		return err
	}
	return s.Signal(ctx, journal.Signal{To: branch, Run: run.ID(branch.ID), Close: &d})
}

// other reports whether incarnation is another one that can be asked. A session that it
// wrote last must not be written here without asking it.
func (s *System) other(incarnation string) bool {
	return s.o.Deliver != nil && incarnation != "" && incarnation != s.o.Incarnation
}

// aliveElsewhere reports whether an incarnation is another one and, by membership,
// alive.
func (s *System) aliveElsewhere(incarnation string) bool {
	return s.other(incarnation) && (s.o.Alive == nil || s.o.Alive(incarnation))
}

// deadTimeout is the time to answer for an incarnation that membership calls dead. An
// incarnation that only lost touch with the other nodes still answers.
const deadTimeout = 300 * time.Millisecond

// answerTimeout is how long an incarnation may take to answer.
func (s *System) answerTimeout(incarnation string) time.Duration {
	if s.aliveElsewhere(incarnation) {
		return s.o.AnswerTimeout
	}
	return min(deadTimeout, s.o.AnswerTimeout)
}

// asking bounds a request to an incarnation by answerTimeout, also if membership calls
// the incarnation dead during the request.
func (s *System) asking(ctx context.Context, incarnation string) (asked context.Context, answered func()) {
	asked, cancel := context.WithTimeout(ctx, s.answerTimeout(incarnation))
	if s.o.Changed == nil || !s.aliveElsewhere(incarnation) {
		return asked, cancel
	}
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			changed := s.o.Changed()
			if !s.aliveElsewhere(incarnation) {
				break
			}
			select {
			case <-changed:
			case <-asked.Done():
				return
			}
		}
		t := time.NewTimer(min(deadTimeout, s.o.AnswerTimeout))
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-asked.Done():
		}
	})
	return asked, func() {
		cancel()
		watch.Wait()
	}
}

// decided reports whether err is the holder's answer, not the lack of one.
func decided(err error) bool {
	switch run.CodeOf(err) {
	case run.CodeError, run.CodeTimeout, run.CodeUnavailable, run.CodeConflict, run.CodeSuperseded:
		return false
	}
	return true
}

// holder asks the session's actor for the last writer, and activates it to read.
func (s *System) holder(ctx context.Context, k session.Key) (holder, error) {
	back, err := s.ask(s.requests.get(ctx, askHolder, k), true)
	if err != nil {
		return holder{}, err
	}
	h := back.holder
	s.requests.put(back)
	return h, nil
}

// Delivered accepts work that another incarnation sent to this one as the last writer
// of a session. It returns AnswerNotMine unless the session is active here and this
// activation wrote it; the sender then activates it itself. A signal that may end a
// wait is accepted also if another activation here wrote the session.
func (s *System) Delivered(ctx context.Context, w journal.Work) (journal.Answer, error) {
	var k session.Key
	switch {
	case w.Task != nil:
		k = w.Task.Session
	case w.Signal != nil:
		k = w.Signal.To
	default:
		return "", fmt.Errorf("actors: delivery without task or signal: %w", run.ErrMalformed)
	}
	// A wait may last longer than a session stays in memory. This node accepts the
	// signal that ends it also then, so that the run can resume here.
	ends := w.Signal != nil && (w.Signal.Received != nil || w.Signal.Limit != nil || w.Signal.Event != nil || w.Signal.Tick) && !s.executions.refuses()
	if s.held.get(k) == nil && !ends {
		return journal.AnswerNotMine, nil
	}
	h, err := s.holder(ctx, k)
	if err != nil {
		return "", err
	}
	if h.incarnation != s.o.Incarnation || !h.here && !ends {
		return journal.AnswerNotMine, nil
	}
	var a journal.Answer
	if w.Task != nil {
		a, err = s.deliveredTask(ctx, *w.Task, h.active)
	} else {
		a, err = journal.AnswerCommitted, s.apply(ctx, *w.Signal, false)
	}
	if errors.Is(err, session.ErrConflict) {
		return journal.AnswerNotMine, nil
	}
	return a, err
}

// deliveredTask accepts a task for a session that is held here, by the active run if
// there is one. An offer of a run that may not resume now is answered here, even if
// this node could not run it: otherwise the node that asks would claim it.
func (s *System) deliveredTask(ctx context.Context, t journal.Task, active run.ID) (journal.Answer, error) {
	if err := t.Valid(); err != nil {
		return "", fmt.Errorf("%w: %w", run.ErrMalformed, err)
	}
	if t.Resume && s.o.Runtime != nil {
		// The log is asked, since this memory may be outdated.
		switch {
		case s.executions.has(keyOf(t)): // also under another revision than the offer's
			return journal.AnswerCommitted, s.o.Runtime.Enqueue(ctx, t, nil)
		case active != "" && active != t.ID: // the end of the active run offers it again
			return journal.AnswerQueued, s.o.Runtime.Enqueue(ctx, t, nil)
		}
	}
	if s.executor == nil || !s.executor.offers(t.Workflow) || s.needsOtherRevision(ctx, t) != nil {
		if t.Resume || s.o.Runtime == nil {
			return journal.AnswerNotMine, nil
		}
		// A new task of another pool's workflow. If the sender wrote it into this log,
		// it would cut off the run that executes here.
		return journal.AnswerQueued, s.o.Runtime.Enqueue(ctx, t, nil)
	}
	var release func()
	if !s.executions.any(keyOf(t)) {
		if t.Seen != nil && (active == "" || active == t.ID) {
			// A relay sent it to a slot of the sender. If the sender claims it, no run
			// is cut off, and a slot here may be promised to another relay already.
			return journal.AnswerNotMine, nil
		}
		var ok bool
		release, ok = s.executions.take()
		switch {
		case !ok && !t.Resume && s.o.Runtime != nil:
			return journal.AnswerQueued, s.o.Runtime.Enqueue(ctx, t, nil) // the relay finds a slot for it
		case t.Resume && (!ok || s.executions.refuses()):
			// No run is cut off if another node claims it: it need not wait here for a
			// slot, or for the end of a drain.
			if ok {
				release()
			}
			return journal.AnswerNotMine, nil
		}
	}
	a, err := s.begin(ctx, t, release)
	if a == journal.AnswerCrowded {
		return journal.AnswerNotMine, nil
	}
	if errors.Is(err, run.ErrNotSupported) {
		return journal.AnswerNotMine, nil // it needs another revision of the workflow
	}
	if errors.Is(err, run.ErrShutdown) {
		// The session is still held while its run continues: an activation elsewhere
		// would cut the run off.
		return "", fmt.Errorf("%w: %w", run.ErrBusy, err)
	}
	return a, err
}

// keepLate sends the outcome of a call that ended after another process took over the
// session to that process, which keeps it as evidence.
func (s *System) keepLate(ctx context.Context, b journal.Batch) {
	late := b.Late()
	if late == nil || s.o.Deliver == nil {
		return
	}
	// Evidence does not justify taking a session from an incarnation that may live.
	_, handled, err := s.elsewhere(ctx, b.Session, journal.Work{Signal: late})
	if h, holderErr := s.holder(ctx, b.Session); !handled && err == nil {
		if err = holderErr; err == nil && h.busy && s.aliveElsewhere(h.incarnation) {
			err = fmt.Errorf("actors: %s, which holds the session, does not answer: %w", h.incarnation, session.ErrUnavailable)
		} else if err == nil {
			err = s.apply(ctx, *late, true)
		}
	}
	if err != nil && !errors.Is(err, run.ErrState) {
		s.log.Error("the outcome of a superseded attempt was not kept",
			"run", string(b.Run), "step", string(b.Path), "attempt", b.Attempt, "session", b.Session.String(), "err", err)
	}
}
