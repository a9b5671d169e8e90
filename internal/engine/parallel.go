package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/stepper"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// lines are the lines of execution of a run: Forward, and the functions of its Gathers. The
// run waits once each line waits. The execution's mu guards them.
type lines struct {
	running int        // the lines that do not wait
	waits   []*waiting // of the others
	changed *sync.Cond
	// suspending is set during the commit of the run's wait.
	suspending bool
	of         map[run.Path]*line // the functions of Gathers, by the paths above their steps
	// events are the places of the last events that lines have, by their logs; those of
	// Forward have no line.
	events map[*line]map[session.ID]eventPlace
	// over are the Gathers that make no more steps, with the reason.
	over map[run.Path]error
}

// line is a function of a Gather.
type line struct {
	g    *gathering
	last time.Time // of its last recorded step
}

// waiting is what a line waits for.
type waiting struct {
	at    run.Path
	until journal.RunWaiting
}

// gathering is a Gather in flight. The execution's mu guards it.
type gathering struct {
	ex     *Execution
	ctx    context.Context
	cancel context.CancelCauseFunc
	path   run.Path
	limit  int
	fns    []func(context.Context) error
	errs   []error
	began  time.Time // the time of the last step before it
	cut    bool      // by the first error
	// The functions that were called, those of them that have not returned, and those of
	// these that do not wait.
	next, left, active int
	shared             map[session.Key]bool // the sessions of all functions: read, never extended
}

// errCut ends a function of a Gather after the error of another one.
var errCut = fmt.Errorf("flow: another function of the Gather failed: %w", context.Canceled)

// Gather is flow.Gather.
func (p *waits) Gather(ctx context.Context, limit int, fns []func(context.Context) error) error {
	began := p.Now()
	st, err := p.begin(ctx, journal.StepParallel, "", session.Session{}, false, "", strconv.Itoa(len(fns)))
	if err != nil {
		return err
	}
	defer st.end()
	g := &gathering{ex: st.ex, path: st.asked.Path, limit: limit, fns: fns, errs: make([]error, len(fns)), began: began, shared: map[session.Key]bool{}}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	defer g.cancel(nil)
	return st.make(func() error {
		var v journal.Parallel
		if err := json.Unmarshal([]byte(st.record.Value), &v); err != nil || v.Started > len(fns) {
			return fmt.Errorf("%w: step %s recorded no calls of functions", run.ErrMismatch, g.path)
		}
		g.ends(v.Cut)
		g.fns = fns[:v.Started]
		err := st.authored(g.run())
		if err == nil { // the failed operation made no step
			err = st.record.Code.Err(st.record.Error)
		}
		return err
	}, func() (d journal.StepCompleted, err error) {
		failed := g.run()
		st.ex.mu.Lock()
		stop := st.ex.life.mayGoOn()
		st.ex.mu.Unlock()
		if stop != nil {
			return d, stop
		}
		g.ends(g.cut)
		d.Summary = "calls " + excerpt.Counted(len(fns), "function")
		if failed != nil {
			d.Summary = excerpt.Clip(d.Summary+": "+excerpt.FirstLine(failed.Error()), 200)
		}
		if d.Value, err = canonical.Marshal(journal.Parallel{Cut: g.cut, Started: g.next}); err != nil {
			return d, err
		}
		return d, came(st.authored(failed))
	})
}

// ends lets the functions of a Gather make only the steps that are recorded.
func (g *gathering) ends(cut bool) {
	g.ex.mu.Lock()
	defer g.ex.mu.Unlock()
	why := errCut
	if !cut {
		why = fmt.Errorf("%w: the functions of the Gather at step %s have returned, and their contexts make no further step", run.ErrMismatch, g.path)
	}
	g.ex.lines.over[g.path] = why
}

// run calls the functions, and returns their errors in order.
func (g *gathering) run() error {
	ex := g.ex
	wake := context.AfterFunc(ex.life.ctx, func() {
		ex.mu.Lock()
		defer ex.mu.Unlock()
		ex.lines.changed.Broadcast()
	})
	defer wake()
	ex.mu.Lock()
	defer ex.mu.Unlock()
	for k := range ex.sessions.held {
		g.shared[k] = true
	}
	g.launch()
	ex.lines.running-- // until the last function returns
	if g.left == 0 {
		ex.lines.running++
	}
	for !g.done() {
		ex.lines.changed.Wait()
	}
	for i := range g.next {
		ex.lines.close(g.path.Index(i))
	}
	return g.err()
}

