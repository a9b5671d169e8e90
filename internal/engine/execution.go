package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/internal/engine/live"
	"github.com/rathcluster/rath/internal/engine/stepper"
	"github.com/rathcluster/rath/internal/engine/toolserver"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Execution is one attempt of a run on this node.
type Execution struct {
	rt      *Runtime
	reg     flow.Registration
	id      run.ID
	home    session.Key
	granted *journal.ClaimResult
	task    *journal.Task // of granted.Record
	attempt uint64
	input   session.Session
	result  session.Session

	mu       sync.Mutex // guards the fields up to leases
	state    run.State
	life     lifetime
	pos      position
	sessions sessions
	account  account
	inbox    inbox
	levels   levels
	cleans   *cleanup            // nil unless it is a cleanup run
	started  map[run.ID]*started // the runs that the code has started
	lines    lines
	loops    loops
	leases   lease.Held
	intents  map[run.Path]journal.StepStarted // of calls in flight
	tags     map[run.ID]run.Tags              // of the run and those around it; nil before the first change
	// progressed is set once it has recorded a step.
	progressed bool
	status     status
	// answerEnd and answerWord describe the last answer of a model to an agent, see
	// journal.Ended.
	answerEnd, answerWord string

	root      scope         // of Forward
	concluded chan struct{} // closed at the end of the execution

	flights live.Steps         // with a lock of its own
	servers toolserver.Servers // likewise

	// The parts of the execution. Each has a pointer back to it.
	ends    ending
	forks   forks
	joins   joins
	around  around
	signals signals
	log     logWriter
	files   files
	boxes   boxes
	mcp     toolServerUse
	models  modelUse
	values  reading
}

// newExecution returns an execution with its parts.
func newExecution(ex *Execution) *Execution {
	ex.ends.ex, ex.ends.log = ex, &ex.log
	ex.lines = lines{running: 1, changed: sync.NewCond(&ex.mu), of: map[run.Path]*line{}, over: map[run.Path]error{}}
	ex.loops = loops{open: map[run.Path]bool{}, ended: map[run.Path]int{}}
	ex.root.ex = ex
	ex.status.ex = ex
	ex.concluded = make(chan struct{})
	ex.forks.ex = ex
	ex.joins.ex = ex
	ex.around.ex = ex
	ex.signals.ex = ex
	ex.log.ex = ex
	ex.files.ex = ex
	ex.boxes.ex = ex
	ex.mcp.ex, ex.servers.Host = ex, &ex.mcp
	ex.models.ex = ex
	ex.values.ex = ex
	return ex
}

// State returns the state of the run: Running after the claim of this execution, the
// final state once Forward has returned.
func (ex *Execution) State() run.State { ex.mu.Lock(); defer ex.mu.Unlock(); return ex.state }

// Task returns the run's task, for reading.
func (ex *Execution) Task() *journal.Task { return ex.task }

// Record returns the run as its log held it at the claim, with the later signals of this
// execution. The caller must not change it.
func (ex *Execution) Record() *journal.Record { return ex.granted.Record }

// Run returns the run's id.
func (ex *Execution) Run() run.ID { return ex.id }

// Attempt returns the number of this attempt of the run, counted from one.
func (ex *Execution) Attempt() uint64 { return ex.attempt }

// Result returns the final session of the run. It must not be called before Forward has
// returned.
func (ex *Execution) Result() session.Session { return ex.result }

// Live returns a report of the steps in flight. It may be called at any time.
func (ex *Execution) Live() live.Report {
	l := live.Report{Attempt: ex.attempt}
	l.Since, l.Steps = ex.flights.Snapshot()
	return l
}

// Park lets the steps in flight end and be recorded, and releases the run before the next
// step: it resumes elsewhere or at the next start. A run that needs no further step ends.
// Park returns at once.
func (ex *Execution) Park() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.life.parked = true
}

