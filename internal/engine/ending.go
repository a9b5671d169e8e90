package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// finish records the outcome of the execution.
func (end *ending) finish(ctx context.Context, err error) (run.State, error) {
	ex := end.ex
	ex.mu.Lock()
	if ex.life.poison == nil && run.IsControl(err) && !ofAnotherRun(err) {
		ex.life.poison = err
	}
	poison := ex.life.poison
	ex.mu.Unlock()
	if poison != nil {
		return end.halt(ctx, poison)
	}
	if err == nil {
		err = end.checkResult()
	}
	ex.mu.Lock()
	missed := ex.pos.unreached(func(at run.Path) bool { return ex.levels.outer(at) || ex.lines.cut(at) || ex.loops.passed(at) })
	ex.mu.Unlock()
	if missed != nil && err != nil {
		missed = fmt.Errorf("%w: %v", missed, err)
	}
	if missed != nil {
		return end.halt(ctx, missed)
	}
	if err != nil {
		return end.finishFailed(ctx, run.Failed, err)
	}
	state, err := end.succeed(ctx)
	if err != nil {
		ex.mu.Lock()
		poison := ex.life.poison
		ex.mu.Unlock()
		if poison != nil {
			return end.halt(ctx, poison)
		}
	}
	return state, err
}

// ofAnotherRun reports whether a control error that Forward returned, although no step
// had to stop, is about another run: a step of this run that has to stop poisons the
// execution. An attempt that was superseded without such a step cannot record its end.
func ofAnotherRun(err error) bool {
	return errors.Is(err, run.ErrCancelled) || errors.Is(err, run.ErrSuspended) || errors.Is(err, run.ErrSuperseded)
}

// halt records that the execution had to stop before its end.
func (end *ending) halt(ctx context.Context, why error) (run.State, error) {
	ex := end.ex
	switch {
	case errors.Is(why, run.ErrReview), errors.Is(why, run.ErrMismatch), errors.Is(why, session.ErrStale):
		v := journal.Review{Attempt: ex.attempt, Code: run.CodeOf(why), Reason: why.Error(), Run: ex.id}
		if r, ok := errors.AsType[*reviewError](why); ok {
			v = r.Review
		}
		if errors.Is(why, session.ErrStale) {
			v.Code = run.CodeMismatch
		}
		if v.Code == run.CodeMismatch && ex.pos.mismatch != nil && ex.pos.mismatch.Revision != ex.reg.Revision {
			v.Revision = ex.pos.mismatch.Revision
			if v.Revision != "" && ex.rt.Offered != nil && ex.rt.Offered(ctx, ex.reg.Name, v.Revision) {
				return end.pause(ctx, run.Queued, why, journal.KindReleased, journal.Released{
					Attempt: ex.attempt, Reason: excerpt.Clip(why.Error(), 1<<10), Revision: v.Revision, Run: ex.id, Step: ex.pos.mismatch.Path, Workflow: ex.reg.Name,
				})
			}
		}
		return end.pause(ctx, run.NeedsReview, why, journal.KindReview, v)
	case errors.Is(why, run.ErrCancelled):
		return end.finishFailed(ctx, run.Cancelled, why)
	case errors.Is(why, run.ErrDeadline):
		return end.finishFailed(ctx, run.TimedOut, why)
	case errors.Is(why, run.ErrSuspended):
		return run.Waiting, why // the log has it already
	case errors.Is(why, run.ErrShutdown):
		return end.pause(ctx, run.Queued, why, journal.KindReleased, journal.Released{
			Attempt: ex.attempt, Lost: ex.account.unrecorded, Reason: "shutdown", Revision: ex.task.Revision, Run: ex.id, Workflow: ex.task.Workflow,
		})
	}
	// Superseded, or the log was lost: the log determines the state of the run.
	return run.Running, why
}

