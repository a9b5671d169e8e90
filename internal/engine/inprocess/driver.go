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

// Driver does in one process the work that the nodes of a fleet do for each other: it
// runs the branches that a commit opens and the runs that it starts, applies signals to
// their sessions, fires timers, and resumes a run that waited. A [Runtime] has its own
// Driver. Tests and programs that keep their log elsewhere than in memory pass a Driver's
// Committed to journal.StoreOptions.OnCommit. It is safe for concurrent use.
type Driver struct {
	// Workflows are the workflows that remote branches and started runs can name; nil has
	// none.
	Workflows *engine.Registry
	// InOrder executes the runs of a tree one at a time, each until it ends or waits, in
	// an order that does not depend on the scheduler: the first branch of a fan-out that
	// can win a race wins it. It is for tests.
	InOrder bool
	// Quota is the quota of the tenant for started runs, nil for none. It is for tests.
	Quota *journal.QuotaLimit
	// Answer answers questions, as in [Runtime].
	Answer func(ctx context.Context, q run.Question) (any, error)

	mu    sync.Mutex
	trees map[session.ID][]*tree // by their root sessions
}

// Committed processes a commit and starts the work that follows from it. It does not
// wait.
func (d *Driver) Committed(e commitlog.Entry) {
	d.mu.Lock()
	trees := slices.Clone(d.trees[e.Commit.Root])
	d.mu.Unlock()
	if len(trees) == 0 {
		return
	}
	facts := journal.Facts(e.Commit)
	work, err := journal.Followups(e, facts)
	for _, t := range trees {
		t.mu.Lock()
		t.sawCommit = true
		t.mu.Unlock()
		if err != nil {
			t.fail(err)
			continue
		}
		for _, f := range facts {
			switch v := f.What.(type) {
			case journal.Ended:
				t.started.end(v)
			case journal.RunWaiting:
				for _, w := range v.For {
					if w.Log != "" && t.has(v.Run) {
						d.enter(t, w.Log)
					}
				}
			}
		}
		for _, w := range work {
			switch {
			case w.Submit != nil:
				t.started.submit(*w.Submit)
			case t.owns(w):
				t.do(w)
			}
		}
		for _, f := range facts {
			work, _ := journal.KeyWork(f.What)
			t.tickAt(work.Due, e.Commit.Key)
			switch v := f.What.(type) {
			case journal.RunWaiting:
				if t.has(f.Run) {
					for _, w := range v.For {
						t.tickAt(w.Due, e.Commit.Key)
					}
					t.announceWait(e.Commit.Key, v)
				}
			case journal.Rebudgeted, journal.Ended: // its deadline may have changed; it may have ended while it waited
				if f.Run != t.task.ID {
					continue
				}
				if end, ok := v.(journal.Ended); ok && end.Next != nil && end.Next.Run == run.CleanupOf(f.Run) {
					t.cleanup.Store(end.Next)
				}
				t.resume()
			}
		}
	}
}

// lookup returns the registration of a workflow that remote branches and started runs name.
func (d *Driver) lookup(workflow string) (g flow.Registration, ok bool) {
	if d.Workflows == nil {
		return g, false
	}
	return d.Workflows.Lookup(workflow)
}

// Run runs a task to its end, with all its branches, and returns its execution. It
// returns early when ctx ends, or when the run needs review, which the returned state
// shows. history has the commits of a former process over the same log: the work that
// followed from them is repeated, which is harmless.
func (d *Driver) Run(ctx context.Context, rt *engine.Runtime, g flow.Registration, t journal.Task, history ...commitlog.Entry) (*engine.Execution, run.State, error) {
	root := t.Session.ID
	if r := t.Resumes; r != nil {
		s, err := rt.Values.At(ctx, session.Ref{Key: session.Key{Tenant: t.Session.Tenant, ID: r.Session}})
		if err != nil {
			return nil, run.Queued, err
		}
		root = s.Root()
	}
	return newTree(d, rt, g, t, root, nil).runAll(ctx, history)
}