// Forward runs the workflow to its end, or until ctx ends or the run has to stop, and
// records the outcome. It returns the state that the log then holds; Queued means that
// the run was released. The error is the reason why the run did not succeed; it is nil
// for Succeeded.
//
// When ctx ends, with the cause run.ErrShutdown or any other, the run is released: it
// resumes elsewhere or at the next start.
func (ex *Execution) Forward(ctx context.Context) (run.State, error) {
	if ex.state != run.Running {
		return ex.state, fmt.Errorf("flow: run %s is %s: %w", ex.id, ex.state, run.ErrState)
	}
	if ex.levels.stopReason != "" {
		return ex.ends.endUnneeded(ctx)
	}
	ex.life.ctx = ctx
	ex.flights.SetIdle(time.Now())
	w, err := ex.build()
	if err == nil {
		err = ex.forward(ctx, w)
	}
	return ex.conclude(ctx, err)
}

// forward runs the workflow until it ends or has to stop.
func (ex *Execution) forward(ctx context.Context, w flow.Workflow) (err error) {
	var stop func()
	ex.life.ctx, stop = ex.watch(ctx)
	defer stop()
	defer ex.status.close()
	if err = context.Cause(ex.life.ctx); !errors.Is(err, run.ErrDeadline) {
		ex.result, err = ex.callForward(ex.life.ctx, w)
	}
	switch {
	case ex.life.givenUp:
		return err
	case ex.levels.branch():
		ex.result, err = ex.around.leaveBranch(err)
	case ex.cleans != nil:
		ex.result, err = ex.compensate()
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if why := ex.life.stopped(); why != nil && err != nil && ex.life.poison == nil {
		ex.life.poison = why
	}
	return err
}

// conclude records the outcome of the execution.
func (ex *Execution) conclude(ctx context.Context, err error) (run.State, error) {
	defer close(ex.concluded)
	defer ex.boxes.endLeases()
	// The outcome must be recorded although ctx may have ended.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	finish := ex.ends.finish
	if ex.life.givenUp {
		finish = ex.ends.giveUp
	}
	state, err := finish(last, err)
	ex.mu.Lock()
	ex.state = state
	ex.mu.Unlock()
	return state, err
}

// endLeases releases the leases. The lease of the run's own session stays open for its
// next run, if there can be one and the log has the outcome of this one.
func (b *boxes) endLeases() {
	ex := b.ex
	ex.servers.Close()
	home := ex.home
	if s := ex.State(); s == run.Running || s.Terminal() && ex.task.Branch != nil {
		home = session.Key{}
	}
	ex.leases.Give(home, ex.rt.Leases)
}

// finishTimeout bounds the commits that end an execution.
const finishTimeout = 40 * time.Second

// watch derives the context of the run: it ends at the run's deadline with ErrDeadline,
// and when the run is cancelled with ErrCancelled.
func (ex *Execution) watch(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if end := ex.granted.Record.Deadline(); !end.IsZero() && !ex.rt.Clock.Now().Before(end) {
		cancel(run.ErrDeadline) // before the workflow is called
	}
	ex.mu.Lock()
	ex.life.force = make(chan struct{})
	ex.life.expire = func() { cancel(run.ErrDeadline) }
	ex.life.setDeadline(ex.rt.Clock, ex.granted.Record.Deadline())
	ex.mu.Unlock()
	unfollow := func() {}
	if at, ok := ex.granted.Session.Link(); ok {
		if why := ex.signals.receiveEvents(ex.granted.After); why != nil {
			cancel(why)
		}
		unfollow = ex.signals.follow(commitlog.Position{Seq: at.Seq, Hash: at.Hash, Token: at.Token}, cancel)
	}
	return ctx, func() {
		cancel(nil)
		unfollow()
		if ex.life.alarm != nil {
			ex.life.alarm.Stop()
		}
	}
}

// callForward calls the workflow in the outermost scope, until it returns or is given up.
func (ex *Execution) callForward(ctx context.Context, w flow.Workflow) (session.Session, error) {
	return ex.ends.await(ctx, func() (session.Session, error) {
		return ex.shielded(func() (session.Session, error) {
			return w.Forward(stepper.With(ctx, placeIn(&ex.root)), ex.input)
		})
	})
}

// build makes the workflow of the run.
func (ex *Execution) build() (flow.Workflow, error) {
	if ex.reg.NewFor != nil {
		return ex.reg.NewFor(ex.info("0", ""))
	}
	return ex.reg.New(), nil
}

// shielded calls the author's code and turns a panic into an error.
func (ex *Execution) shielded(forward func() (session.Session, error)) (s session.Session, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("flow: workflow %s panicked at %s: %v", ex.reg.Name, panicPlace(), p)
		}
	}()
	return forward()
}

