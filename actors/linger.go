package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Linger implements run.Lingerer. The request stays with the session's actor
// until a signal ends the wait; no other activation knows of it. So the run goes
// on here only if this activation, which claimed it, also commits what it waits
// for. Whoever else does lets the run be offered, and it is told to leave when
// this activation ends, or when it has stayed for long enough.
func (s *store) Linger(ctx context.Context, c run.Claim) (*run.Granted, error) {
	if s.sys.o.Linger < 0 {
		return nil, nil
	}
	place := s.sys.executions.linger(runKey{c.Home.Tenant, c.Run})
	if place == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.sys.o.Linger)
	defer cancel()
	r := s.sys.requests.get(ctx, askLinger, c.Home)
	r.claim, r.seat = c, place
	box := s.sys.held.get(c.Home)
	if box == nil || box.push(r) != admitted {
		return nil, nil
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		s.sys.leave(box, r)
	case <-s.sys.drain.begun:
		cancel() // it may not have been looked at
		s.sys.leave(box, r)
	}
	switch {
	case r.err == nil:
		return r.granted, nil
	case r.granted == nil, errors.Is(r.err, session.ErrConflict), errors.Is(r.err, session.ErrTooLarge), errors.Is(r.err, errAgain):
		return nil, nil // nothing was claimed, and nothing will be
	}
	place.doubt = true
	return nil, fmt.Errorf("actors: run %s was to go on where it waited: %w", c.Run, r.err)
}

// leave waits until the actor of a mailbox has let a run go that lingers, or has
// found that it goes on.
func (s *System) leave(box *mailbox, r *request) {
	box.tell(&dismiss{r})
	<-r.done
}

// dismiss lets the run of a request go, unless it goes on.
type dismiss struct{ r *request }

// IgnoreDeadLetterLogging keeps signals that come too late out of the log.
func (*dismiss) IgnoreDeadLetterLogging() {}

// linger keeps the request of a run that waits, if this activation claimed it.
func (a *sessionActor) linger(r *request) {
	rec := a.w.Book().Run(r.claim.Run)
	if a.lingers != nil || a.stop || rec == nil || rec.State != run.Waiting ||
		rec.Attempt != r.claim.Attempt || rec.Epoch != a.w.Epoch() {
		r.reply(nil)
		return
	}
	a.lingers = r
}

// goOn looks at the run that lingers after a signal was decided. If it waits no
// more its claim joins what the signal staged, so that one commit ends the wait
// and begins the next attempt, and nobody else is offered the run.
func (a *sessionActor) goOn(sig run.Signal, now time.Time) {
	l := a.lingers
	if l == nil {
		return
	}
	rec := a.w.Book().Run(l.claim.Run)
	switch {
	case rec.State == run.Waiting && sig.Rebudget == nil: // another budget may mean another deadline
		return
	case rec.State != run.Queued, !a.sys.executions.resume(l.seat):
		a.dismiss()
		return
	}
	g, err := a.w.Claim(l.claim, now)
	if err != nil || g.State != run.Running { // such as one whose session was set apart
		a.sys.executions.linger(l.seat.key)
		a.dismiss()
		return
	}
	l.granted, l.staged = g, true
	a.batch, a.lingers = append(a.batch, l), nil
}

// dismiss tells the run that lingers to leave.
func (a *sessionActor) dismiss() {
	if l := a.lingers; l != nil {
		a.lingers = nil
		l.reply(nil)
	}
}

// open makes sure that what an append to a session may have left behind is in
// the log or never will be: by a commit after it.
func (s *System) open(ctx context.Context, k session.Key) error {
	back, err := s.ask(s.requests.get(ctx, askOpen, k), true)
	if err == nil {
		s.requests.put(back)
	}
	return err
}

var _ run.Lingerer = (*store)(nil)
