package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Answer is what the holder of a session says to work that was delivered to
// it, and what Accept says of a task.
type Answer string

// The answers.
const (
	// Committed: the log holds what was asked for.
	Committed Answer = "committed"
	// Queued: the log holds the run, which waits for the one before it.
	Queued Answer = "queued"
	// NotMine: the session is not held here.
	NotMine Answer = "not_mine"
)

// Accept takes a task: it claims the run here and executes it, or queues it
// behind the run that holds the session, or hands it to the incarnation that
// holds the session. It returns as soon as a log holds the task, so that the
// message which brought it may be acknowledged; execution goes on after that.
// A run that is over, or executes already, is Committed.
//
// run.ErrBusy: no slot, or too much waits for the session; offer the task
// again later. run.ErrShutdown: the System drains. run.ErrNotSupported: the
// workflow is not offered here. run.ErrKeyReused and other errors of the
// claim: the task is refused. When ctx ends Accept returns its error, and the
// task may be accepted all the same; offering it again is harmless.
func (s *System) Accept(ctx context.Context, t journal.Task) (Answer, error) {
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
	return s.settle(ctx, t.Session, journal.Work{Task: &t}, func() (Answer, error) { return s.begin(ctx, t, nil) })
}

// presume activates a session whose log is probably empty, that of a branch which is
// offered for the first time or of a new task, without reading it. If the log is not
// empty the claim meets a conflict and is decided again, by what the log says.
func (s *System) presume(ctx context.Context, k session.Key) error {
	if box := s.held.get(k); box != nil && !box.isClosed() {
		return nil // what is known is better
	}
	_, err := s.activate(ctx, k, true)
	return err
}

// needsOtherRevision fails for a run that goes on under another revision than
// that of this node, as long as another node offers it.
func (s *System) needsOtherRevision(ctx context.Context, t journal.Task) error {
	if !t.Resume || t.Revision == "" || s.o.Workflows == nil || s.o.Runtime == nil || s.o.Runtime.Offered == nil {
		return nil
	}
	if g, ok := s.o.Workflows.Lookup(t.Workflow); ok && g.Revision != t.Revision && s.o.Runtime.Offered(ctx, t.Workflow, t.Revision) {
		return fmt.Errorf("actors: run %s goes on under revision %q of %s, offered here is %q: %w", t.ID, t.Revision, t.Workflow, g.Revision, run.ErrNotSupported)
	}
	return nil
}

// Signal applies a fact from outside a run: at the incarnation that holds the
// session, else here. It returns once the fact is durable, or run.ErrState
// when it changes nothing any more.
func (s *System) Signal(ctx context.Context, sig journal.Signal) error {
	if err := sig.To.Valid(); err != nil {
		return fmt.Errorf("%w: %w", run.ErrMalformed, err)
	}
	_, err := s.settle(ctx, sig.To, journal.Work{Signal: &sig}, func() (Answer, error) {
		return Committed, s.apply(ctx, sig, s.o.Deliver == nil)
	})
	report := sig.Received != nil && sig.Received.Kind == journal.Report
	if report && (errors.Is(err, run.ErrState) || errors.Is(err, run.ErrUnknownRun)) {
		return s.closeBranch(ctx, sig)
	}
	return err
}

// SignalHere is Signal for a session that is in memory here; held is false, and
// nothing is done, if it is not.
func (s *System) SignalHere(ctx context.Context, sig journal.Signal) (held bool, err error) {
	if box := s.held.get(sig.To); box == nil || box.isClosed() {
		return false, nil
	}
	return true, s.Signal(ctx, sig)
}

// closeBranch ends the session of a branch whose parent no longer waits for its end, as
// the parent's log says. The signal of the parent may have been lost.
func (s *System) closeBranch(ctx context.Context, sig journal.Signal) error {
	branch := sig.Received.Branch.Link.Key
	d, err := s.o.Values.BranchOutcome(ctx, sig.To, sig.Run, branch.ID)
	if err != nil {
		return err
	}
	return s.Signal(ctx, journal.Signal{To: branch, Run: run.ID(branch.ID), Close: &d})
}

// Enqueue records a task in its session's log without claiming it, so that the
// nodes which offer its workflow are offered the run. With cancel it has ended when
// the log holds it; behind a run that another incarnation executes it only waits, and
// is to be cancelled there.
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
	_, err := s.settle(ctx, t.Session, journal.Work{Task: &t}, func() (Answer, error) { return Queued, s.o.Runtime.Enqueue(ctx, t, cancel) })
	return err
}

// settle gets work to the holder of a session: elsewhere, or here. After a conflict
// here it asks the new holder.
func (s *System) settle(ctx context.Context, k session.Key, w journal.Work, here func() (Answer, error)) (Answer, error) {
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

// elsewhere hands work to the incarnation that wrote the session last, if that
// is another one which lives and has something to lose: a run on the session.
// handled is false if that one does not answer for the session.
func (s *System) elsewhere(ctx context.Context, k session.Key, w journal.Work) (a Answer, handled bool, err error) {
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
		return a, a == Committed || a == Queued, nil
	case asked.Err() == nil && decided(err):
		return "", false, err
	}
	s.log.Info("the last writer of a session does not answer; activating it here",
		"session", k.String(), "incarnation", h.incarnation, "err", err)
	return "", false, nil
}