// charge books the usage that a log recorded for this run before this attempt, whether
// the code reaches those steps or not: the run may end before. ex.mu is held.
func (ex *Execution) charge(j *journal.Journal) (used, lost session.Usage, steps int64) {
	return ex.account.charge(j, func(s *journal.Step) bool {
		return s.Attempt == ex.attempt || j != ex.pos.journal && ex.pos.journal.Has(s.Path)
	})
}

// replayed takes over the state of a recorded step. ex.mu is held.
func (ex *Execution) replayed(s *journal.Step) {
	ex.pos.advance(s.Time)
	ex.lines.advance(s.Path, s.Time)
	if !ex.levels.outer(s.Path) {
		ex.pos.newest = max(ex.pos.newest, s.Attempt)
		ex.levels.warming = ex.levels.warming && !modelAnswered(s.StepCompleted)
		ex.account.Unpriced = cmp.Or(ex.account.Unpriced, s.Unpriced())
	}
	ex.sessions.observe(s.Session)
}

// versionOf returns the newest version of a session that the run has seen.
func (f *forks) versionOf(k session.Key) session.Version {
	f.ex.mu.Lock()
	defer f.ex.mu.Unlock()
	if h := f.ex.sessions.held[k]; h != nil {
		return h.version
	}
	return 0
}

// holds reports whether the run that a path belongs to writes to a session.
func (f *forks) holds(path run.Path, k session.Key) bool {
	f.ex.mu.Lock()
	defer f.ex.mu.Unlock()
	return f.heldAt(path, k) != nil
}

// around reports whether a session is of a run around the one that a path belongs to.
func (f *forks) around(path run.Path, k session.Key) bool {
	f.ex.mu.Lock()
	defer f.ex.mu.Unlock()
	return f.ex.sessions.held[k] != nil && f.heldAt(path, k) == nil
}

// heldAt returns a session that the run at a path may extend; nil if the session is not
// its own. ex.mu is held.
func (f *forks) heldAt(path run.Path, k session.Key) *heldSession {
	if h := f.ex.sessions.held[k]; h != nil && (!h.outer || f.ex.levels.outer(path)) && !foreign(f.ex, path, k, h) {
		return h
	}
	return nil
}

// commitDone appends a step's record with the pending edits of s and content.
func (w *logWriter) commitDone(ctx context.Context, log session.Key, s session.Session, d journal.StepCompleted, content ...session.Event) (journal.Ack, error) {
	ex := w.ex
	d.Run, d.Attempt, d.Revision = ex.id, ex.attempt, ex.reg.Revision
	var events []session.Event
	if s.Key() == log {
		for e := range s.Pending() {
			events = append(events, e)
		}
	}
	for _, e := range content {
		if e.Kind == session.KindChunk {
			d.Usage = usageOf(e, d.Usage)
		}
	}
	// Lost usage is booked already.
	used := d.Usage
	d.Usage = d.Usage.Add(d.Lost)
	events = append(events, content...)
	warmed, err := ex.around.releaseAfter(d)
	if err != nil {
		return journal.Ack{}, err
	}
	done, err := journal.NewEvent(journal.KindStepCompleted, d)
	if err != nil {
		return journal.Ack{}, err
	}
	took := &taken{used, 1 + d.Steps}
	ack, err := w.commit(ctx, log, s, d.Path, took, append(append(events, warmed...), done)...)
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.account.recorded(d.Lost, used, err)
	if err == nil || errors.Is(err, run.ErrCancelled) { // after a cancel the log takes outcomes of announced calls
		delete(ex.intents, d.Announced())
	}
	if h := ex.sessions.held[log]; err == nil && h != nil {
		h.used, h.lost, h.steps = h.used.Add(d.Usage), h.lost.Add(d.Lost), h.steps+1+d.Steps
	}
	if err == nil && (d.Kind == journal.StepAwait || d.Kind == journal.StepResult || d.Inbox > 0) {
		ex.inbox.take(d.Inbox, d.Path)
	}
	ex.account.Unpriced = cmp.Or(ex.account.Unpriced, d.Unpriced())
	return ack, err
}

