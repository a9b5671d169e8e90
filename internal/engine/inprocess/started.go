package inprocess

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// startedRun is a run that a run of a tree started.
type startedRun struct {
	task  journal.Task // with its session
	root  session.ID
	ended bool
}

// startedRuns are the runs that runs of a tree started. The tree's mu guards them.
type startedRuns struct {
	t   *tree
	all map[run.ID]*startedRun
}

// submit adds a started run to the tree, if a run of the tree starts it.
func (s *startedRuns) submit(task journal.Task) {
	t := s.t
	if r := s.adopt(task); r != nil {
		t.do(journal.Work{Task: &r.task})
	}
}

// adopt makes a started run one of the tree, whose commits the tree gets from now on. It
// returns nil if no run of the tree starts it, or if its id has been started before.
func (s *startedRuns) adopt(task journal.Task) *startedRun {
	t := s.t
	if !t.has(task.StartedBy.Run) {
		return nil
	}
	if task.Session.ID == "" {
		task.Session.ID = t.rt.Mint.Child(task.Session.Tenant, string(task.ID), "home")
	}
	if err := s.findPredecessors(&task); err != nil {
		s.reject(task, err)
		return nil
	}
	g, ok := t.reg, t.reg.Name == task.Workflow
	if !ok {
		g, ok = t.d.lookup(task.Workflow)
	}
	if ok {
		limit, err := journal.NewLimit(g.Limit, t.d.Quota, t.rt.Mint, &task)
		if err != nil {
			s.reject(task, err)
			return nil
		}
		task.Limit = limit
	}
	r := &startedRun{task: task, root: s.rootOf(task)}
	t.mu.Lock()
	have := s.all[task.ID]
	taken := have == nil && t.runs[task.ID]
	switch {
	case have != nil && have.task.Digest() == task.Digest():
		r = have
	case have != nil || taken:
		t.mu.Unlock()
		s.reject(task, fmt.Errorf("flow: run %s: %w; choose another id", task.ID, run.ErrKeyReused))
		return nil
	default:
		if s.all == nil {
			s.all = map[run.ID]*startedRun{}
		}
		s.all[task.ID], t.runs[task.ID] = r, true
	}
	t.mu.Unlock()
	t.d.enter(t, r.root)
	if l := r.task.Limit; l != nil {
		t.d.enter(t, l.Log)
		if l.Quota != nil {
			t.d.enter(t, l.Quota.Log)
		}
	}
	return r
}

// findPredecessors sets the homes of the runs that a task begins after.
func (s *startedRuns) findPredecessors(task *journal.Task) error {
	t := s.t
	t.mu.Lock()
	defer t.mu.Unlock()
	task.After = slices.Clone(task.After)
	for i := range task.After {
		p := &task.After[i]
		r := s.all[p.Run]
		switch {
		case r != nil:
			p.Session = r.task.Session.ID
		case p.Run == t.task.ID:
			p.Session = t.task.Session.ID
		default:
			return fmt.Errorf("flow: run %s begins after run %s, which no run has started before: %w", task.ID, p.Run, run.ErrUnknownRun)
		}
	}
	return nil
}

// rootOf returns the root of the session of a started run.
func (s *startedRuns) rootOf(task journal.Task) session.ID {
	t := s.t
	of := session.Ref{Key: task.Session}
	if task.ForkOf != nil {
		of = *task.ForkOf
	}
	if v, err := t.rt.Values.At(context.Background(), of); err == nil {
		return v.Root()
	}
	return task.Session.ID // a new one, or one that Begin rejects
}

// reject brings the rejection of a started run's task to its starter.
func (s *startedRuns) reject(task journal.Task, why error) {
	t := s.t
	t.mu.Lock()
	if r := s.all[task.ID]; r != nil {
		r.ended = true
	}
	t.mu.Unlock()
	t.do(journal.Work{Signal: task.Rejected(journal.RunEnd{Run: task.ID, State: run.Failed, Code: run.CodeOf(why), Error: why.Error()})})
}

// rejects reports whether an error of a claim rejects the task for good.
func rejects(err error) bool {
	return err != nil && !errors.Is(err, session.ErrUnavailable) && !errors.Is(err, session.ErrConflict) && !run.IsControl(err) && !errors.Is(err, context.Canceled)
}

// end notes the end of a run that the tree may have started, and lets its cleanup
// run into the tree.
func (s *startedRuns) end(v journal.Ended) {
	t := s.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := s.all[v.Run]; r != nil {
		r.ended = true
	}
	if v.Next != nil && v.Run != t.task.ID && t.runs[v.Run] && v.Next.Run == run.CleanupOf(v.Run) {
		t.runs[v.Next.Run] = true
	}
}

// recall adds the started runs of a history, whose sessions may come in any order.
func (s *startedRuns) recall(history []commitlog.Entry) {
	for _, e := range history {
		work, err := journal.Followups(e, journal.Facts(e.Commit))
		if err != nil {
			continue // Committed reports it
		}
		for _, w := range work {
			if w.Submit != nil && s.findPredecessors(w.Submit) == nil {
				s.adopt(*w.Submit)
			}
		}
	}
}

// finish lets the started runs that wait for a time end, after the main run, if the
// clock stands still. In other runtimes a started run that waits then does not go on.
func (s *startedRuns) finish(err error) error {
	t := s.t
	err = t.waitIdle(err)
	for t.rt.Clock != nil && t.ctx.Err() == nil && s.open() {
		if t.passTime() != nil {
			return err
		}
		err = t.waitIdle(err)
	}
	return err
}

func (s *startedRuns) open() bool {
	t := s.t
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range s.all {
		if !r.ended {
			return t.failed == nil
		}
	}
	return false
}

func (s *startedRuns) has(id run.ID) bool {
	t := s.t
	t.mu.Lock()
	defer t.mu.Unlock()
	return s.all[id] != nil
}

// begun returns the error of the claim of a task. The rejection of a started run's task is
// for its starter.
func (s *startedRuns) begun(task *journal.Task, err error) error {
	if task.StartedBy == nil || task.Resume || !rejects(err) {
		return err
	}
	s.reject(*task, err)
	return nil
}

// beginLater offers a started run that is queued until its time again.
func (s *startedRuns) beginLater(ex *engine.Execution) {
	t := s.t
	task := ex.Task()
	if ex.State() != run.Queued || task.StartedBy == nil || task.NotBefore.IsZero() {
		return
	}
	t.at(task.NotBefore.UnixMilli(), journal.Work{Task: &journal.Task{
		ID: task.ID, Workflow: task.Workflow, Revision: task.Revision, Session: task.Session, Resume: true,
	}})
}

// unknownWorkflow is the error of a task whose workflow this process does not have. A
// started run has the code of a fleet.
func unknownWorkflow(t *journal.Task) error {
	if t.StartedBy != nil {
		return run.Code("unknown_workflow").Err(fmt.Sprintf("flow: workflow %q is not offered in this process", t.Workflow))
	}
	return fmt.Errorf("flow: workflow %q is not offered in this process: %w", t.Workflow, run.ErrNotSupported)
}
