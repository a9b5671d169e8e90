package schedule

import (
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
)

// Next returns the actions to be carried out now.
func (s *Scheduler) Next(now time.Time) []Action {
	if s.actions.idle {
		return nil
	}
	s.alarms.ring(now)
	s.Slots.assign(now)
	for _, l := range []*lane[*followUp]{&s.urgent, &s.results, &s.looks, &s.later} {
		for f, ok := l.next(); ok; f, ok = l.next() {
			if f.over {
				continue
			}
			f.busy = true
			l.busy++
			s.actions.ask(f, f.action())
		}
	}
	for d, ok := s.loads.next(); ok; d, ok = s.loads.next() {
		s.loads.busy++
		s.actions.ask(d, Action{Kind: Load, Token: d.Token})
	}
	out := s.actions.out
	s.actions.out = nil
	return out
}

// start has a follow-up carried out.
func (s *Scheduler) start(now time.Time, f *followUp) {
	switch {
	case f.over || f.busy:
	case f.begin != nil && !f.before:
		s.Slots.enqueue(now, f.begin, false)
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

// Done processes the outcome of an action.
func (s *Scheduler) Done(now time.Time, id uint64, o Outcome) {
	if f, ok := s.Slots.flights[id]; ok {
		delete(s.Slots.flights, id)
		if begun := s.Slots.answered(now, f, o); begun != nil {
			s.done(now, begun)
		}
		return
	}
	v := s.actions.asked[id]
	delete(s.actions.asked, id)
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
		s.Slots.placed(now, v, o)
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
		s.done(now, f)
	default:
		f.before = true // a failed action may have been carried out all the same
		if f.again == nil {
			f.again = &alarm{fire: func(now time.Time) { s.start(now, f) }}
		}
		most := signalMost
		if f.result != nil || f.begin != nil || f.submit != nil {
			most = resultMost
		}
		s.alarms.set(f.again, now.Add(f.tries.next(signalFirst, most)))
	}
}

// done settles a follow-up that was carried out.
func (s *Scheduler) done(now time.Time, f *followUp) {
	home := f.of.session
	s.settle(f)
	s.refresh(now, home)
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
	s.Pages.changed(d.session)
	s.refresh(now, d.session)
}
