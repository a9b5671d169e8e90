package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/stepper"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// loops are the loops of an execution. The execution's mu guards them.
type loops struct {
	// open are the iterations in flight, and whether their loops have the session of the
	// run.
	open map[run.Path]bool
	// ended are the numbers of iterations that have ended, by the paths of their loops: the
	// code ran them to their ends, or goes on after them.
	ended map[run.Path]int
}

// loop is a Loop in flight.
type loop struct {
	*step
	line  *line
	state any
	body  func(context.Context, session.Session) (session.Session, bool, error)
	has   bool // the session of the run
	text  string
}

// Loop is flow.Loop.
func (p *waits) Loop(ctx context.Context, name string, s session.Session, state any, body func(context.Context, session.Session) (session.Session, bool, error)) (session.Session, error) {
	text, err := stateText(state)
	if err == nil {
		err = mayLoop(&p.spot, s)
	}
	if err != nil {
		return s, fmt.Errorf("flow: loop %q: %w", name, err)
	}
	st, err := p.begin(ctx, journal.StepLoop, name, s, s.PendingDigest() != "", "", text)
	if err != nil {
		return s, err
	}
	defer st.end()
	l := &loop{step: st, line: p.sc.line, state: state, body: body, has: s.Len() > 0 || !s.Unborn(), text: text}
	if err := st.make(nil, func() (d journal.StepCompleted, err error) {
		d.Summary = "opens loop " + name
		d.Value, err = canonical.Marshal(journal.Iteration{More: true, State: text})
		return d, err
	}); err != nil {
		return s, err
	}
	if !l.has {
		st.after = s
	}
	n, more, err := l.resume()
	for ; more && err == nil; n++ {
		more, err = l.iterate(n)
	}
	return st.after, err
}

