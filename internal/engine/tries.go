package engine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/live"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// tries counts the failed tries of a step's work, over all attempts of the run. A failed
// try is recorded as a step below the path of the work, with the pause before the next try:
// "4.try.1" is the first try of step 4. The record of the work itself has the outcome of
// the last try.
type tries struct {
	policy tool.Retry
	work   journal.StepRequest
	failed int
	began  time.Time     // of the first try
	pause  time.Duration // before the next try; zero if none is left to wait for
	due    time.Time     // of the next try
}

// longPause is the longest pause that an execution spends with its slot and its
// sandboxes.
const longPause = 5 * time.Second

// at returns the step of the nth failed try.
func (t *tries) at(n int) journal.StepRequest {
	asked := t.work
	asked.Path = tryPath(asked.Path).Index(n)
	return asked
}

// load takes over the recorded tries of the step, and their pauses.
func (t *tries) load(st *step) error {
	for st.ex.pos.has(st.ex, t.at(t.failed+1).Path) {
		one, err := st.ex.substep(st.ctx, st.log, st.s, t.at(t.failed+1))
		if err != nil {
			return err
		}
		r := one.record
		if t.failed == 0 {
			t.began = r.Time.Add(-time.Duration(r.Elapsed) * time.Millisecond)
		}
		t.promise(&r.StepCompleted, r.Time)
		if asked, _ := t.wait(); st.ex.pos.has(st.ex, asked.Path) {
			if _, err := st.ex.substep(st.ctx, st.log, session.Session{}, asked); err != nil {
				return err
			}
			t.pause = 0
		}
	}
	if st.decision == journal.Replay {
		t.pause = 0
	}
	return nil
}

func (t *tries) promise(d *journal.StepCompleted, now time.Time) {
	t.failed, t.pause = t.failed+1, time.Duration(d.Retry)*time.Millisecond
	t.due = now.Add(t.pause)
}

// start notes the start of a try.
func (t *tries) start(st *step) {
	t.pause, st.began = 0, time.Now()
	if t.failed == 0 {
		t.began = st.ex.rt.Clock.Now()
	}
	st.flight.SetDoing(live.Works, time.Time{})
}

// fails makes the step that of a failed try, if another one follows. err is the error of
// the step's work.
func (t *tries) fails(st *step, err error, d *journal.StepCompleted) {
	ex, now := st.ex, st.ex.rt.Clock.Now()
	pause, ok := t.policy.Next(err, t.failed+1, now.Sub(t.began))
	if !ok || st.ctx.Err() != nil || !transient(err) {
		return
	}
	ex.mu.Lock()
	stop, end := ex.life.stopped(), ex.granted.Record.Deadline()
	ex.mu.Unlock()
	if stop != nil || run.IsControl(err) || !end.IsZero() && now.Add(pause).After(end) {
		return
	}
	d.Retry = pause.Milliseconds()
	d.Summary = excerpt.Clip(fmt.Sprintf("try %d of %d fails, the next in %s: %v", t.failed+1, t.policy.Times, pause.Round(time.Millisecond), err), 200)
	t.promise(d, now)
	st.asked = t.at(t.failed)
	st.flight.SetError(err)
}

// transient reports whether another try can end otherwise than with err.
func transient(err error) bool {
	switch run.CodeOf(err) {
	case run.CodeNestedStep, run.CodeBudget, run.CodeMalformed, run.CodeNotFound, run.CodeMismatch, run.CodeNotSupported, run.CodeTooLarge, run.CodeTooDeep, run.CodeDeadline:
		return false
	}
	return true
}

// wait returns the step of the pause before the next try, and its wait.
func (t *tries) wait() (journal.StepRequest, journal.Wait) {
	asked := t.at(t.failed)
	asked.Path, asked.Kind, asked.Effect = asked.Path.Child("pause"), journal.StepAwait, ""
	return asked, journal.Wait{Kind: run.WaitTimer, Name: asked.Name, Path: asked.Path, Title: "tries again", Due: t.due.UnixMilli()}
}

// long reports whether the pause before the next try is a wait of the run. The clock of
// a test stands still while a step works, so each pause is a wait there.
func (t *tries) long(ex *Execution) bool {
	return t.pause > longPause || t.pause > 0 && ex.rt.Clock != nil
}