// err returns the errors of the functions, except of those that another one ended.
func (g *gathering) err() error {
	return errors.Join(slices.DeleteFunc(slices.Clone(g.errs), func(err error) bool { return errors.Is(err, errCut) })...)
}

// stopped reports whether no further function is called. ex.mu is held.
func (g *gathering) stopped() bool { return g.cut || g.ex.life.mayGoOn() != nil }

// done reports whether all functions have returned. ex.mu is held.
func (g *gathering) done() bool { return g.left == 0 && (g.next == len(g.fns) || g.stopped()) }

// launch calls functions up to the limit. ex.mu is held.
func (g *gathering) launch() {
	for g.active < g.limit && g.next < len(g.fns) && !g.stopped() {
		i, at := g.next, g.path.Index(g.next)
		l := &line{g: g, last: g.began}
		g.ex.lines.of[at] = l
		g.next, g.left, g.active = g.next+1, g.left+1, g.active+1
		g.ex.lines.running++
		go g.call(i, &scope{ex: g.ex, prefix: at, line: l})
	}
}

// call calls a function.
func (g *gathering) call(i int, sc *scope) {
	err := errors.New("flow: the function of the Gather did not return")
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("flow: workflow %s panicked at %s: %v", g.ex.reg.Name, panicPlace(), p)
		}
		g.returned(i, err)
	}()
	err = g.fns[i](stepper.With(g.ctx, placeIn(sc)))
}

// returned notes the end of a function. The first error ends the others.
func (g *gathering) returned(i int, err error) {
	ex := g.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	g.errs[i] = err
	if err != nil && !g.stopped() && ex.lines.over[g.path] == nil {
		g.cut = true
		ex.lines.over[g.path] = errCut
		g.cancel(errCut)
	}
	g.left, g.active = g.left-1, g.active-1
	ex.lines.running--
	g.launch()
	if g.done() {
		ex.lines.running++ // the line of the Gather
	}
	ex.lines.changed.Broadcast()
}

// above returns the entry of the nearest path above p.
func above[V any](all map[run.Path]V, p run.Path) (v V, ok bool) {
	for len(all) > 0 && p != "" {
		p = p.Parent()
		if v, ok = all[p]; ok {
			return v, true
		}
	}
	return v, false
}

// ended returns the reason why the step at a path must have a record. ex.mu is held.
func (l *lines) ended(p run.Path) error {
	why, _ := above(l.over, p)
	return why
}

// cut reports whether a path is below a Gather that an error ended. ex.mu is held.
func (l *lines) cut(p run.Path) bool { return errors.Is(l.ended(p), errCut) }

// advance takes over the time of a record of a line, and of those around it. ex.mu is held.
func (l *lines) advance(p run.Path, t time.Time) {
	for one, ok := above(l.of, p); ok; one, ok = above(l.of, one.g.path) {
		if t.After(one.last) {
			one.last = t
		}
	}
}

// around yields a line and the lines around it, up to Forward's, which is nil. Their steps
// are before the next step of the line in each execution, and those of other functions of
// a Gather are not. ex.mu is held.
func (l *lines) around(one *line) iter.Seq[*line] {
	return func(yield func(*line) bool) {
		for yield(one) && one != nil {
			one, _ = above(l.of, one.g.path)
		}
	}
}

// inGather returns an error for an operation that a function of a Gather cannot make.
func inGather(ex *Execution, p run.Path, what string) error {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if one, ok := above(ex.lines.of, p); ok {
		return fmt.Errorf("flow: %s in a function of the Gather at step %s: %w", what, one.g.path, run.ErrNotSupported)
	}
	return nil
}