// mayLoop returns an error for a session that no loop can have.
func mayLoop(p *spot, s session.Session) error {
	if p.in != nil || s.Unborn() && s.Len() == 0 {
		return nil // begin refuses the first
	}
	at, ex := p.sc.path(), p.sc.ex
	if err := mayExtend(ex, at, s); err != nil {
		return err
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	home := slices.ContainsFunc(ex.levels.all, func(one level) bool { return one.home == s.Key() })
	if !home || ex.forks.heldAt(at, s.Key()) == nil {
		return fmt.Errorf("it is given session %s: %w; give it the session that Forward got, or session.Session{}, and keep references to others in its state", s.Key().ID, run.ErrNotSupported)
	}
	return ex.sessions.newest(ex.sessions.rebase(s))
}

// newest returns an error if s is not the newest value of a session.
func (l *sessions) newest(s session.Session) error {
	if h := l.held[s.Key()]; s.Committed().Ref().Version != h.version {
		return fmt.Errorf("version %d of session %s was extended to %d: use the newest value, or work on a Fork", s.Ref().Version, s.Key().ID, h.version)
	}
	return nil
}

// stateText returns the state of a loop as JSON, and sets it to the decoded one.
func stateText(state any) (string, error) {
	raw, err := roundTrip(state)
	switch {
	case err != nil:
		return "", fmt.Errorf("JSON cannot hold its state: %w", err)
	case len(raw) > flow.MaxLoopState:
		return "", fmt.Errorf("its state has %d bytes: %w; it has at most %d: keep the rest in the session, in files or in a memory", len(raw), session.ErrTooLarge, flow.MaxLoopState)
	}
	return string(raw), nil
}

// resume takes over the newest end of an iteration, and returns the number of the next
// one. A replay that compares the code with the records runs each iteration from its
// recorder's on, and a branch the one that opened it.
func (l *loop) resume() (n int, more bool, err error) {
	ex, path := l.ex, l.asked.Path
	owner := ex.levels.owner(path).run
	ex.tagsOf(owner) // which makes the map
	ex.mu.Lock()
	defer ex.mu.Unlock()
	n = ex.pos.journal.Iterations(path)
	if to, ok := journal.IterationOf(path, ex.levels.own().path); ok {
		n = min(n, to)
	}
	if r := ex.pos.recorder; r != nil {
		for n > r.from && !ex.levels.outer(path.Index(n-1)) {
			n--
		}
	}
	end := ex.pos.journal.Step(path.Index(n - 1))
	if n == 0 || end == nil {
		return 0, true, nil
	}
	v, err := end.Iteration()
	if err == nil {
		fresh := reflect.New(reflect.TypeOf(l.state).Elem())
		if err = json.Unmarshal([]byte(v.State), fresh.Interface()); err == nil {
			reflect.ValueOf(l.state).Elem().Set(fresh.Elem())
		}
	}
	if err != nil {
		ex.pos.mismatch = end
		return n, false, ex.life.stop(fmt.Errorf("%w: step %s recorded a state of loop %q that is no %v: %w", run.ErrMismatch, end.Path, l.asked.Name, reflect.TypeOf(l.state).Elem(), err))
	}
	ex.replayed(end)
	if l.text = v.State; l.has {
		l.after = end.Session
	}
	if v.Tags != nil {
		ex.tags[owner] = *v.Tags
	}
	if !ex.levels.outer(end.Path) {
		ex.answerEnd, ex.answerWord = v.Finish, v.Word
		ex.status.n = max(ex.status.n, v.Statuses)
	}
	for log, seq := range v.Events {
		ex.lines.got(l.line, log, eventPlace{seq, v.Since[log]})
	}
	ex.loops.ended[path] = n
	return n, v.More, nil
}

// Loops reports whether an iteration of a loop has ended in this execution, or before it.
func (ex *Execution) Loops() bool { ex.mu.Lock(); defer ex.mu.Unlock(); return len(ex.loops.ended) > 0 }

// passed reports whether a path belongs to an iteration that has ended.
func (l *loops) passed(p run.Path) bool {
	for loop, ended := range l.ended {
		if n, ok := journal.IterationOf(loop, p); ok && n < ended {
			return true
		}
	}
	return false
}

// around returns the innermost iteration in flight that a path belongs to, "" without one.
func (l *loops) around(p run.Path) run.Path {
	for ; len(l.open) > 0 && p != ""; p = p.Parent() {
		if _, ok := l.open[p]; ok {
			return p
		}
	}
	return ""
}

// foreign reports whether the code of an iteration got a session from outside of it. A
// later execution may not reach the steps that extended it, so the run does not hold it
// there. ex.mu is held.
func foreign(ex *Execution, path run.Path, k session.Key, h *heldSession) bool {
	at := ex.loops.around(path)
	of := ex.levels.owner(path)
	return at != "" && ex.levels.owner(at).run == of.run && !h.at.Within(at) && !(k == of.home && ex.loops.open[at])
}

// iterate runs an iteration of the loop and records its end.
func (l *loop) iterate(n int) (more bool, err error) {
	ex, at := l.ex, l.asked.Path.Index(n)
	sc := &scope{ex: ex, prefix: at, line: l.line}
	ex.mu.Lock()
	ex.loops.open[at] = l.has
	ex.mu.Unlock()
	ended := false
	defer func() { l.leave(sc, ended) }()
	s, more, err := l.body(stepper.With(l.ctx, placeIn(sc)), l.after)
	if err != nil {
		l.after = s
		return false, err
	}
	before := l.text
	if l.text, err = stateText(l.state); err == nil {
		err = l.returned(s, at)
	}
	if err == nil {
		err = ex.ends.closeBranches(l.ctx, at, s, session.ClosedRejected, "left open by an iteration of loop "+l.asked.Name)
	}
	if err != nil {
		return false, l.fail(fmt.Errorf("flow: iteration %d of loop %q: %w", n, l.asked.Name, err))
	}
	st := ex.newStep(l.ctx, ex.levels.owner(at).home, s, journal.StepRequest{Path: at, Kind: journal.StepIteration, Name: l.asked.Name, Input: ex.sessions.inputDigest(s, []string{l.text, fmt.Sprint(more)})})
	ex.mu.Lock()
	st.s = ex.sessions.rebase(s)
	ex.mu.Unlock()
	if ex.rt.OnStep != nil {
		ex.rt.OnStep(ex.levels.owner(at).run, at, caller())
	}
	if err = st.shorten(s); err == nil {
		err = st.decide()
	}
	if st.decision == journal.Mismatch && st.record != nil {
		err = fmt.Errorf("%w: the code ends it with the state %s, and more=%v: its body depends on something besides the state, or has changed", err, excerpt.Clip(l.text, maxShownInput), more)
	}
	if err != nil {
		return false, st.fail(err)
	}
	if err := st.make(nil, func() (journal.StepCompleted, error) { return l.ended(at, before, more) }); err != nil {
		return false, err
	}
	if ended = true; l.has {
		l.after = st.after
	}
	return more, nil
}

// returned checks the session that the body of an iteration returned, and that the body
// reached each recorded step.
func (l *loop) returned(s session.Session, at run.Path) error {
	ex := l.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	switch {
	case l.has && s.Key() != l.after.Key():
		return fmt.Errorf("the body returned session %s, not the next value of the session that it got: Adopt the other one into it", s.Key().ID)
	case l.has:
		if err := ex.sessions.newest(ex.sessions.rebase(s)); err != nil {
			return fmt.Errorf("the body returned a session: %w", err)
		}
	case s.Len() > 0 || !s.Unborn():
		return fmt.Errorf("the body returned session %s, and the loop has none: give the session to Loop, or return session.Session{}", s.Key().ID)
	}
	return ex.pos.unreached(func(p run.Path) bool {
		closes := p == at || p.Within(at.Child("end")) || p.Within(journal.CommitPath(at))
		return !p.Within(at) || closes || ex.levels.outer(p) || ex.lines.cut(p) || ex.loops.passed(p)
	})
}

// ended returns the record of the end of an iteration.
func (l *loop) ended(at run.Path, before string, more bool) (d journal.StepCompleted, err error) {
	ex := l.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if err := ex.account.Check(); err != nil {
		return d, came(err)
	}
	if n := len(ex.lines.events[l.line]); n > flow.MaxLoopEvents {
		return d, came(fmt.Errorf("flow: loop %q has awaited events of %d names and keys: %w; at most %d: await the events of each in a run that it Starts", l.asked.Name, n, run.ErrNotSupported, flow.MaxLoopEvents))
	}
	v := journal.Iteration{Events: map[session.ID]uint64{}, Since: map[session.ID]int64{}, Finish: ex.answerEnd, Word: ex.answerWord, From: journal.StateDigest(before), More: more, State: l.text, Statuses: ex.status.n}
	for log, e := range ex.lines.events[l.line] {
		v.Events[log], v.Since[log] = e.seq, e.since
	}
	if tags := ex.tags[ex.levels.owner(at).run]; tags != nil {
		v.Tags = new(maps.Clone(tags))
	}
	for _, h := range ex.sessions.held {
		if h.at.Within(at) {
			v.Usage, v.Lost, v.Steps = v.Usage.Add(h.used), v.Lost.Add(h.lost), v.Steps+h.steps
		}
	}
	d.Summary = "ends an iteration of loop " + l.asked.Name
	if !more {
		d.Summary = "ends loop " + l.asked.Name
	}
	d.Value, err = canonical.Marshal(v)
	return d, err
}

// leave closes the scope of an iteration, whose context makes no further step. Once its end
// is recorded, this execution forgets its parts that a later one does not reach.
func (l *loop) leave(sc *scope, ended bool) {
	ex, at := l.ex, sc.prefix
	ex.mu.Lock()
	defer ex.mu.Unlock()
	sc.busy = true
	delete(ex.loops.open, at)
	if !ended {
		return
	}
	n, _ := journal.IterationOf(l.asked.Path, at)
	maps.DeleteFunc(ex.loops.ended, func(p run.Path, _ int) bool { return p.Within(at) })
	ex.loops.ended[l.asked.Path] = n + 1
	maps.DeleteFunc(ex.pos.versions, func(_ decided, v version) bool { return v.in.Within(at) })
	maps.DeleteFunc(ex.started, func(_ run.ID, one *started) bool { return one.at.Within(at) })
	for _, one := range ex.started {
		maps.DeleteFunc(one.of, func(_ *line, p run.Path) bool { return p.Within(at) })
	}
	maps.DeleteFunc(ex.sessions.held, func(_ session.Key, h *heldSession) bool { return h.at.Within(at) })
	ex.sessions.branches = slices.DeleteFunc(ex.sessions.branches, func(k session.Key) bool { return ex.sessions.held[k] == nil })
	ex.sessions.fanOut = slices.DeleteFunc(ex.sessions.fanOut, func(f *fanOutBranch) bool { return f.at.Within(at) })
	ex.inbox.signals = slices.DeleteFunc(ex.inbox.signals, func(v journal.SignalReceived) bool { return v.Kind != journal.Message && v.Path.Within(at) })
}
