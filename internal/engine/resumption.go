package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/session"
)

// continuation is a session that goes on in another one: the home of a run that ended, as
// it was before a step, and its fork, the home of the run that resumes it there.
type continuation struct {
	from session.Ref
	to   session.Session
}

// continued returns s in the home of the run that resumes the one which s comes from.
func (l *sessions) continued(s session.Session) session.Session {
	for _, c := range l.continuations {
		if s.Committed().Ref() == c.from {
			s = c.to.Edited(slices.Collect(s.Pending())...)
		}
	}
	return s
}

// recordedAs returns the reference to s as the first of the resumed runs recorded it, so
// that the digest of a step's input does not depend on who executes it.
func (l *sessions) recordedAs(s session.Session) session.Ref {
	r, committed := s.Ref(), s.Committed().Ref()
	for _, c := range slices.Backward(l.continuations) {
		if committed == c.to.Ref() {
			committed = c.from
			r = session.Ref{Key: c.from.Key, Version: c.from.Version + r.Version - c.to.Ref().Version}
		}
	}
	return r
}

// loadResumed reads the records of the runs that the task of a level resumes, one after the
// other, and adds their levels before the others. base is the session with which the
// task's run began. It sets the input of the code.
func (a *around) loadResumed(ctx context.Context, of *level, t *journal.Task, base session.Session) error {
	ex := a.ex
	all := ex.levels.resumed
	if all == nil {
		var err error
		if all, err = ex.rt.Values.Resumed(ctx, t.Session.Tenant, t.Resumes); err != nil {
			return fmt.Errorf("flow: run %s resumes run %s: %w", t.ID, t.Resumes.Run, err)
		}
	}
	ex.levels.resumed = nil
	levels := make([]level, len(all)) // the oldest first
	for i, h := range all {
		one := level{run: h.Record.ID, home: h.Record.Home, base: h.Base, until: h.Step}
		levels[len(all)-1-i] = one
		of.from, of.standing = h.Step, h.Standing
		of = &levels[len(all)-1-i]
		if h.Cleanup { // in the same session
			ex.cleans, ex.levels.root = &cleanup{of: h}, &h.Record.Task
		} else {
			ex.sessions.continuations = slices.Insert(ex.sessions.continuations, 0, continuation{h.At.Ref(), base})
		}
		base, ex.pos.last, ex.input = h.Base, h.Started, placedAs(&h.Record.Task, h.Base)
		ex.sessions.hold(one.home, &heldSession{outer: true}, h.Base, h.Session, false)
	}
	for _, h := range all {
		h.Journal.Replace(ex.sessions.continued)
		ex.pos.journal.MergeEnclosing(h.Journal)
	}
	ex.input = ex.sessions.continued(ex.input)
	ex.levels.all = append(levels, ex.levels.all...)
	return nil
}

// ended reads the records of a resumed run in the log of a session that it made.
func (a *around) ended(ctx context.Context, k session.Key, of level) (*journal.ClaimResult, error) {
	h, err := a.ex.rt.Values.Recording(ctx, k, of.run)
	if err != nil {
		return nil, err
	}
	h.Journal = h.Journal.Before(of.until)
	return h.ClaimResult, nil
}
