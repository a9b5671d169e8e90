package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Driver does in one process what the nodes of a fleet do for each other: it
// runs the branches that a commit opens, brings signals to their sessions,
// fires timers, and goes on with a run that waited. [Runtime.Run] has one of
// its own; tests and programs that keep their log elsewhere than in memory give
// a Driver's Committed to run.DirectOptions.OnCommit. It is safe for concurrent
// use.
type Driver struct {
	// Workflows are what remote branches name; nil has none.
	Workflows *Registry

	mu    sync.Mutex
	trees map[session.ID][]*tree // by their root sessions
}

// tree is one run under way with everything that it opened.
type tree struct {
	d    *Driver
	rt   *Runtime
	reg  Registration
	main run.ID
	ctx  context.Context
	wake chan struct{} // the main run may go on

	mu     sync.Mutex
	heard  bool            // of a commit
	busy   int             // pieces of work under way
	idle   chan struct{}   // closed when there is none any more; made by who waits
	runs   map[run.ID]bool // of the tree
	timers map[*time.Timer]struct{}
	over   bool
	failed error
	broken chan struct{} // closed with failed
	work   sync.WaitGroup
	slots  chan struct{}
}

const (
	// localBranches bounds the branches of one tree that execute at once.
	localBranches = 256
	// localTries is how often work is tried that an error of the log stopped.
	localTries = 5
	localPause = 20 * time.Millisecond
)

// Committed takes a commit and starts what follows from it. It does not wait.
func (d *Driver) Committed(e session.Entry) {
	d.mu.Lock()
	trees := slices.Clone(d.trees[e.Commit.Root])
	d.mu.Unlock()
	if len(trees) == 0 {
		return
	}
	work, err := run.Derive(e)
	for _, t := range trees {
		t.mu.Lock()
		t.heard = true
		t.mu.Unlock()
		if err != nil {
			t.fail(err)
			continue
		}
		for _, w := range work {
			if t.owns(w) {
				t.do(w)
			}
		}
		for _, ev := range e.Commit.Events {
			if ev.Kind != run.KindWaiting {
				continue
			}
			if s, err := run.Read[run.Suspended](ev); err == nil && t.has(s.Run) {
				for _, w := range s.For {
					t.at(w.Due, e.Commit.Key)
				}
				t.tell(e.Commit.Key, s)
			}
		}
	}
}

// owns reports whether work is for a run of the tree; a branch that one of its
// runs opens joins it.
func (t *tree) owns(w run.Work) bool {
	if w.Signal != nil {
		return t.has(w.Signal.Run)
	}
	if b := w.Task.Branch; b != nil && t.has(b.Ancestors[len(b.Ancestors)-1].Run) {
		t.mu.Lock()
		t.runs[w.Task.ID] = true
		t.mu.Unlock()
	}
	return t.has(w.Task.ID)
}

// adopt finds the runs of the tree in a history, whose sessions may come in any
// order.
func (t *tree) adopt(history []session.Entry) {
	for known := 0; known != len(t.runs); {
		known = len(t.runs)
		for _, e := range history {
			for _, ev := range e.Commit.Events {
				if ev.Kind != run.KindFanOut {
					continue
				}
				if f, err := run.Read[run.FanOut](ev); err == nil && t.runs[f.Run] {
					for _, b := range f.Branches {
						t.runs[run.ID(b.Session)] = true
					}
				}
			}
		}
	}
}

func (t *tree) has(id run.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.runs[id]
}

// Run runs a task to its end, with all its branches, and returns its
// execution. It ends early when ctx does, or when a person has to decide; then
// the state says so. history are the commits of a former process over the same
// log: what followed from them is done again, which is harmless.
func (d *Driver) Run(ctx context.Context, rt *Runtime, g Registration, t run.Task, history ...session.Entry) (*Execution, run.State, error) {
	return d.run(ctx, rt, g, t, session.Session{}, history)
}

func (d *Driver) run(ctx context.Context, rt *Runtime, g Registration, task run.Task, s session.Session, history []session.Entry) (ex *Execution, state run.State, err error) {
	inside, cancel := context.WithCancel(ctx)
	root := s.Root()
	if s.Unborn() {
		root = task.Session.ID
	}
	t := &tree{
		d: d, rt: rt, reg: g, main: task.ID, ctx: inside, wake: make(chan struct{}, 1),
		broken: make(chan struct{}), runs: map[run.ID]bool{task.ID: true}, timers: map[*time.Timer]struct{}{}, slots: make(chan struct{}, localBranches),
	}
	d.mu.Lock()
	if d.trees == nil {
		d.trees = map[session.ID][]*tree{}
	}
	d.trees[root] = append(d.trees[root], t)
	d.mu.Unlock()
	defer func() {
		t.end()
		cancel()
		t.work.Wait()
		d.mu.Lock()
		if d.trees[root] = slices.DeleteFunc(d.trees[root], func(o *tree) bool { return o == t }); len(d.trees[root]) == 0 {
			delete(d.trees, root)
		}
		d.mu.Unlock()
	}()
	t.adopt(history)
	for _, e := range history {
		d.Committed(e)
	}
	for {
		if ex, err = rt.begin(ctx, g, task, s); err != nil {
			return nil, "", err
		}
		if state = ex.State(); state == run.Running {
			state, err = ex.Forward(ctx)
		}
		if state != run.Waiting {
			return ex, state, t.settled(err)
		}
		if !t.hears() {
			return ex, state, errDeaf
		}
		select {
		case <-t.wake:
		case <-t.broken:
			return ex, state, t.settled(nil)
		case <-ctx.Done():
			return ex, state, ctx.Err()
		}
		task.Resume = true
	}
}

