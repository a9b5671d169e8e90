package schedule

import (
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
)

// Next returns the actions to be carried out now.
func (s *Scheduler) Next(now time.Time) []Action {
	if s.idle {
		return nil
	}
	s.alarms.ring(now)
	s.assign(now)
	for _, l := range []*lane[*followUp]{&s.urgent, &s.results, &s.looks, &s.later} {
		for f, ok := l.next(); ok; f, ok = l.next() {
			if f.over {
				continue
			}
			f.busy = true
			l.busy++
			s.ask(f, s.action(f))
		}
	}
	for d, ok := s.loads.next(); ok; d, ok = s.loads.next() {
		s.loads.busy++
		s.ask(d, Action{Kind: Load, Token: d.Token})
	}
	out := s.out
	s.out = nil
	return out
}

// ask adds an action whose outcome belongs to v.
func (s *Scheduler) ask(v any, a Action) {
	s.last++
	a.ID = s.last
	s.asked[a.ID] = v
	s.out = append(s.out, a)
}

// start has a follow-up carried out.
func (s *Scheduler) start(now time.Time, f *followUp) {
	switch {
	case f.over || f.busy:
	case f.begin != nil && !f.before:
		s.enqueue(now, f.begin, false)
	default:
		l := s.lane(f)
		l.waiting = append(l.waiting, f)
	}
}

// lane returns where a follow-up waits.
func (s *Scheduler) lane(f *followUp) *lane[*followUp] {
	switch {
	case f.begin != nil:
		return &s.looks
	case f.later():
		return &s.later
	case f.result != nil:
		return &s.results
	}
	return &s.urgent
}

// action returns the action that carries a follow-up out. The beginning of a branch that a
// former relay may have started is looked up: from its first commit on the relay of the
// branch's own partition is responsible.
func (s *Scheduler) action(f *followUp) Action {
	switch {
	case f.begin != nil:
		return Action{Kind: Look, Session: f.begin.task.Session}
	case f.result != nil:
		return Action{Kind: Store, Tenant: f.of.session.Tenant, Result: f.result, Before: f.before}
	}
	return Action{Kind: Signal, Work: journal.Work{Signal: f.signal}}
}

// Done processes the outcome of an action.
func (s *Scheduler) Done(now time.Time, id uint64, o Outcome) {
	if f, ok := s.flights[id]; ok {
		delete(s.flights, id)
		s.answered(now, f, o)
		return
	}
	v := s.asked[id]
	delete(s.asked, id)
	switch v := v.(type) {
	case *followUp:
		s.carriedOut(now, v, o)
	case *followUps:
		s.loads.busy--
		s.loaded(now, v, o)
	case *holder:
		if v.asking = false; s.holders[v.incarnation] == v {
			s.setAlive(now, v, o.Found)
		}
	case *group:
		s.placed(now, v, o)
	}
}

// carriedOut processes the outcome of a follow-up.
func (s *Scheduler) carriedOut(now time.Time, f *followUp, o Outcome) {
	s.lane(f).busy--
	f.busy = false
	switch {
	case f.tick != nil:
		f.tick.ticking = false
	case f.over:
	case f.begin != nil && o.Result == Settled && !o.Found:
		f.before = false
		s.start(now, f)
	case o.Result == Settled:
		home := f.of.session
		s.settle(f)
		s.refresh(now, home)
	default:
		f.before = true // a failed action may have been carried out all the same
		if f.again == nil {
			f.again = &alarm{fire: func(now time.Time) { s.start(now, f) }}
		}
		most := signalMost
		if f.result != nil || f.begin != nil {
			most = resultMost
		}
		s.alarms.set(f.again, now.Add(f.tries.next(signalFirst, most)))
	}
}

// loaded derives the follow-ups of a commit that a former relay left.
func (s *Scheduler) loaded(now time.Time, d *followUps, o Outcome) {
	if s.sessions[d.session.key()] != d.session {
		return
	}
	if o.Result != Settled {
		if d.again == nil {
			d.again = &alarm{fire: func(time.Time) { s.loads.waiting = append(s.loads.waiting, d) }}
		}
		s.alarms.set(d.again, now.Add(d.tries.next(signalFirst, resultMost)))
		return
	}
	var items []*followUp
	if o.Entry != nil {
		items, _ = derive(*o.Entry, journal.Facts(o.Entry.Commit)) // unreadable facts were reported when the commit was folded
	}
	open := map[int]bool{}
	for _, i := range d.Open {
		open[i] = true
	}
	d.items, d.Open = nil, nil
	for _, f := range items {
		if !open[f.place] || f.begin != nil && d.session.run(opener(f.begin.task)) == nil {
			continue
		}
		f.of, f.before = d, true
		if f.begin != nil {
			f.begin.branch = f
		}
		d.items, d.Open = append(d.items, f), append(d.Open, f.place)
	}
	if len(d.Open) == 0 {
		d.session.settled(d)
	}
	for _, f := range d.items {
		s.start(now, f)
	}
	s.pages.changed(d.session)
	s.refresh(now, d.session)
}

// nudge schedules a call of Next at a time at which a node can be asked again.
func (s *Scheduler) nudge(at time.Time) {
	if s.reminder.index == 0 || at.Before(s.reminder.at) {
		s.alarms.set(&s.reminder, at)
	}
}

// remind schedules the next announcement of demand to busy nodes.
func (s *Scheduler) remind() {
	for _, n := range s.nodes {
		if n.busy && n.demanded {
			s.nudge(n.demandDue)
		}
	}
}
