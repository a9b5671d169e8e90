package natsbus

import (
	"slices"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// openRuns is the set of a partition's runs that have not ended: a fold of its
// event stream over the few events that matter. It knows less than run.Book,
// and decides nothing: what is offered again because of it is claimed by the
// log's rules.
type openRuns struct {
	sessions map[session.Key]*openSession
}

type openSession struct {
	Tenant  session.Tenant `json:"tenant"`
	Session session.ID     `json:"session"`
	// Writer is the incarnation that wrote last: it holds the session if it
	// lives.
	Writer string     `json:"writer,omitempty"`
	Active run.ID     `json:"active,omitempty"` // claimed, not ended
	Runs   []*openRun `json:"runs"`             // in the order of their submission
}

type openRun struct {
	ID          run.ID    `json:"run"`
	Workflow    string    `json:"workflow"`
	Revision    string    `json:"revision,omitempty"`
	State       run.State `json:"state"`
	Incarnation string    `json:"incarnation,omitempty"` // that claimed it

	offered time.Time // by this relay
}

func newOpenRuns(saved []*openSession) *openRuns {
	o := &openRuns{sessions: map[session.Key]*openSession{}}
	for _, s := range saved {
		o.sessions[s.key()] = s
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
func (o *openRuns) saved() []*openSession {
	all := make([]*openSession, 0, len(o.sessions))
	for _, s := range o.sessions {
		all = append(all, s)
	}
	return all
}

// len returns the number of open runs.
func (o *openRuns) len() int {
	n := 0
	for _, s := range o.sessions {
		n += len(s.Runs)
	}
	return n
}

// fold takes the next commit. An event that does not decode is skipped: it
// stops the session's own writer too.
func (o *openRuns) fold(e session.Entry) {
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
				s.Runs = append(s.Runs, &openRun{ID: v.Task.Run, Workflow: v.Task.Workflow, Revision: v.Task.Revision, State: run.Queued})
			}
		case run.KindWriter, run.KindClaimed, run.KindReleased, run.KindReview, run.KindResolved, run.KindEnded:
			if s != nil {
				s.fold(k, ev)
			}
		}
	}
	if s != nil && len(s.Runs) == 0 {
		delete(o.sessions, k)
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

func (s *openSession) fold(k session.Key, ev session.Event) {
	switch ev.Kind {
	case run.KindWriter:
		if v, err := run.Read[run.WriterOpened](ev); err == nil {
			s.Writer = v.Incarnation
		}
	case run.KindClaimed:
		v, err := run.Read[run.Claimed](ev)
		if r := s.run(v.Run); err == nil && r != nil && v.Home == k {
			r.State, r.Incarnation, s.Active, s.Writer = run.Running, v.Incarnation, v.Run, v.Incarnation
		}
	case run.KindReleased:
		if v, err := run.Read[run.Released](ev); err == nil {
			s.to(v.Run, run.Queued)
		}
	case run.KindReview:
		if v, err := run.Read[run.Review](ev); err == nil {
			s.to(v.Run, run.NeedsReview)
		}
	case run.KindResolved:
		if v, err := run.Read[run.Resolved](ev); err == nil {
			s.to(v.Run, run.Queued)
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
	}
}

func (s *openSession) to(id run.ID, state run.State) {
	if r := s.run(id); r != nil {
		r.State, r.Incarnation = state, ""
	}
}

// due returns the run that somebody should take up, if the incarnation that
// holds the session's run does not live: nil if there is nothing to do.
func (s *openSession) due(lives func(incarnation string) bool) *openRun {
	if len(s.Runs) == 0 {
		return nil
	}
	r := s.run(s.Active)
	if r == nil {
		r = s.Runs[0]
	}
	switch {
	case r.State == run.Running && r.Incarnation == s.Writer && lives(r.Incarnation):
		return nil
	case r.State == run.Running, r.State == run.Queued:
		return r
	}
	return nil
}

// offer returns the offer of a run.
func (s *openSession) offer(r *openRun) run.Task {
	return run.Task{ID: r.ID, Workflow: r.Workflow, Revision: r.Revision, Session: s.key(), Resume: true}
}
