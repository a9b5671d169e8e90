package inprocess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// localBranches bounds the concurrently executing branches of one tree.
	localBranches = 256
	// localTries bounds the tries of work that fails with an error of the log.
	localTries = 5
	localPause = 20 * time.Millisecond
)

// tree is one run in flight with everything that it opened.
type tree struct {
	d    *Driver
	rt   *engine.Runtime
	reg  flow.Registration
	root session.ID   // of its sessions
	task journal.Task // of the main run
	// opening has the first events of the main run's session if it does not exist yet.
	opening []session.Event
	ctx     context.Context
	wake    chan struct{} // the main run may resume, or has ended

	cleanup   atomic.Pointer[journal.Offer] // of the main run, which has ended
	answering sync.Mutex                    // held during a call of Driver.Answer

	mu        sync.Mutex
	sawCommit bool            // the driver got a commit
	busy      int             // work items in flight
	idle      chan struct{}   // closed when there are none; made by waitIdle
	runs      map[run.ID]bool // of the tree
	timers    map[*time.Timer]struct{}
	alarms    []alarm // in place of timers, if the runtime has a standing clock
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

// owns reports whether work is for a run of the tree; a branch that one of its runs opens
// joins the tree.
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

// recall processes a history: it adds the runs of the tree in it, whose sessions may come
// in any order, and starts the remaining work.
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

// errNoCommits is returned instead of waiting forever.
var errNoCommits = errors.New("flow: the run waits, and the runtime is not notified of commits, so the run cannot continue: " +
	"set journal.StoreOptions.OnCommit of its Store to Runtime.Committed, or leave Store empty")

// seesCommits reports whether the Driver gets the commits of the log.
func (t *tree) seesCommits() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sawCommit
}

// begin starts a work item in a goroutine. t.mu is held.
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

// waitIdle waits for the remaining work after the end of a run, such as the cancellation
// of its branches.
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

// tickAt checks the clock when a timer is due.
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

// alarm is a time at which a timer is due in a session.
type alarm struct {
	at  time.Time
	key session.Key
}

// standsStill returns a channel that is closed once no part of the tree works; nil if the
// clock does not stand still.
func (t *tree) standsStill() <-chan struct{} {
	if t.rt.Clock == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.untilIdle()
}

// untilIdle returns a channel that is closed when no work is in flight. t.mu is held.
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

// passTime moves the clock to the next due time, and applies the due timers. It fails if
// there are none.
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

// errStuck is returned instead of waiting forever.
var errStuck = errors.New("flow: the run waits, no part of it is at work, and no time is due")

// resume wakes the main run if it waits.
func (t *tree) resume() {
	t.turns.wake()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// do starts a work item.
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
		return nil // it executes already, or has ended
	}
	if err != nil {
		return err
	}
	if state, err := ex.Forward(t.ctx); state == run.Running || state == run.NeedsReview {
		return fmt.Errorf("flow: branch %s is %s: %w", ex.Task().ID, state, err)
	}
	return nil
}

// apply applies a signal to its session. If the parent of a reporting branch no longer
// waits for the report, apply closes the branch with the outcome in the parent's log.
func apply(ctx context.Context, rt *engine.Runtime, s journal.Signal) error {
	err := rt.Store.Apply(ctx, s)
	if s.Received != nil && s.Received.Kind == journal.Report && (errors.Is(err, run.ErrState) || errors.Is(err, run.ErrUnknownRun)) {
		child := s.Received.Branch.Link.Key
		d, readErr := rt.Values.BranchOutcome(ctx, s.To, s.Run, child.ID)
		if errors.Is(readErr, run.ErrState) {
			return nil // the parent decides the outcome later, and then closes the branch
		}
		if readErr != nil {
			return readErr
		}
		err = rt.Store.Apply(ctx, journal.Signal{To: child, Run: run.ID(child.ID), Close: &d})
	}
	if errors.Is(err, run.ErrState) {
		return nil // it has no effect anymore
	}
	return err
}
