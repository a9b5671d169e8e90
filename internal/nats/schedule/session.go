package schedule

import (
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// openSession is a session with runs that have not ended, with unsettled follow-ups, or in
// quarantine. Its JSON is part of a page.
type openSession struct {
	Tenant  session.Tenant `json:"tenant"`
	Session session.ID     `json:"session"`
	// Writer is the incarnation that wrote last: it holds the session if it
	// lives.
	Writer string     `json:"writer,omitempty"`
	Active run.ID     `json:"active,omitempty"` // claimed, not ended
	Runs   []*openRun `json:"runs,omitempty"`   // in the order of their submission, a cleanup run first
	// Quarantined is set while no run of the session may execute.
	Quarantined bool `json:"quarantined,omitempty"`
	// Limited is how many runs wait for a limit or hold its grant, or wait for an event, if
	// this is the log of a key, and Due when the clock allows the next decision.
	Limited int64 `json:"limited,omitempty"`
	Due     int64 `json:"due,omitempty"`
	// FollowUps are the unsettled follow-ups, by commit.
	FollowUps []*followUps `json:"owed,omitempty"`

	ready   *item  // the dispatch of the run that is to resume, nil if none is
	ticking bool   // a Tick is on its way
	limit   *alarm // of Due, nil without any
	ticks   backoff
	holder  string // the incarnation under which it is indexed, "" for none
}

// openRun is a run that has not ended. Its times are in Unix milliseconds; zero
// is never.
type openRun struct {
	ID       run.ID `json:"run"`
	Workflow string `json:"workflow"`
	Revision string `json:"revision,omitempty"`
	Priority int64  `json:"priority,omitempty"`
	Batch    bool   `json:"batch,omitempty"`
	// Limit is the log of the key of its limit, or After while it waits for other runs, and
	// Held is set until those let it begin.
	Limit       session.ID `json:"limit,omitempty"`
	Held        bool       `json:"held,omitempty"`
	State       run.State  `json:"state"`
	Attempt     uint64     `json:"attempt,omitempty"`     // of its last claim
	Incarnation string     `json:"incarnation,omitempty"` // that claimed it
	NotBefore   int64      `json:"not_before,omitempty"`
	Deadline    int64      `json:"deadline,omitempty"`
	Expires     int64      `json:"expires,omitempty"` // of a review
	Waits       []dueWait  `json:"waits,omitempty"`   // unanswered, with a time
	// Life is the budget of time in milliseconds, which counts from the first
	// claim at Started.
	Life    int64 `json:"life,omitempty"`
	Started int64 `json:"started,omitempty"`

	timer *alarm  // of the next time, nil without any
	ticks backoff // of ticks
}

// After stands for the log of a limit while a run waits for other runs.
const After session.ID = "after"

// dueWait is a question that a timer decides.
type dueWait struct {
	Path run.Path `json:"path"`
	Due  int64    `json:"due"`
}

func (s *openSession) key() session.Key { return session.Key{Tenant: s.Tenant, ID: s.Session} }

func (s *openSession) run(id run.ID) *openRun {
	for _, r := range s.Runs {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// done reports whether the session has no open work.
func (s *openSession) done() bool {
	return len(s.Runs) == 0 && len(s.FollowUps) == 0 && !s.Quarantined && s.Limited == 0
}

// begin folds that a task was submitted.
func (s *openSession) begin(v journal.Submitted) {
	if s.run(v.Task.Run) != nil {
		return
	}
	at := len(s.Runs)
	if v.Task.Resumes.Cleanup() { // before all that wait
		at = 0
	}
	r := &openRun{
		ID: v.Task.Run, Workflow: v.Task.Workflow, Revision: v.Task.Revision, State: run.Queued, Priority: v.Task.Priority, Batch: v.Task.Class == run.ClassBatch,
		NotBefore: v.Task.NotBefore, Deadline: v.Task.Deadline, Life: v.Task.Budget.Time.Milliseconds(),
	}
	if v.Limit != nil {
		r.Limit, r.Held = v.Limit.Log, v.Limit.Holder == ""
	}
	if len(v.Task.After) > 0 {
		r.Limit, r.Held = After, true
	}
	s.Runs = slices.Insert(s.Runs, at, r)
}

// fold folds one fact. It skips an unreadable fact, which stops the session's own writer
// too. It returns the run that the fact ended, if any.
func (s *openSession) fold(k session.Key, f *journal.Fact) (ended *openRun) {
	switch v := f.What.(type) {
	case journal.Submitted:
		s.begin(v)
		return nil
	case journal.WriterOpened:
		s.Writer = v.Incarnation
	case journal.Quarantined:
		s.Quarantined = !v.Released
	case journal.Claimed:
		if v.Home != k {
			return nil
		}
	}
	if work, ok := journal.KeyWork(f.What); ok {
		s.Limited, s.Due, s.ticks = work.Open, work.Due, backoff{}
	}
	r := s.run(f.Run)
	if r == nil {
		return nil
	}
	if f.State != "" {
		r.to(f.State)
	}
	switch v := f.What.(type) {
	case journal.Claimed:
		r.Attempt, r.Incarnation, r.NotBefore = v.Attempt, v.Incarnation, 0
		s.Active, s.Writer = v.Run, v.Incarnation
		if r.Started == 0 {
			r.Started = f.Time.UnixMilli()
		}
	case journal.Released, journal.Resolved: // for a node that offers a revision
		if f.Workflow != "" {
			r.Revision = f.Revision
		}
	case journal.Granted:
		switch r.Held = v.Next != nil; {
		case r.Held:
			r.Limit = v.Next.Limit.Log
		case r.Limit == After:
			r.Limit = ""
		}
	case journal.Review:
		r.Expires = v.Expires
	case journal.Rebudgeted:
		r.Life = v.Budget.Time.Milliseconds()
		r.ticks = backoff{}
	case journal.RunWaiting:
		for _, w := range v.For {
			if w.Due != 0 {
				r.Waits = append(r.Waits, dueWait{w.Path, w.Due})
			}
		}
	case journal.SignalReceived:
		r.Waits = slices.DeleteFunc(r.Waits, func(w dueWait) bool { return w.Path == v.Path })
	case journal.Ended:
		s.Runs = slices.DeleteFunc(s.Runs, func(r *openRun) bool { return r.ID == v.Run })
		if s.Active == v.Run {
			s.Active = ""
		}
		return r
	}
	return nil
}

// to folds a change of state, which cancels the earlier due times.
func (r *openRun) to(state run.State) {
	r.State, r.Incarnation, r.Expires, r.Waits, r.ticks = state, "", 0, nil, backoff{}
}

// end returns when the run must have ended, in Unix milliseconds; zero is
// never.
func (r *openRun) end() int64 {
	if r.Life == 0 || r.Started == 0 {
		return r.Deadline
	}
	if end := r.Started + r.Life; r.Deadline == 0 || end < r.Deadline {
		return end
	}
	return r.Deadline
}

// times yields the times at which the run is due.
func (r *openRun) times(yield func(int64) bool) {
	if r.State == run.Queued && r.NotBefore != 0 && !yield(r.NotBefore) {
		return
	}
	if end := r.end(); end != 0 && !yield(end) {
		return
	}
	if r.State == run.NeedsReview && r.Expires != 0 && !yield(r.Expires) {
		return
	}
	for _, w := range r.Waits {
		if !yield(w.Due) {
			return
		}
	}
}

// due reports whether a time of the run has come that its session must handle.
func (r *openRun) due(now time.Time) bool {
	for at := range r.times {
		if at <= now.UnixMilli() && !(r.State == run.Queued && at == r.NotBefore) {
			return true
		}
	}
	return false
}

// runnable returns the run that a node should execute, if the incarnation that holds the
// session's run is not alive; nil if there is none.
func (s *openSession) runnable(now time.Time, lives func(incarnation string) bool) *openRun {
	if s.Quarantined {
		return nil
	}
	if r := s.run(s.Active); r != nil {
		if r.State == run.Queued || r.State == run.Running && !s.executes(r, lives) {
			return r
		}
		return nil // it executes, or waits and holds the session
	}
	for _, r := range s.Runs {
		// A run that is not due yet, or not granted, does not block others.
		if r.State == run.Queued && !r.Held && r.NotBefore <= now.UnixMilli() {
			return r
		}
	}
	return nil
}

// executes reports whether a run is in the hands of an incarnation that lives.
func (s *openSession) executes(r *openRun, lives func(incarnation string) bool) bool {
	return r.State == run.Running && r.Incarnation == s.Writer && lives(r.Incarnation)
}
