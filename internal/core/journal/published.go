package journal

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/protection"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The events of the log of a published event. Each tenant, name and key has a log of its own,
// in which no run executes. The commit in which a run waits for an event sends its waits
// there, publishers append, the log decides, and the deliveries go to the homes of the runs.
const (
	KindEventPublished = "event.published"
	KindEventAwaited   = "event.awaited"
	KindEventDelivered = "event.delivered"
	KindEventReleased  = "event.released"
)

// The bounds of the log of an event: EventsKept is the time for which it keeps an event for
// later waits; it keeps at most maxEvents, with values of at most maxEventBytes in all, and
// waits of at most maxLimited runs. A wait stays overdue, because clocks differ.
const (
	EventsKept    = 7 * 24 * time.Hour
	maxEvents     = 256
	maxEventBytes = 1 << 20
	overdue       = time.Minute
)

// EventLog returns the id of the log of an event.
func EventLog(mint commitlog.IDGenerator, t session.Tenant, name, key string) (session.ID, error) {
	text, err := canonical.Marshal([]string{name, key})
	return mint.Child(t, text, "event"), err
}

// Published is a published event.
type Published struct {
	At    int64  `json:"at"` // Unix milliseconds; set by the log
	By    string `json:"by,omitempty"`
	ID    string `json:"id"` // another event with it is rejected while the log keeps this one
	Key   string `json:"key"`
	Name  string `json:"name"`
	Says  string `json:"says,omitempty"`
	Seq   uint64 `json:"seq"`             // its place in the log, from one; set by the log
	Value string `json:"value,omitempty"` // JSON
}

// EventPublished records an event.
type EventPublished struct {
	KeyState
	Event Published `json:"event"`
}

// EventAwaited records all waits of a run for the event. They replace the earlier ones.
type EventAwaited struct {
	KeyState
	For     []Wait     `json:"for"`
	N       uint64     `json:"n"` // the number of the commit in its home
	Run     run.ID     `json:"run"`
	Session session.ID `json:"session"` // its home
}

// EventDelivered records that an event ends waits.
type EventDelivered struct {
	KeyState
	Event Published       `json:"event"`
	To    []EventReceiver `json:"to"`
}

// EventReceiver names a wait that an event ends.
type EventReceiver struct {
	Path    run.Path   `json:"path"`
	Run     run.ID     `json:"run"`
	Session session.ID `json:"session"`
}

// EventReleased records that a run waits no longer or, without a run, that the times of waits
// are over.
type EventReleased struct {
	KeyState
	N       uint64     `json:"n,omitempty"` // the number of the commit in its home
	Run     run.ID     `json:"run,omitempty"`
	Session session.ID `json:"session,omitempty"`
}

// EventSignal is a fact for the log of an event; exactly one of them is set.
type EventSignal struct {
	Awaited   *EventAwaited  `json:"awaited,omitempty"`
	Published *Published     `json:"published,omitempty"`
	Released  *EventReleased `json:"released,omitempty"`
}

// EventState is the fold of the log of an event.
type EventState struct {
	Events  []*Published    `json:"events,omitempty"`  // the oldest first; never changed
	Last    uint64          `json:"last,omitempty"`    // the place of the newest event, also of one that is not kept
	Waiting []*EventAwaited `json:"waiting,omitempty"` // the oldest first; never changed
	// first is a time before which no wait is over; zero is unknown.
	first int64
}

func (l *EventState) clone() EventState {
	if l == nil {
		return EventState{}
	}
	return EventState{slices.Clone(l.Events), l.Last, slices.Clone(l.Waiting), l.first}
}

func (l *EventState) waits(id run.ID) int {
	return slices.IndexFunc(l.Waiting, func(r *EventAwaited) bool { return r.Run == id })
}

func (l *EventState) open() int64 { return int64(len(l.Waiting)) }

func (l *EventState) state(now int64) KeyState { return KeyState{l.due(now), l.open()} }

// idle reports whether the log can be removed: no run waits, and no event is kept.
func (l *EventState) idle(now int64) bool {
	return l == nil || l.open() == 0 && (len(l.Events) == 0 || now-l.Events[len(l.Events)-1].At >= EventsKept.Milliseconds())
}

// with returns the state after a fact. It may change l.
func (l *EventState) with(fact any, now int64) *EventState {
	if l == nil {
		l = &EventState{}
	}
	l.fold(fact, now)
	return l
}

