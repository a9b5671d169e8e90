package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/live"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

const (
	// GiveUpAfter is the time within which the code of a workflow should return after a
	// cancel, or after the deadline of its run. An execution whose code does not return is
	// given up: the run ends, and its slot is free.
	GiveUpAfter = 30 * time.Second
	// ForcedAfter is that time after a forced cancel.
	ForcedAfter = time.Second
)

// Leaked returns the number of functions of authors that were given up and have not
// returned. Go cannot end their goroutines.
func (rt *Runtime) Leaked() int { return int(rt.leaked.Load()) }

// leak counts a function that was given up, until it returns.
func (rt *Runtime) leak(returned <-chan struct{}) {
	change := func(by int64) {
		if n := rt.leaked.Add(by); rt.OnLeak != nil {
			rt.OnLeak(int(n))
		}
	}
	change(1)
	go func() {
		<-returned
		change(-1)
	}()
}

// hurry shortens the time until the execution is given up. The execution's mu is held.
func (l *lifetime) hurry() {
	if l.force == nil {
		return
	}
	select {
	case <-l.force:
	default:
		close(l.force)
	}
}

// await calls the code of the workflow in a goroutine of its own. If the code does not
// return after a cancel or the run's deadline, await gives it up and returns the reason.
func (end *ending) await(ctx context.Context, forward func() (session.Session, error)) (s session.Session, err error) {
	ex, returned := end.ex, make(chan struct{})
	var out session.Session
	failed := errors.New("flow: the workflow ended its goroutine")
	go func() {
		defer close(returned)
		out, failed = forward()
	}()
	select {
	case <-returned:
		return out, failed
	case <-ctx.Done():
	}
	why := ex.stopped()
	if !errors.Is(why, run.ErrCancelled) && !errors.Is(why, run.ErrDeadline) {
		<-returned // a node that stops ends with it
		return out, failed
	}
	timer := time.NewTimer(GiveUpAfter)
	defer timer.Stop()
	select {
	case <-returned:
		return out, failed
	case <-ex.life.force:
		timer.Reset(ForcedAfter)
	case <-timer.C:
		timer.Reset(0)
	}
	select {
	case <-returned:
		return out, failed
	case <-timer.C:
	}
	ex.life.givenUp = true
	ex.rt.leak(returned)
	return s, why
}

// stopped returns the reason why the execution must stop, or nil.
func (ex *Execution) stopped() error {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.life.stopped()
}

// giveUp records the end of an execution whose code was given up. With an open call that
// must not happen twice, the run waits for an operator's decision instead. From here on the
// steps of the execution append nothing: the outcomes of its calls become evidence.
func (end *ending) giveUp(ctx context.Context, why error) (state run.State, err error) {
	ex := end.ex
	ex.log.gate.Lock()
	defer ex.log.gate.Unlock()
	end.log, ex.log.closed = &logWriter{ex: ex}, true
	defer func() { ex.log.ended = state != run.Running }()
	ex.mu.Lock()
	ex.life.poison = why
	open := slices.SortedFunc(maps.Values(ex.intents), func(a, b journal.StepStarted) int { return run.ComparePaths(a.Path, b.Path) })
	ex.mu.Unlock()
	end.log.warn(ctx, fmt.Sprintf("the code of the workflow did not return after its context had ended (%v), and was given up; its goroutine goes on on node %s, and its effects outside of steps cannot be stopped", why, ex.rt.Node))
	if len(open) == 0 {
		state = run.TimedOut
		if errors.Is(why, run.ErrCancelled) {
			state = run.Cancelled
		}
		return end.ended(ctx, session.Session{}, journal.Ended{State: state, Code: run.CodeOf(why), Error: excerpt.Clip(why.Error(), 4<<10)}, why)
	}
	v := journal.Review{
		Attempt: ex.attempt, Call: open[0].Call, Code: run.CodeOf(why), Name: open[0].Name, Path: open[0].Path, Run: ex.id,
		Reason: fmt.Sprintf("%q at step %s did not return after this, and was given up: nobody knows whether it took effect (%v)", open[0].Name, open[0].Path, why),
	}
	for _, o := range open[1:] {
		v.Reason += fmt.Sprintf("; nor whether %q at step %s did", o.Name, o.Path)
	}
	return end.pause(ctx, run.NeedsReview, why, journal.KindReview, v)
}

// store appends a batch, unless the execution was given up. Then the log of the run's home
// refuses it, and keeps the outcome of a call as evidence.
func (w *logWriter) store(ctx context.Context, b journal.Batch) (journal.Ack, error) {
	w.gate.RLock()
	defer w.gate.RUnlock()
	if w.closed && !w.ended {
		return journal.Ack{}, fmt.Errorf("flow: run %s was given up: %w", w.ex.id, run.ErrSuperseded)
	}
	if w.closed {
		b.Session = w.ex.home
	}
	return w.ex.rt.Store.Commit(ctx, b)
}

// announce notes the recorded intent of a call, and returns the reason if the execution must
// stop.
func (w *logWriter) announce(v journal.StepStarted) error {
	ex := w.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.intents == nil {
		ex.intents = map[run.Path]journal.StepStarted{}
	}
	ex.intents[v.Path] = v
	return ex.life.stopped()
}

// late returns the function for a result of a call that comes after the end of the call. It
// is evidence, in the log that has the call, or that has the end of the run.
func (r *round) late(c *toolCall) func(tool.Result) {
	st, tried := c.st, c.tried
	d := journal.StepCompleted{Call: r.callID(c), Effect: st.asked.Effect}
	return func(res tool.Result) {
		<-tried
		ex := r.ex
		out := tool.ResultOutcome(context.WithoutCancel(st.ctx), res.Body, ex.boxes.blobs())
		d.Path, d.Kind, d.Name, d.Input, d.Value, d.Failed = st.asked.Path, st.asked.Kind, st.asked.Name, st.asked.Input, string(out.Body), res.IsError
		d.Run, d.Attempt, d.Revision, d.Elapsed = ex.id, ex.attempt, ex.reg.Revision, time.Since(st.began).Milliseconds()
		d.Summary = excerpt.Clip("answered late: "+live.CallSummary(c.Name, cmp.Or(c.edited, c.Args), out), 200)
		r.mu.Lock()
		recorded := st.recorded
		r.mu.Unlock()
		if recorded && ex.log.keepLate(st.log, journal.KindLate, d) == nil {
			return
		}
		<-ex.concluded
		// The log refuses an outcome after the end, and keeps it as evidence.
		_ = ex.log.keepLate(ex.home, journal.KindStepCompleted, d)
	}
}

// keepLate appends a late outcome to a log.
func (w *logWriter) keepLate(log session.Key, kind string, d journal.StepCompleted) error {
	ex := w.ex
	e, err := journal.NewEvent(kind, d)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ex.life.ctx), finishTimeout)
	defer cancel()
	_, err = ex.rt.Store.Commit(ctx, journal.Batch{Session: log, Run: ex.id, Attempt: ex.attempt, Path: d.Path, Events: []session.Event{e}})
	return err
}