// mayExtend returns an error if a function of a Gather extends a session that others may
// read.
func mayExtend(ex *Execution, p run.Path, s session.Session) error {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	for one, ok := above(ex.lines.of, p); ok; one, ok = above(ex.lines.of, one.g.path) {
		if one.g.shared[s.Key()] {
			return fmt.Errorf("flow: step %s extends session %s in a function of the Gather at step %s: %w; work on a Detach of it, or on branches of a FanOut", p, s.Key().ID, one.g.path, run.ErrNotSupported)
		}
	}
	return nil
}

// wait returns the received signals once all of ws have come, or one of them if first is
// set. If no other line of the run works until then, wait records that the run waits, and
// stops the execution.
func (s *signals) wait(ctx context.Context, ws []journal.Wait, timeout time.Duration, first bool) ([]journal.SignalReceived, error) {
	ex := s.ex
	due := int64(0)
	if timeout != 0 {
		due = ex.rt.Clock.Now().Add(timeout).UnixMilli()
	}
	for i := range ws {
		w := &ws[i]
		w.Title, w.Detail = excerpt.Clip(w.Title, maxTitle), excerpt.Clip(w.Detail, journal.MaxDetail)
		if due != 0 && (w.Kind != run.WaitTimer || w.Due == 0) {
			w.Due = due
		}
		if before := ex.granted.Record.Due[w.Path]; before != 0 {
			w.Due = before
		}
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	l, one := &ex.lines, &waiting{ws[0].Path, journal.RunWaiting{Any: first, For: ws}}
	defer l.block(one)()
	for {
		if err := ex.life.mayGoOn(); err != nil {
			return nil, err
		}
		switch {
		case l.suspending:
		case one.until.Came(ex.inbox.signals):
			return slices.Clone(ex.inbox.signals), nil
		case l.ended(one.at) != nil:
			return nil, l.ended(one.at)
		case l.running == 0:
			if err := s.suspend(ctx); err != nil {
				return nil, err
			}
			continue
		}
		l.changed.Wait()
	}
}

// block notes that a line waits, until the returned function is called. ex.mu is held.
func (l *lines) block(one *waiting) (resume func()) {
	working := func(n int) {
		l.running += n
		if of, ok := above(l.of, one.at); ok {
			of.g.active += n
			of.g.launch()
		}
	}
	l.waits = append(l.waits, one)
	working(-1)
	return func() {
		l.waits = slices.DeleteFunc(l.waits, func(o *waiting) bool { return o == one })
		working(1)
	}
}

// suspend records that the run waits for its lines, and returns run.ErrSuspended, or nil
// if a signal has come for one of them. ex.mu is held, except during the commit.
func (s *signals) suspend(ctx context.Context) error {
	ex, l := s.ex, &s.ex.lines
	v := journal.RunWaiting{Any: len(l.waits) > 1, Attempt: ex.attempt, Revision: ex.reg.Revision, Run: ex.id}
	for _, one := range l.waits {
		v.Any = v.Any || one.until.Any
		v.For = append(v.For, slices.DeleteFunc(slices.Clone(one.until.For), func(w journal.Wait) bool { return w.Came(ex.inbox.signals) })...)
	}
	v.Any = v.Any && len(v.For) > 1
	release, err := ex.around.releaseSiblings()
	if err != nil {
		return err
	}
	e, err := journal.NewEvent(journal.KindRunWaiting, v)
	if err != nil {
		return err
	}
	l.suspending = true
	ex.mu.Unlock()
	ack, err := ex.log.commit(ctx, ex.home, session.Session{}, "", nil, append(release, e)...)
	if err == nil && ack.State != run.Waiting {
		s.receive(ack.Inbox...)
	}
	ex.mu.Lock()
	l.suspending = false
	l.changed.Broadcast()
	switch {
	case err != nil:
		return err
	case ack.State == run.Waiting:
		return ex.life.stop(fmt.Errorf("%w: it waits for %s at step %s", run.ErrSuspended, v.For[0].Kind, v.For[0].Path))
	case !slices.ContainsFunc(l.waits, func(one *waiting) bool { return one.until.Came(ex.inbox.signals) }):
		return fmt.Errorf("flow: run %s has the signals that it waits for at step %s, but its inbox lacks them", ex.id, v.For[0].Path)
	}
	return nil
}