// other reports whether a session that an incarnation wrote last is not to be
// written here without asking: it is another one, and it can be asked.
func (s *System) other(incarnation string) bool {
	return s.o.Deliver != nil && incarnation != "" && incarnation != s.o.Incarnation
}

// aliveElsewhere reports whether an incarnation is another one and, as far as
// membership knows, lives.
func (s *System) aliveElsewhere(incarnation string) bool {
	return s.other(incarnation) && (s.o.Alive == nil || s.o.Alive(incarnation))
}

// deadTimeout is how long an incarnation may take to answer that membership calls dead.
// One that only lost touch with the other nodes still answers.
const deadTimeout = 300 * time.Millisecond

// answerTimeout is how long an incarnation may take to answer.
func (s *System) answerTimeout(incarnation string) time.Duration {
	if s.aliveElsewhere(incarnation) {
		return s.o.AnswerTimeout
	}
	return min(deadTimeout, s.o.AnswerTimeout)
}

// asking bounds a request to an incarnation by answerTimeout, also if membership calls
// it dead only while it is asked.
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

// Delivered takes work that another incarnation sent to this one as the last
// writer of a session. It answers NotMine unless the session is active here
// and this activation wrote it; the sender then activates it itself. What may
// end a wait is taken also if another activation here wrote the session.
func (s *System) Delivered(ctx context.Context, w journal.Work) (Answer, error) {
	var k session.Key
	switch {
	case w.Task != nil:
		k = w.Task.Session
	case w.Signal != nil:
		k = w.Signal.To
	default:
		return "", fmt.Errorf("actors: delivery without task or signal: %w", run.ErrMalformed)
	}
	// A wait may last longer than a session stays in memory. What ends it is
	// taken by this node also then, so that the run can go on here.
	ends := w.Signal != nil && (w.Signal.Received != nil || w.Signal.Tick) && !s.executions.refuses()
	if s.held.get(k) == nil && !ends {
		return NotMine, nil
	}
	h, err := s.holder(ctx, k)
	if err != nil {
		return "", err
	}
	if h.incarnation != s.o.Incarnation || !h.here && !ends {
		return NotMine, nil
	}
	var a Answer
	if w.Task != nil {
		a, err = s.deliveredTask(ctx, *w.Task, h.active)
	} else {
		a, err = Committed, s.apply(ctx, *w.Signal, false)
	}
	if errors.Is(err, session.ErrConflict) {
		return NotMine, nil
	}
	return a, err
}

// deliveredTask takes a task for a session that is held here, by the run that is
// active if there is one. An offer of a run that may not go on now is answered
// here, also if this node could not take it: the node that asks would claim it.
func (s *System) deliveredTask(ctx context.Context, t journal.Task, active run.ID) (Answer, error) {
	if err := t.Valid(); err != nil {
		return "", fmt.Errorf("%w: %w", run.ErrMalformed, err)
	}
	if t.Resume && s.o.Runtime != nil {
		// The log is asked, since this memory may be outdated.
		switch {
		case s.executions.has(keyOf(t)): // also under another revision than the offer says
			return Committed, s.o.Runtime.Enqueue(ctx, t, nil)
		case active != "" && active != t.ID: // whose end offers it again
			return Queued, s.o.Runtime.Enqueue(ctx, t, nil)
		}
	}
	if s.executor == nil || !s.executor.offers(t.Workflow) || s.needsOtherRevision(ctx, t) != nil {
		if t.Resume || s.o.Runtime == nil {
			return NotMine, nil
		}
		// A new task of another pool's workflow. If the node that asks wrote it into
		// this log, it would cut off the run that executes here.
		return Queued, s.o.Runtime.Enqueue(ctx, t, nil)
	}
	var release func()
	if !s.executions.any(keyOf(t)) {
		if t.Seen != nil && (active == "" || active == t.ID) {
			// A relay sent it to a slot of the node that asks. Nothing is cut off if that
			// node takes it, and a slot of this one may be on its way to another relay.
			return NotMine, nil
		}
		var ok bool
		release, ok = s.executions.take()
		switch {
		case !ok && !t.Resume && s.o.Runtime != nil:
			return Queued, s.o.Runtime.Enqueue(ctx, t, nil) // the relay finds a slot for it
		case t.Resume && (!ok || s.executions.refuses()):
			// Nothing is cut off if another node takes it: it need not wait here for a
			// slot, or for the end of a drain.
			if ok {
				release()
			}
			return NotMine, nil
		}
	}
	a, err := s.begin(ctx, t, release)
	if errors.Is(err, run.ErrNotSupported) {
		return NotMine, nil // it needs another revision of the workflow
	}
	if errors.Is(err, run.ErrShutdown) {
		// The session is still held while its run goes on: an activation elsewhere
		// would cut the run off.
		return "", fmt.Errorf("%w: %w", run.ErrBusy, err)
	}
	return a, err
}

// keepLate sends the outcome of a call, which came after another process took
// the session over, to that process: it is kept as evidence.
func (s *System) keepLate(ctx context.Context, b journal.Batch) {
	late := b.Late()
	if late == nil || s.o.Deliver == nil {
		return
	}
	// Evidence is no reason to take a session from an incarnation that may live.
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