func usageOf(e session.Event, sum session.Usage) session.Usage {
	c, err := session.DecodeChunk(e)
	if err != nil || sum != (session.Usage{}) {
		return sum
	}
	return c.Origin().Usage
}

// taken is the part of the budget that a batch uses: one step and the steps of the
// branches that it gathered, with their usage.
type taken struct {
	used  session.Usage
	steps int64
}

// commit appends a batch. It waits for the outcome although ctx may end, because the
// execution must have the state of the log. took is nil unless the batch records a step.
func (w *logWriter) commit(ctx context.Context, log session.Key, s session.Session, path run.Path, took *taken, events ...session.Event) (journal.Ack, error) {
	ex := w.ex
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	var base session.Version
	if s.Key() == log {
		base = s.Committed().Ref().Version
	}
	ack, err := w.append(bounded, journal.Batch{
		Session: log, Run: ex.id, Attempt: ex.attempt, Path: path, Base: base, Events: events,
	})
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if err != nil {
		return ack, ex.life.stop(err)
	}
	if took != nil {
		if !ex.progressed && ack.Recorded == nil && ex.rt.OnFirstStep != nil {
			ex.progressed = true
			ex.rt.OnFirstStep(ex.home, ex.id)
		}
		ex.pos.advance(ack.Time)
		ex.lines.advance(path, ack.Time)
		ex.account.Account = ex.account.Settle(0, took.steps, took.used)
	}
	ex.sessions.observe(ack.Session)
	ex.rt.Values.Keep(ack.Session)
	return ack, nil
}

// note commits an event outside of any step, after the events in with.
func (w *logWriter) note(ctx context.Context, k session.Key, kind string, payload any, with ...session.Event) (journal.Ack, error) {
	e, err := journal.NewEvent(kind, payload)
	if err != nil {
		return journal.Ack{}, err
	}
	return w.append(ctx, journal.Batch{Session: k, Run: w.ex.id, Attempt: w.ex.attempt, Events: append(with, e)})
}

func (w *logWriter) warn(ctx context.Context, text string) {
	ex := w.ex
	if ex.rt.OnWarning != nil {
		ex.rt.OnWarning(ex.id, text)
	}
	// A warning that cannot be recorded must not fail the run.
	_, _ = w.note(ctx, ex.home, journal.KindWarning, journal.Warning{Run: ex.id, Text: excerpt.Clip(text, 1<<10)})
}

// failed poisons the run with control errors and returns err.
func (ex *Execution) failed(err error) error {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.life.stop(err)
}

// The parts of an execution.
type (
	// ending records the outcome of an execution.
	ending struct {
		ex  *Execution
		log *logWriter // that of the execution, or one of its own
	}
	// forks creates sessions: begun, forked, and claimed for the run.
	forks struct{ ex *Execution }
	// joins merges branches, and disposes of them.
	joins struct{ ex *Execution }
	// around replays the runs around a branch, and lets its siblings begin.
	around struct{ ex *Execution }
	// signals waits for signals from outside, and receives them.
	signals struct{ ex *Execution }
	// logWriter appends records and events to the logs of the run.
	logWriter struct {
		ex *Execution
		// gate is held for reading during each append. closed means that the execution was
		// given up, so that its steps append nothing any more, and ended that the log has
		// its end.
		gate          sync.RWMutex
		closed, ended bool
	}
	// files compares and merges the files of sessions.
	files struct{ ex *Execution }
	// boxes opens the sandboxes of sessions.
	boxes struct {
		ex   *Execution
		lack sync.Once // the author was warned that tools lack a sandbox
	}
	// toolServerUse is the run as its tool servers see it.
	toolServerUse struct{ ex *Execution }
	// modelUse accounts for the calls of models.
	modelUse struct{ ex *Execution }
	// reading reads other sessions.
	reading struct{ ex *Execution }
)