// runAll runs the main run of the tree and then its cleanup run, if it ends with one. The
// error includes the cleanup run's; the state is the cleanup run's if that has not ended.
func (t *tree) runAll(ctx context.Context, history []commitlog.Entry) (*engine.Execution, run.State, error) {
	ex, state, err := t.run(ctx, history)
	next := t.cleanup.Load()
	if next == nil || ex == nil || !state.Terminal() {
		return ex, state, err
	}
	task := journal.Task{ID: next.Run, Workflow: next.Workflow, Revision: next.Revision, Session: t.task.Session, Resume: true}
	_, ended, failed := newTree(t.d, t.rt, t.reg, task, t.root, nil).run(ctx, history)
	if failed != nil {
		err = errors.Join(err, fmt.Errorf("flow: cleanup run %s is %s: %w", next.Run, ended, failed))
	}
	if !ended.Terminal() {
		state = ended
	}
	return ex, state, err
}

// run runs the main run of the tree, with all branches and signals that follow.
func (t *tree) run(ctx context.Context, history []commitlog.Entry) (ex *engine.Execution, state run.State, err error) {
	var cancel context.CancelFunc
	t.ctx, cancel = context.WithCancel(ctx)
	t.d.enter(t, t.root)
	defer func() {
		t.end()
		cancel()
		t.work.Wait()
		t.d.leave(t)
	}()
	t.recall(history)
	for waited := false; ; waited = true {
		ex, state, err = t.forward(ctx, waited)
		if ex == nil {
			return nil, "", err
		}
		if state != run.Waiting {
			t.turns.end()
			return ex, state, t.started.finish(err)
		}
		if !t.seesCommits() {
			return ex, state, errNoCommits
		}
		t.tickAtDeadline(ex.Record(), t.task.Session)
		if err := t.await(ctx); err != nil {
			return ex, state, err
		}
		t.task.Resume = true
	}
}

// forward claims the main run and executes it until it ends or waits.
func (t *tree) forward(ctx context.Context, waited bool) (*engine.Execution, run.State, error) {
	if err := t.turns.join(turnMain)(ctx); err != nil {
		return nil, "", err
	}
	defer t.turns.leave()
	ex, err := t.claim(ctx)
	if err != nil {
		return nil, "", err
	}
	state := ex.State()
	switch {
	case state == run.Running:
		state, err = ex.Forward(ctx)
	case waited && state.Terminal(): // it ended while no execution held it
		end := ex.Record().Ended
		err = end.Code.Err(end.Error)
	}
	return ex, state, err
}

// await returns nil once the main run may resume.
func (t *tree) await(ctx context.Context) error {
	for {
		still := t.standsStill()
		select {
		case <-t.wake:
			return nil
		case <-t.broken:
			return t.waitIdle(nil)
		case <-ctx.Done():
			return ctx.Err()
		case <-still:
		}
		// The work that ended last may have woken the run, failed, or stopped the process.
		select {
		case <-t.wake:
			return nil
		case <-t.broken:
			return t.waitIdle(nil)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		if err := t.passTime(); err != nil {
			return err
		}
	}
}

// claim claims the main run for the first or a later time. It is separate from run, which
// waits for as long as the run does and should need a small stack.
//
//go:noinline
func (t *tree) claim(ctx context.Context) (*engine.Execution, error) {
	return t.rt.Begin(ctx, t.reg, t.task, t.opening...)
}

// tickAtDeadline checks the clock at the deadline of a run in the session k.
func (t *tree) tickAtDeadline(r *journal.Record, k session.Key) {
	if end := r.Deadline(); !end.IsZero() {
		t.tickAt(end.Add(time.Millisecond-1).UnixMilli(), k)
	}
}

// enter subscribes a tree to the commits of the sessions below a root, such as its own, a
// started run's, or the log of an event; leave unsubscribes it from all.
func (d *Driver) enter(t *tree, root session.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.trees == nil {
		d.trees = map[session.ID][]*tree{}
	}
	if !slices.Contains(d.trees[root], t) {
		d.trees[root], t.roots = append(d.trees[root], t), append(t.roots, root)
	}
}

func (d *Driver) leave(t *tree) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, root := range t.roots {
		if d.trees[root] = slices.DeleteFunc(d.trees[root], func(o *tree) bool { return o == t }); len(d.trees[root]) == 0 {
			delete(d.trees, root)
		}
	}
}
