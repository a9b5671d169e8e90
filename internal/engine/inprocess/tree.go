package inprocess

import (
	"context"
	"errors"
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
	root session.ID // of its sessions
	// roots are the roots whose commits it gets. The driver's mu guards them.
	roots []session.ID
	task  journal.Task // of the main run
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
	started   startedRuns
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
	t.started.t = t
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
		t.started.recall(history)
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
	t.at(due, journal.Work{Signal: &journal.Signal{To: k, Tick: true}})
}

// at does work at a time.
func (t *tree) at(due int64, w journal.Work) {
	if due == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	if t.rt.Clock != nil {
		t.alarms = append(t.alarms, alarm{time.UnixMilli(due), w})
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(time.UnixMilli(due)), func() {
		t.mu.Lock()
		delete(t.timers, timer)
		t.mu.Unlock()
		t.do(w)
	})
	if t.timers == nil {
		t.timers = map[*time.Timer]struct{}{}
	}
	t.timers[timer] = struct{}{}
}

// alarm is a time at which work is due, such as a timer in a session.
type alarm struct {
	at   time.Time
	work journal.Work
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
	var due []journal.Work
	t.alarms = slices.DeleteFunc(t.alarms, func(a alarm) bool {
		if a.at.After(now) {
			return false
		}
		if !slices.ContainsFunc(due, func(w journal.Work) bool {
			return w.Signal != nil && a.work.Signal != nil && w.Signal.To == a.work.Signal.To
		}) {
			due = append(due, a.work)
		}
		return true
	})
	t.mu.Unlock()
	for _, w := range due {
		t.do(w)
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