// rest spends a pause in place. It ends early when the execution has to stop, or with the
// context of the step: the next try then ends at once.
func (t *tries) rest(st *step) error {
	ex := st.ex
	left := min(t.due.Sub(ex.rt.Clock.Now()), t.pause)
	if left <= 0 {
		return nil
	}
	st.flight.SetDoing(live.Pauses, t.due)
	ctx, cancel := ex.models.callContext(st.ctx)
	defer cancel(nil)
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.life.stop(ex.life.stopped())
}

// sleep spends the pause before the next try of a function.
func (t *tries) sleep(st *step) error {
	if !t.long(st.ex) {
		return t.rest(st)
	}
	asked, w := t.wait()
	p, err := st.ex.substep(st.ctx, st.log, session.Session{}, asked)
	if err != nil {
		return err
	}
	if _, err := p.await(w, 0, nil); !p.recorded {
		return err
	}
	return nil
}

// again returns the step of the next try. st is the try that failed.
func (st *step) again() (*step, error) {
	next := st.ex.newStep(st.ctx, st.log, st.s, st.tries.work)
	next.exact, next.tries, next.flight = st.exact, st.tries, st.flight
	next.sc, next.ctx = st.sc, next.context(st.ctx)
	return next, next.decide()
}

// plan sets the policy of a call: a single try of a call that is not made, is the work of
// a run of its own, or must not be repeated in its sandbox.
func (c *toolCall) plan(e tool.Effect) {
	p, err := c.spec.Retry.For(e)
	if err != nil || c.refused != nil || c.work != nil {
		p.Times = 1
	}
	c.st.tries = &tries{policy: p, work: c.st.asked}
	c.tries = c.st.tries
}

// do runs one call until its outcome is recorded, or until a long pause before its next
// try.
func (r *round) do(c *toolCall) (err error) {
	defer func() { c.st.flight.End() }()
	for err == nil && !c.recorded() && !c.tries.long(r.ex) {
		if err = c.tries.rest(c.st); err != nil {
			return err
		}
		if c.st.recorded {
			if c.st, err = c.st.again(); err != nil {
				return err
			}
		}
		err = r.once(c)
	}
	return err
}

// pauses waits for the long pauses before the next tries of calls, and reports whether
// there were any.
func (r *round) pauses(calls []*toolCall) (paused bool, err error) {
	var all []openQuestion
	for _, c := range calls {
		if c.tries.pause > 0 {
			asked, w := c.tries.wait()
			all = append(all, openQuestion{c, r.ex.newStep(r.ctx, r.ex.home, session.Session{}, asked), w})
		}
	}
	return len(all) > 0, r.answered(all, func(c *toolCall, _ journal.StepCompleted) (err error) {
		if c.tries.pause = 0; c.st.recorded {
			c.st, err = c.st.again()
		}
		c.st.fly(live.Queues, cmp.Or(c.edited, c.Args))
		return err
	})
}

// bounded calls f, with a context that ends after a time without progress; zero is no
// bound. It returns the error of a try that ended f by this.
func (st *step) bounded(ctx context.Context, timeout time.Duration, f func(context.Context) error) (late error) {
	if timeout == 0 {
		_ = f(ctx)
		return nil
	}
	outer := ctx
	ctx, cancel := context.WithCancelCause(outer)
	timer := time.AfterFunc(timeout, func() {
		cancel(fmt.Errorf("the try had no result and no progress for %v: %w", timeout, context.DeadlineExceeded))
	})
	st.beat.Store(&beat{timer, timeout})
	err := f(ctx)
	st.beat.Store(nil)
	timer.Stop()
	if err != nil && ctx.Err() != nil && outer.Err() == nil {
		late = context.Cause(ctx)
	}
	cancel(nil)
	return late
}

// beat is the timer of a try, which progress restarts.
type beat struct {
	timer *time.Timer
	after time.Duration
}

// progress publishes the progress of the step's work, which restarts its timeout.
func (st *step) progress(text string) {
	st.flight.SetProgress(text)
	if b := st.beat.Load(); b != nil {
		b.timer.Reset(b.after)
	}
}

// Progress is flow.Progress.
func (p *spot) Progress(text string) {
	if p.in != nil {
		p.in.progress(text)
	}
}