// pause commits the one event that ends the execution without ending the run.
func (end *ending) pause(ctx context.Context, s run.State, why error, kind string, payload any) (run.State, error) {
	ex := end.ex
	var release []session.Event
	var err error
	if s == run.NeedsReview { // it may take days
		ex.mu.Lock()
		release, err = ex.around.releaseSiblings()
		ex.mu.Unlock()
	}
	var ack journal.Ack
	if err == nil {
		ack, err = end.log.note(ctx, ex.home, kind, payload, release...)
	}
	if err != nil {
		return run.Running, errors.Join(why, err)
	}
	if ack.State.Terminal() { // a cancel came first
		s = ack.State
	}
	return s, why
}

func (end *ending) finishFailed(ctx context.Context, s run.State, why error) (run.State, error) {
	closing := session.ClosedFailed
	if s == run.Cancelled {
		closing = session.ClosedCancelled
	}
	if err := end.closeBranches(ctx, "", session.Session{}, closing, why.Error()); err != nil && run.IsControl(err) && !errors.Is(err, run.ErrCancelled) {
		return run.Running, err
	}
	return end.ended(ctx, session.Session{}, journal.Ended{State: s, Code: endCode(why), Error: excerpt.Clip(why.Error(), 4<<10)}, why)
}

// endCode returns the code of a run that ends with an error. For a model's failure it is
// the class of that failure, as in the record of its step. A server that rejects the
// content of a request has the code of a model's refusal.
func endCode(err error) run.Code {
	code := run.CodeOf(err)
	if code != run.CodeError {
		return code
	}
	switch class := llm.CodeOf(err); class {
	case "", llm.CodeTruncated, llm.CodeMalformed: // these codes have other meanings for a run
		return code
	case llm.CodeUnavailable:
		return run.CodeModelUnavailable
	default:
		return run.Code(class)
	}
}

func (x *ending) ended(ctx context.Context, s session.Session, e journal.Ended, why error, content ...session.Event) (run.State, error) {
	ex := x.ex
	e.Attempt, e.Run, e.Workflow = ex.attempt, ex.id, ex.task.Workflow
	ex.mu.Lock()
	e.Finish, e.Word = ex.answerEnd, ex.answerWord
	ex.mu.Unlock()
	if e.Workflow == "" {
		e.Workflow = ex.reg.Name
	}
	if e.State != run.Succeeded {
		if err := x.chargeUnreached(ctx); err != nil {
			return run.Running, errors.Join(why, err)
		}
	}
	ex.mu.Lock()
	e.Usage, e.Lost, e.Unrecorded, e.Steps = ex.account.Spent, ex.account.lost, ex.account.unrecorded, ex.account.Steps
	ex.mu.Unlock()
	ev, err := journal.NewEvent(journal.KindEnded, e)
	if err != nil {
		return run.Running, err
	}
	b := journal.Batch{Session: ex.home, Run: ex.id, Attempt: ex.attempt, Path: "end", Events: append(content, ev)}
	if s.Key() == ex.home {
		b.Base = s.Committed().Ref().Version
	} else {
		b.Base = ex.forks.versionOf(ex.home)
	}
	ack, err := x.log.append(ctx, b)
	if err != nil {
		return run.Running, errors.Join(why, err)
	}
	if ack.State == run.Succeeded {
		ex.result = ack.Session
	}
	ex.rt.Values.Keep(ack.Session)
	if ack.State == run.Cancelled && why == nil { // the cancel came first
		why = run.ErrCancelled
	}
	return ack.State, why
}

// chargeUnreached books the usage that former attempts recorded in the logs of forks that
// this execution did not reach.
func (end *ending) chargeUnreached(ctx context.Context) error {
	ex := end.ex
	ex.mu.Lock()
	left := ex.pos.journal.Made(func(s *journal.Step) bool { return ex.levels.outer(s.Path) })
	seen := map[session.ID]bool{}
	for k, h := range ex.sessions.held {
		if !h.outer {
			seen[k.ID] = true
		}
	}
	ex.mu.Unlock()
	for len(left) > 0 {
		id := left[0]
		if left = left[1:]; seen[id] {
			continue
		}
		seen[id] = true
		g, err := ex.rt.Values.Recorded(ctx, session.Key{Tenant: ex.home.Tenant, ID: id}, ex.id)
		switch {
		case errors.Is(err, run.ErrUnknownRun), errors.Is(err, session.ErrNotFound):
			continue // the attempt ended before the fork began
		case err != nil:
			return fmt.Errorf("flow: read what run %s used in session %s: %w: %w", ex.id, id, session.ErrUnavailable, err)
		}
		ex.mu.Lock()
		ex.charge(g.Journal)
		ex.mu.Unlock()
		left = append(left, g.Journal.Made(func(*journal.Step) bool { return false })...)
	}
	return nil
}

