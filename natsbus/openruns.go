package natsbus

import (
	"slices"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// openRuns is what a partition's runs still need from outside: a fold of its
// event stream over the few events that matter. It knows less than run.Book,
// and decides nothing: what is done because of it, again and again, the log's
// rules take once.
type openRuns struct {
	sessions map[session.Key]*openSession
	// closings are the commits that dispose of branches, by their sequence,
	// until those are closed.
	closings map[uint64]*attempts
}

// openSession is a session with runs that have not ended, a branch whose run
// has ended and that is not closed, or a session in quarantine.
type openSession struct {
	Tenant  session.Tenant `json:"tenant"`
	Session session.ID     `json:"session"`
	// Writer is the incarnation that wrote last: it holds the session if it
	// lives.
	Writer string     `json:"writer,omitempty"`
	Active run.ID     `json:"active,omitempty"` // claimed, not ended
	Runs   []*openRun `json:"runs,omitempty"`   // in the order of their submission
	// Ended is the sequence of the commit that ended a branch's run: its
	// parent is told until it closes the session.
	Ended uint64 `json:"ended,omitempty"`
	// Warmed is the sequence of the commit with the first answer in a branch
	// that others wait for: its parent is told until the branch's run ends.
	Warmed uint64 `json:"warmed,omitempty"`
	// Apart is set while the session is in quarantine: nothing executes.
	Apart bool `json:"apart,omitempty"`

	told   attempts // the parent, by this relay
	warmed attempts // likewise, of the first answer
}

type openRun struct {
	ID          run.ID    `json:"run"`
	Workflow    string    `json:"workflow"`
	Revision    string    `json:"revision,omitempty"`
	State       run.State `json:"state"`
	Incarnation string    `json:"incarnation,omitempty"` // that claimed it
	// Times in Unix milliseconds; zero is never.
	NotBefore int64     `json:"not_before,omitempty"`
	Deadline  int64     `json:"deadline,omitempty"`
	Expires   int64     `json:"expires,omitempty"` // of a review
	Waits     []dueWait `json:"waits,omitempty"`   // with a time, that nothing has answered
	// Life is the budget of time in milliseconds, which counts from the first
	// claim.
	Life    int64 `json:"life,omitempty"`
	Started int64 `json:"started,omitempty"`
	// FanOuts are the fan-outs whose branches have not all reported.
	FanOuts []openFanOut `json:"fan_outs,omitempty"`

	offered attempts // by this relay, while a dead incarnation holds it
	due     attempts // what this relay told of a time that has come
	armed   int64    // the time that a timer is set for
}

// dueWait is a question that a timer decides.
type dueWait struct {
	Path run.Path `json:"path"`
	Due  int64    `json:"due"`
}

// openFanOut is a fan-out by the sequence of its commit.
type openFanOut struct {
	Token uint64   `json:"token"`
	Path  run.Path `json:"path"`
	Left  int      `json:"left"` // branches that have not reported
}

// attempts paces what is repeated until a log shows that it was taken.
type attempts struct {
	n    int
	next time.Time // not before
}

// again reports whether it is time for an attempt, and counts it. The time
// between attempts doubles from first to most.
func (a *attempts) again(now time.Time, first, most time.Duration) bool {
	if now.Before(a.next) {
		return false
	}
	wait := most
	if a.n < 16 {
		wait = min(first<<a.n, most)
	}
	a.n, a.next = a.n+1, now.Add(wait)
	return true
}

func newOpenRuns(saved []*openSession, closings []uint64) *openRuns {
	o := &openRuns{sessions: map[session.Key]*openSession{}, closings: map[uint64]*attempts{}}
	for _, s := range saved {
		o.sessions[s.key()] = s
	}
	for _, token := range closings {
		o.closings[token] = &attempts{}
	}
	return o
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

// saved returns the set for a checkpoint.
func (o *openRuns) saved() (sessions []*openSession, closings []uint64) {
	sessions = make([]*openSession, 0, len(o.sessions))
	for _, s := range o.sessions {
		sessions = append(sessions, s)
	}
	for token := range o.closings {
		closings = append(closings, token)
	}
	return sessions, closings
}

// len returns the number of open runs.
func (o *openRuns) len() int {
	n := 0
	for _, s := range o.sessions {
		n += len(s.Runs)
	}
	return n
}

// fold takes the next commit, and returns its session if runs are open in it.
// An event that does not decode is skipped: it stops the session's own writer
// too.
func (o *openRuns) fold(e session.Entry) *openSession {
	k := e.Commit.Key
	s := o.sessions[k]
	for _, ev := range e.Commit.Events {
		switch ev.Kind {
		case run.KindSubmitted:
			v, err := run.Read[run.Submitted](ev)
			if err != nil {
				continue
			}
			if s == nil {
				s = &openSession{Tenant: k.Tenant, Session: k.ID, Writer: writerOf(e)}
				o.sessions[k] = s
			}
			if s.run(v.Task.Run) == nil {
				s.Runs = append(s.Runs, &openRun{
					ID: v.Task.Run, Workflow: v.Task.Workflow, Revision: v.Task.Revision, State: run.Queued,
					NotBefore: v.Task.NotBefore, Deadline: v.Task.Deadline, Life: v.Task.Budget.Time.Milliseconds(),
				})
			}
		case run.KindQuarantined:
			v, err := run.Read[run.Quarantined](ev)
			if err != nil {
				continue
			}
			if s == nil {
				s = &openSession{Tenant: k.Tenant, Session: k.ID, Writer: writerOf(e)}
				o.sessions[k] = s
			}
			s.Apart = !v.Released
		case run.KindDisposed:
			o.closing(e)
		case run.KindEnded:
			if v, err := run.Read[run.Ended](ev); err == nil && len(v.Branches)+len(v.Children) > 0 {
				o.closing(e)
			}
		}
		if s != nil {
			s.fold(e, ev)
		}
	}
	if s != nil && len(s.Runs) == 0 && s.Ended == 0 && !s.Apart {
		delete(o.sessions, k)
		return nil
	}
	return s
}

func (o *openRuns) closing(e session.Entry) {
	if o.closings[e.At.Token] == nil {
		o.closings[e.At.Token] = &attempts{}
	}
}

// writerOf returns the incarnation that a commit names as the session's
// writer. The commit that submits a session's first open run names none if
// the writer was there before: then its claim does.
func writerOf(e session.Entry) string {
	for _, ev := range e.Commit.Events {
		switch ev.Kind {
		case run.KindWriter:
			if v, err := run.Read[run.WriterOpened](ev); err == nil {
				return v.Incarnation
			}
		case run.KindClaimed:
			if v, err := run.Read[run.Claimed](ev); err == nil {
				return v.Incarnation
			}
		}
	}
	return ""
}

func (s *openSession) fold(e session.Entry, ev session.Event) {
	switch ev.Kind {
	case run.KindWriter:
		if v, err := run.Read[run.WriterOpened](ev); err == nil {
			s.Writer = v.Incarnation
		}
	case run.KindClaimed:
		v, err := run.Read[run.Claimed](ev)
		if r := s.run(v.Run); err == nil && r != nil && v.Home == e.Commit.Key {
			r.to(run.Running)
			r.Incarnation, s.Active, s.Writer = v.Incarnation, v.Run, v.Incarnation
			r.NotBefore = 0
			if r.Started == 0 {
				r.Started = ev.Time.UnixMilli()
			}
		}
	case run.KindReleased:
		if v, err := run.Read[run.Released](ev); err == nil {
			s.queue(v.Run, v.Workflow, v.Revision)
		}
	case run.KindReview:
		v, err := run.Read[run.Review](ev)
		if r := s.run(v.Run); err == nil && r != nil {
			r.to(run.NeedsReview)
			r.Expires = v.Expires
		}
	case run.KindResolved:
		if v, err := run.Read[run.Resolved](ev); err == nil {
			s.queue(v.Run, v.Workflow, v.Revision)
		}
	case run.KindRebudgeted:
		v, err := run.Read[run.Rebudgeted](ev)
		if r := s.run(v.Run); err == nil && r != nil {
			r.Life = v.Budget.Time.Milliseconds()
		}
	case run.KindWaiting:
		v, err := run.Read[run.Suspended](ev)
		if r := s.run(v.Run); err == nil && r != nil {
			r.wait(v.For)
		}
	case run.KindReceived:
		v, err := run.Read[run.Received](ev)
		if r := s.run(v.Run); err == nil && r != nil {
			r.received(v)
		}
	case run.KindFanOut:
		v, err := run.Read[run.FanOut](ev)
		if r := s.run(v.Run); err == nil && r != nil {
			r.FanOuts = append(r.FanOuts, openFanOut{e.At.Token, v.Path, len(v.Branches)})
		}
	case run.KindSpread:
		v, err := run.Read[run.FanOut](ev)
		if r := s.run(v.Run); err == nil && r != nil {
			for i := range r.FanOuts {
				if r.FanOuts[i].Path == v.Path {
					r.FanOuts[i].Token = e.At.Token // the tasks of its branches follow from here now
				}
			}
		}
	case run.KindWarmed:
		if v, err := run.Read[run.Warmed](ev); err == nil && s.run(v.Run) != nil {
			s.Warmed = e.At.Token
		}
	case run.KindEnded:
		v, err := run.Read[run.Ended](ev)
		if err != nil {
			return
		}
		s.Runs = slices.DeleteFunc(s.Runs, func(r *openRun) bool { return r.ID == v.Run })
		if s.Active == v.Run {
			s.Active = ""
		}
		if v.Parent != nil {
			s.Ended, s.Warmed = e.At.Token, 0
		}
	case session.KindClosed:
		s.Ended = 0
	}
}

// queue folds that a run waits to be taken up, by those who offer a revision.
func (s *openSession) queue(id run.ID, workflow, revision string) {
	if r := s.run(id); r != nil {
		r.to(run.Queued)
		if workflow != "" {
			r.Revision = revision
		}
	}
}

// to folds a change of state, which ends what was offered and due before.
func (r *openRun) to(state run.State) {
	r.State, r.Incarnation, r.Expires, r.Waits = state, "", 0, nil
	r.offered, r.due = attempts{}, attempts{}
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

func (r *openRun) wait(waits []run.Wait) {
	r.to(run.Waiting)
	for _, w := range waits {
		if w.Due != 0 {
			r.Waits = append(r.Waits, dueWait{w.Path, w.Due})
		}
	}
}

func (r *openRun) received(v run.Received) {
	if v.Kind == run.Report {
		for i := range r.FanOuts {
			if run.GatherPath(r.FanOuts[i].Path) == v.Path {
				r.FanOuts[i].Left--
			}
		}
		r.FanOuts = slices.DeleteFunc(r.FanOuts, func(f openFanOut) bool { return f.Left <= 0 })
	}
	r.Waits = slices.DeleteFunc(r.Waits, func(w dueWait) bool { return w.Path == v.Path })
	if v.Wake > 0 {
		r.to(run.Queued)
	}
}

// next returns the run that somebody should take up, if the incarnation that
// holds the session's run does not live: nil if there is nothing to do.
func (s *openSession) next(now time.Time, lives func(incarnation string) bool) *openRun {
	if s.Apart {
		return nil
	}
	if r := s.run(s.Active); r != nil {
		switch {
		case s.executes(r, lives):
			return nil
		case r.State == run.Running, r.State == run.Queued:
			return r
		}
		return nil // it waits, and holds the session
	}
	for _, r := range s.Runs {
		// What is not due yet does not keep others waiting.
		if r.State == run.Queued && r.NotBefore <= now.UnixMilli() {
			return r
		}
	}
	return nil
}

// executes reports whether a run is in the hands of an incarnation that lives.
func (s *openSession) executes(r *openRun, lives func(incarnation string) bool) bool {
	return r.State == run.Running && r.Incarnation == s.Writer && lives(r.Incarnation)
}

// times yields when something about a run is due by the clock.
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

// offer returns the offer of a run.
func (s *openSession) offer(r *openRun) run.Task {
	return run.Task{ID: r.ID, Workflow: r.Workflow, Revision: r.Revision, Session: s.key(), Resume: true}
}