// fold applies a fact of the log, and drops old events and waits.
func (l *EventState) fold(fact any, now int64) {
	switch v := fact.(type) {
	case EventPublished:
		l.Events, l.Last = append(l.Events, &v.Event), v.Event.Seq
	case EventAwaited:
		if i := l.waits(v.Run); i >= 0 {
			l.Waiting[i] = &v
		} else {
			l.Waiting = append(l.Waiting, &v)
		}
		for _, w := range v.For {
			if end := w.end(); l.first != 0 && end != 0 {
				l.first = min(l.first, end)
			}
		}
	case EventDelivered:
		ends := map[EventReceiver]bool{}
		for _, to := range v.To {
			ends[to] = true
		}
		l.drop(func(r *EventAwaited, w Wait) bool { return ends[EventReceiver{w.Path, r.Run, r.Session}] })
	case EventReleased:
		if i := l.waits(v.Run); i >= 0 && l.Waiting[i].N <= v.N {
			l.Waiting = slices.Delete(l.Waiting, i, i+1)
		}
	}
	if l.first <= now {
		l.first = math.MaxInt64
		l.drop(func(_ *EventAwaited, w Wait) bool {
			end := w.end()
			if over := end != 0 && end <= now; end == 0 || over {
				return over
			}
			l.first = min(l.first, end)
			return false
		})
	}
	bytes := 0
	for i := len(l.Events) - 1; i >= 0; i-- {
		e := l.Events[i]
		if bytes += len(e.Value); now-e.At >= EventsKept.Milliseconds() || len(l.Events)-i > maxEvents || bytes > maxEventBytes {
			l.Events = slices.Delete(l.Events, 0, i+1)
			return
		}
	}
}

// end returns the time at which the log of an event drops a wait; zero is never.
func (w Wait) end() int64 {
	if w.Due == 0 {
		return 0
	}
	return w.Due + overdue.Milliseconds()
}

// drop removes waits.
func (l *EventState) drop(over func(*EventAwaited, Wait) bool) {
	kept := l.Waiting[:0]
	for _, r := range l.Waiting {
		var left []Wait
		for _, w := range r.For {
			if !over(r, w) {
				left = append(left, w)
			}
		}
		if len(left) > 0 && len(left) < len(r.For) {
			one := *r
			one.For, r = left, &one
		}
		if len(left) > 0 {
			kept = append(kept, r)
		}
	}
	clear(l.Waiting[len(kept):])
	l.Waiting = kept
}

// next returns the event that ends a wait, nil for none. The places of a log that was removed
// and has begun anew are lower than the one that a run has, but its events are later.
func (l *EventState) next(w Wait) *Published {
	var next *Published
	for _, e := range slices.Backward(l.Events) {
		if protection.EventCursor && e.Seq <= w.After && (w.Since == 0 || e.At <= w.Since) {
			break
		}
		next = e
	}
	return next
}

// page returns the next delivery: of one event, to at most maxDecided waits.
func (l *EventState) page() (d EventDelivered) {
	if len(l.Events) == 0 {
		return d
	}
	for _, r := range l.Waiting {
		for _, w := range r.For {
			e := l.next(w)
			switch {
			case e == nil || len(d.To) > 0 && e.Seq != d.Event.Seq:
			case len(d.To) == maxDecided:
				return d
			default:
				d.Event, d.To = *e, append(d.To, EventReceiver{w.Path, r.Run, r.Session})
			}
		}
	}
	return d
}

// due returns the time at which the log has to act: at once if a wait has an event.
func (l *EventState) due(now int64) int64 {
	switch {
	case len(l.page().To) > 0:
		return now
	case len(l.Waiting) == 0 || l.first == math.MaxInt64:
		return 0
	}
	return l.first
}

