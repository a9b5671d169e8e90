package inprocess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// localBranches bounds the branches of one tree that execute at once.
	localBranches = 256
	// localTries is how often work is tried that an error of the log stopped.
	localTries = 5
	localPause = 20 * time.Millisecond
)

// tree is one run under way with everything that it opened.
type tree struct {
	d    *Driver
	rt   *engine.Runtime
	reg  flow.Registration
	root session.ID   // of its sessions
	task journal.Task // of the main run
	// opening is what the main run's session starts with if it does not exist yet.
	opening []session.Event
	ctx     context.Context
	wake    chan struct{} // the main run may go on, or has ended

	answering sync.Mutex // held while Driver.Answer is asked

	mu        sync.Mutex
	sawCommit bool            // of a commit
	busy      int             // pieces of work under way
	idle      chan struct{}   // closed when there is none any more; made by waitIdle
	runs      map[run.ID]bool // of the tree
	timers    map[*time.Timer]struct{}
	alarms    []alarm // in place of timers, where the runtime has a clock that stands
	over      bool
	failed    error
	broken    chan struct{} // closed with failed
	work      sync.WaitGroup
	slots     chan struct{}
	turns     *turns // nil unless the driver does one thing at a time
}

func newTree(d *Driver, rt *engine.Runtime, g flow.Registration, task journal.Task, root session.ID, opening []session.Event) *tree {
	t := &tree{
		d: d, rt: rt, reg: g, root: root, task: task, opening: opening, wake: make(chan struct{}, 1), broken: make(chan struct{}),
		runs: map[run.ID]bool{task.ID: true}, slots: make(chan struct{}, localBranches),
	}
	if d.InOrder {
		t.turns = &turns{}
	}
	return t
}

// owns reports whether work is for a run of the tree; a branch that one of its
// runs opens joins it.
func (t *tree) owns(w journal.Work) bool {
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

// recall takes in a history: the runs of the tree in it, whose sessions may come in any
// order, and what is left to do.
func (t *tree) recall(history []commitlog.Entry) {
	for known := 0; known != len(t.runs); {
		known = len(t.runs)
		for _, e := range history {
			for _, fact := range journal.Facts(e.Commit) {
				if f, ok := fact.What.(journal.FanOut); ok && t.runs[f.Run] {
					for _, b := range f.Branches {
						t.runs[run.ID(b.Session)] = true
					}
				}
			}
		}
	}
	for _, e := range history {
		t.d.Committed(e)
	}
}

func (t *tree) has(id run.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.runs[id]
}

// errNoCommits is returned instead of waiting for what can never come.
var errNoCommits = errors.New("flow: the run waits, and the runtime does not learn of commits, so nothing will go on: " +
	"set journal.StoreOptions.OnCommit of its Store to Runtime.Committed, or leave Store empty")

// seesCommits reports whether the Driver gets the commits of the log.
func (t *tree) seesCommits() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sawCommit
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

// waitIdle waits for what a run that ended left to its branches, such as their
// cancellation.
func (t *tree) waitIdle(err error) error {
	for {
		t.mu.Lock()
		if t.busy == 0 || t.ctx.Err() != nil {
			if err == nil {
				err = t.failed
			}
			t.mu.Unlock()
			return err
		}
		idle := t.untilIdle()
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

// tickAt has the clock looked at when something is due.
func (t *tree) tickAt(due int64, k session.Key) {
	if due == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	if t.rt.Clock != nil {
		t.alarms = append(t.alarms, alarm{time.UnixMilli(due), k})
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(time.UnixMilli(due)), func() {
		t.mu.Lock()
		delete(t.timers, timer)
		t.mu.Unlock()
		t.do(journal.Work{Signal: &journal.Signal{To: k, Tick: true}})
	})
	if t.timers == nil {
		t.timers = map[*time.Timer]struct{}{}
	}
	t.timers[timer] = struct{}{}
}

// alarm is a time at which something is due in a session.
type alarm struct {
	at  time.Time
	key session.Key
}

// standsStill returns a channel that is closed once nothing of the tree is at work; nil
// where time goes by itself.
func (t *tree) standsStill() <-chan struct{} {
	if t.rt.Clock == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.untilIdle()
}

// untilIdle returns a channel that is closed when no work is under way. t.mu is held.
func (t *tree) untilIdle() <-chan struct{} {
	if t.idle == nil {
		t.idle = make(chan struct{})
		if t.busy == 0 {
			idle := t.idle
			t.idle = nil
			close(idle)
			return idle
		}
	}
	return t.idle
}

// passTime moves the clock on to the next time that something is due, and has it looked
// at. It fails if nothing ever is.
func (t *tree) passTime() error {
	t.mu.Lock()
	if len(t.alarms) == 0 {
		t.mu.Unlock()
		return errStuck
	}
	next := slices.MinFunc(t.alarms, func(a, b alarm) int { return a.at.Compare(b.at) })
	t.rt.Clock.GoTo(next.at)
	now := t.rt.Clock.Now()
	var due []session.Key
	t.alarms = slices.DeleteFunc(t.alarms, func(a alarm) bool {
		if a.at.After(now) {
			return false
		}
		if !slices.Contains(due, a.key) {
			due = append(due, a.key)
		}
		return true
	})
	t.mu.Unlock()
	for _, k := range due {
		t.do(journal.Work{Signal: &journal.Signal{To: k, Tick: true}})
	}
	return nil
}

// errStuck is returned instead of waiting for what can never come.
var errStuck = errors.New("flow: the run waits, nothing of it is at work, and nothing is due at any time")

// resume has the main run looked at again where it waits.
func (t *tree) resume() {
	t.turns.wake()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// do starts a piece of work.
func (t *tree) do(w journal.Work) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	if w.Task != nil && w.Task.ID == t.task.ID {
		t.resume()
		return
	}
	kind := turnBranch
	if w.Signal != nil {
		kind = turnSignal
	}
	wait := t.turns.join(kind)
	t.begin(func() {
		if wait(t.ctx) != nil {
			return
		}
		defer t.turns.leave()
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

func (t *tree) attempt(w journal.Work) error {
	if w.Signal != nil {
		return apply(t.ctx, t.rt, *w.Signal)
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
		return fmt.Errorf("flow: branch %s is %s: %w", ex.Task().ID, state, err)
	}
	return nil
}

// apply brings a signal to its session. The report of a branch whose parent no longer
// waits for it closes the branch, as the parent's log has it.
func apply(ctx context.Context, rt *engine.Runtime, s journal.Signal) error {
	err := rt.Store.Apply(ctx, s)
	if s.Received != nil && s.Received.Kind == journal.Report && (errors.Is(err, run.ErrState) || errors.Is(err, run.ErrUnknownRun)) {
		child := s.Received.Branch.Link.Key
		d, readErr := rt.Values.BranchOutcome(ctx, s.To, s.Run, child.ID)
		if errors.Is(readErr, run.ErrState) {
			return nil // the parent decides it later, and closes the branch then
		}
		if readErr != nil {
			return readErr
		}
		err = rt.Store.Apply(ctx, journal.Signal{To: child, Run: run.ID(child.ID), Close: &d})
	}
	if errors.Is(err, run.ErrState) {
		return nil // it changes nothing any more
	}
	return err
}