// checkResult rebases the result of Forward onto the commits of its steps, and fails
// unless it can then be the home session's next version.
func (end *ending) checkResult() error {
	ex := end.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	s := ex.sessions.rebase(ex.result) // a fork may have committed its pending edits
	ex.result = s
	if s.Unborn() && s.Len() == 0 {
		return errors.New("flow: the workflow returned an empty session: return the session it worked on")
	}
	h := ex.sessions.held[s.Key()]
	switch {
	case h == nil:
		return fmt.Errorf("flow: the workflow returned session %s, which this run did not make: return the session it was given, or a branch of it", s.Key())
	case s.Committed().Ref().Version != h.version:
		return fmt.Errorf("flow: the workflow returned version %d of session %s, which it extended to %d: return the newest value, or work on a Fork",
			s.Ref().Version, s.Key().ID, h.version)
	}
	return nil
}

func (end *ending) succeed(ctx context.Context) (run.State, error) {
	ex := end.ex
	s := ex.result
	home := s
	if s.Key() != ex.home {
		joined, err := ex.joins.adoptResult(ctx, s)
		switch {
		case err != nil && run.IsControl(err): // such as an unavailable log: the run has not failed
			return run.Running, ex.failed(err)
		case err != nil:
			return end.finishFailed(ctx, run.Failed, err)
		}
		home = joined
	}
	if err := end.closeBranches(ctx, "", s, session.ClosedRejected, "not returned by the workflow"); err != nil {
		return run.Running, err
	}
	content, rest := firstBatch(slices.Collect(home.Pending()))
	if len(rest) > 0 {
		var err error
		if home, err = ex.joins.flush(ctx, "end", home); err != nil {
			return run.Running, ex.failed(err)
		}
		content = nil
	}
	e := journal.Ended{State: run.Succeeded, Output: excerpt.Clip(home.Text(), journal.MaxOutput)}
	if l, ok := home.Link(); ok {
		e.Result = &l
	}
	return end.ended(ctx, home, e, nil, content...)
}

// closeBranches ends the branches that the code of an iteration left open, "" for the whole
// code, except the ancestors of keep. Detached sessions are released.
func (end *ending) closeBranches(ctx context.Context, of run.Path, keep session.Session, state, reason string) error {
	ex := end.ex
	line := map[session.Key]bool{keep.Key(): true}
	for r := range keep.Line() {
		line[r.Key] = true
	}
	ex.mu.Lock()
	branches, held := slices.Clone(ex.sessions.branches), maps.Clone(ex.sessions.held)
	ex.mu.Unlock()
	if of != "" {
		branches = slices.DeleteFunc(branches, func(k session.Key) bool { return !held[k].at.Within(of) })
	}
	for i, k := range branches {
		h, at := held[k], of.Child("end").Index(i)
		recorded := of != "" && ex.pos.has(ex, at)
		switch {
		case h.outer || h.disposed || line[k] && h.parent != (session.Key{}) || h.closed != "" && !recorded:
			continue
		case h.detached && ex.pos.recorder != nil:
			continue
		case h.detached:
			if _, err := ex.log.note(ctx, k, journal.KindReleased, journal.Released{Attempt: ex.attempt, Reason: "ended", Run: ex.id}); err != nil {
				return err
			}
			continue
		}
		why := reason
		if h.source != "" {
			why = fmt.Sprintf("%s (implicit fork at %s)", reason, h.source)
		}
		if state == session.ClosedRejected && !recorded {
			ex.log.warn(ctx, fmt.Sprintf("branch %s was %s", k.ID, why))
		}
		if err := ex.joins.dispose(ctx, at, k, state, why); err != nil {
			return err
		}
	}
	return end.closeFanOuts(ctx, of, state, reason)
}