// errDeaf is returned instead of waiting for what can never come.
var errDeaf = errors.New("flow: the run waits, and the runtime does not learn of commits, so nothing will go on: " +
	"set run.DirectOptions.OnCommit of its Store to Runtime.Committed, or leave Store empty")

// hears reports whether the log tells the Driver of its commits.
func (t *tree) hears() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.heard
}

// begin starts a piece of work in a goroutine. t.mu is held.
func (t *tree) begin(f func()) {
	t.busy++
	t.work.Go(func() {
		f()
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.busy--; t.busy == 0 && t.idle != nil {
			close(t.idle)
			t.idle = nil
		}
	})
}

// settled waits for what a run that ended left to its branches, such as their
// cancellation.
func (t *tree) settled(err error) error {
	for {
		t.mu.Lock()
		if t.busy == 0 || t.ctx.Err() != nil {
			if err == nil {
				err = t.failed
			}
			t.mu.Unlock()
			return err
		}
		if t.idle == nil {
			t.idle = make(chan struct{})
		}
		idle := t.idle
		t.mu.Unlock()
		select {
		case <-idle:
		case <-t.ctx.Done():
		}
	}
}

func (t *tree) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	for timer := range t.timers {
		timer.Stop()
	}
}

func (t *tree) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil {
		t.failed = err
		close(t.broken)
	}
}

// at lets the clock be looked at when something is due.
func (t *tree) at(due int64, k session.Key) {
	if due == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(time.UnixMilli(due)), func() {
		t.mu.Lock()
		delete(t.timers, timer)
		t.mu.Unlock()
		t.do(run.Work{Signal: &run.Signal{To: k, Tick: true}})
	})
	t.timers[timer] = struct{}{}
}

// tell lets the program know that a run waits.
func (t *tree) tell(k session.Key, s run.Suspended) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rt.OnWait != nil && !t.over {
		t.begin(func() { t.rt.OnWait(t.ctx, k, s) })
	}
}

// do starts a piece of work.
func (t *tree) do(w run.Work) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	if w.Task != nil && w.Task.ID == t.main {
		select {
		case t.wake <- struct{}{}:
		default:
		}
		return
	}
	t.begin(func() {
		var err error
		for try := range localTries {
			if err = t.attempt(w); err == nil || t.ctx.Err() != nil || !errors.Is(err, session.ErrUnavailable) && !errors.Is(err, session.ErrConflict) {
				break
			}
			pause := time.NewTimer(localPause << try)
			select {
			case <-pause.C:
			case <-t.ctx.Done():
			}
			pause.Stop()
		}
		if err != nil {
			t.fail(err)
		}
	})
}

func (t *tree) attempt(w run.Work) error {
	if w.Signal != nil {
		return t.rt.apply(t.ctx, *w.Signal)
	}
	g := t.reg
	if w.Task.Workflow != g.Name {
		var ok bool
		if t.d.Workflows != nil {
			g, ok = t.d.Workflows.Lookup(w.Task.Workflow)
		}
		if !ok {
			return fmt.Errorf("flow: workflow %q is not offered in this process: %w", w.Task.Workflow, run.ErrNotSupported)
		}
	}
	select {
	case t.slots <- struct{}{}:
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
	defer func() { <-t.slots }()
	ex, err := t.rt.Begin(t.ctx, g, *w.Task)
	if errors.Is(err, run.ErrState) || err == nil && ex.State() != run.Running {
		return nil // it executes already, or is over
	}
	if err != nil {
		return err
	}
	if state, err := ex.Forward(t.ctx); state == run.Running || state == run.NeedsReview {
		return fmt.Errorf("flow: branch %s is %s: %w", ex.task.ID, state, err)
	}
	return nil
}

// apply brings a signal to its session. The report of a branch that nobody
// waits for any more closes the branch, as its parent's log says.
func (rt *Runtime) apply(ctx context.Context, s run.Signal) error {
	err := rt.Store.Apply(ctx, s)
	if s.Received != nil && s.Received.Kind == run.Report && (errors.Is(err, run.ErrState) || errors.Is(err, run.ErrUnknownRun)) {
		child := s.Received.Branch.Link.Key
		d, readErr := rt.Values.Disposition(ctx, s.To, s.Run, child.ID)
		if errors.Is(readErr, run.ErrState) {
			return nil // it will be decided, and told
		}
		if readErr != nil {
			return readErr
		}
		err = rt.Store.Apply(ctx, run.Signal{To: child, Run: run.ID(child.ID), Close: &d})
	}
	if errors.Is(err, run.ErrState) {
		return nil // it changes nothing any more
	}
	return err
}

// Committed takes a commit of the runtime's Store, so that Run can run branches
// and go on with runs that waited:
//
//	rt := &flow.Runtime{Values: values}
//	rt.Store = run.Direct(log, &run.DirectOptions{Values: values, OnCommit: rt.Committed})
//
// A runtime without a Store of its own does not need it.
func (rt *Runtime) Committed(e session.Entry) { rt.driver.Committed(e) }

// Signal brings a fact from outside to a run of this runtime: an answer, a
// message, a cancel.
func (rt *Runtime) Signal(ctx context.Context, s run.Signal) error {
	rt.init()
	return rt.Store.Apply(ctx, s)
}