// decideEvent decides about a fact for the log of an event, or with nil about the time.
func decideEvent(w *StateMachine, s *EventSignal, now time.Time) error {
	l, ms := w.state.events.clone(), now.UnixMilli()
	var events []session.Event
	l.fold(nil, ms)
	switch {
	case s == nil:
		if w.state.events.first <= ms {
			events = append(events, event(KindEventReleased, EventReleased{KeyState: l.state(ms)}))
		}
	case s.Published != nil:
		v := EventPublished{Event: *s.Published}
		for _, e := range l.Events {
			switch {
			case e.ID != v.Event.ID:
			case e.Value == v.Event.Value:
				return nil // it was published before
			default:
				return run.CodeKeyReused.Err(fmt.Sprintf("journal: event %s %s with id %s was published with another value at %s; choose another id",
					e.Name, e.Key, e.ID, time.UnixMilli(e.At).UTC().Format(time.RFC3339)))
			}
		}
		v.Event.Seq, v.Event.At = l.Last+1, ms
		l.fold(v, ms)
		v.KeyState = l.state(ms)
		events = append(events, event(KindEventPublished, v))
	case s.Awaited != nil:
		v := *s.Awaited
		i := l.waits(v.Run)
		switch {
		case i >= 0 && l.Waiting[i].N >= v.N:
			return nil // it arrived before
		case i < 0 && len(l.Waiting) >= maxLimited:
			return fmt.Errorf("journal: %d runs wait for the event of %s: %w", len(l.Waiting), w.key, session.ErrUnavailable)
		}
		l.fold(v, ms)
		v.KeyState = l.state(ms)
		events = append(events, event(KindEventAwaited, v))
	case s.Released != nil:
		v := *s.Released
		if i := l.waits(v.Run); i < 0 || l.Waiting[i].N > v.N {
			return nil
		}
		l.fold(v, ms)
		v.KeyState = l.state(ms)
		events = append(events, event(KindEventReleased, v))
	}
	if d := l.page(); len(d.To) > 0 {
		l.fold(d, ms)
		d.KeyState = l.state(ms)
		events = append(events, event(KindEventDelivered, d))
	}
	if len(events) == 0 {
		return fmt.Errorf("journal: no event is due in session %s: %w", w.key, run.ErrState)
	}
	return w.stage(now, events...)
}

// eventDelivered decides in the home of a run about an event for a wait.
func eventDelivered(r *Record, v SignalReceived) (again bool, err error) {
	if v.Event == nil {
		return false, fmt.Errorf("journal: a delivery to %s has no event: %w", r.ID, run.ErrMalformed)
	}
	for p := v.Path; p != ""; p = p.Parent() { // of the wait, its Select, and its Gather
		if s := r.steps[p]; s != nil && s.Kind != StepLoop || over(r, v.Path) {
			return false, fmt.Errorf("journal: step %s of %s waits for no event: %w", v.Path, r.ID, run.ErrState)
		}
	}
	return slices.ContainsFunc(r.inbox, func(o SignalReceived) bool { return o.Kind == Event && o.Path == v.Path }), nil
}

// lost reports whether a signal is an event for a case of a Select that another case won.
func (v SignalReceived) lost(d StepCompleted) bool {
	return v.Kind == Event && d.Kind == StepSelect && v.Path.Parent() == SelectPath(d.Path) && string(v.Path) != string(SelectPath(d.Path))+"."+d.Value
}

// eventLogs returns the logs of the events among waits.
func eventLogs(ws []Wait) (logs []session.ID) {
	for _, w := range ws {
		if w.Kind == run.WaitEvent && !slices.Contains(logs, w.Log) {
			logs = append(logs, w.Log)
		}
	}
	return logs
}

// leaving completes a run's wait with the logs of the events that it awaits no longer.
func (v RunWaiting) leaving(r *Record) RunWaiting {
	now := eventLogs(v.For)
	v.Left = slices.DeleteFunc(slices.Clone(r.awaits), func(id session.ID) bool { return slices.Contains(now, id) })
	return v
}

// eventWork adds the follow-ups of a commit that are about events.
func eventWork(work []Work, k session.Key, seq uint64, facts []Fact) []Work {
	send := func(to session.ID, about run.ID, s EventSignal) {
		work = append(work, Work{Signal: &Signal{To: session.Key{Tenant: k.Tenant, ID: to}, Run: about, Event: &s}})
	}
	release := func(id run.ID, logs []session.ID) {
		for _, to := range logs {
			send(to, id, EventSignal{Released: &EventReleased{N: seq, Run: id, Session: k.ID}})
		}
	}
	for i := range facts {
		switch v := facts[i].What.(type) {
		case RunWaiting:
			for _, to := range eventLogs(v.For) {
				one := slices.DeleteFunc(slices.Clone(v.For), func(w Wait) bool { return w.Kind != run.WaitEvent || w.Log != to })
				for j := range one { // the rest is for readers of the run
					one[j] = Wait{After: one[j].After, Due: one[j].Due, Kind: run.WaitEvent, Log: to, Path: one[j].Path, Since: one[j].Since}
				}
				send(to, v.Run, EventSignal{Awaited: &EventAwaited{For: one, N: seq, Run: v.Run, Session: k.ID}})
			}
			release(v.Run, v.Left)
		case EventDelivered:
			for _, to := range v.To {
				work = append(work, Work{Signal: &Signal{To: session.Key{Tenant: k.Tenant, ID: to.Session}, Run: to.Run, Received: &SignalReceived{
					By: v.Event.By, Event: &v.Event, Kind: Event, Path: to.Path, Run: to.Run, Says: v.Event.Says,
				}}})
			}
		case Ended:
			release(v.Run, v.Awaits)
		}
	}
	return work
}
