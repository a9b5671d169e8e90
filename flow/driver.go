package flow

import (
	"context"
	"errors"
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
			switch ev.Kind {
			case run.KindWaiting:
				if s, err := run.Read[run.Suspended](ev); err == nil && t.has(s.Run) {
					for _, w := range s.For {
						t.at(w.Due, e.Commit.Key)
					}
					t.tell(e.Commit.Key, s)
				}
			case run.KindRebudgeted: // perhaps its deadline is another one now
				if v, err := run.Read[run.Rebudgeted](ev); err == nil && v.Run == t.main {
					t.goOn()
				}
			case run.KindEnded: // perhaps where it waited
				if v, err := run.Read[run.Ended](ev); err == nil && v.Run == t.main {
					t.goOn()
				}
			}
		}
	}
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
	for waited := false; ; waited = true {
		if ex, err = rt.begin(ctx, g, task, s); err != nil {
			return nil, "", err
		}
		record := ex.granted.Record
		switch state = ex.State(); {
		case state == run.Running:
			state, err = ex.Forward(ctx)
		case waited && state.Terminal():
			ex.result, err = ex.granted.Session, record.Ended.Code.Err(record.Ended.Error)
		}
		if state != run.Waiting {
			return ex, state, t.settled(err)
		}
		if !t.hears() {
			return ex, state, errDeaf
		}
		if end := record.Deadline(); !end.IsZero() {
			t.at(end.Add(time.Millisecond-1).UnixMilli(), task.Session)
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
