package audit

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
)

// eventOverdue is the time in milliseconds for which the log of an event keeps a wait that is
// over.
const eventOverdue = 60_000

// publishedLog is the state of the log of an event.
type publishedLog struct {
	first   int64                        // the time of its first fact
	digests map[uint64][sha256.Size]byte // of the events, by their places
	last    uint64
	waiting []awaitedData
}

// deliveryKey names the event that ends a wait.
type deliveryKey struct {
	tenant, log, run, path string
	seq                    uint64
}

// eventMark is an event in the inbox of a run, or the waits of one in the log of an event,
// for the comparison with the other log.
type eventMark struct {
	log  *log
	seq  uint64 // of the commit
	run  string
	of   deliveryKey // of an inbox
	at   int64       // likewise: the time of the event
	ask  *awaitedData
	from string // the log of the event
}

// publishedOf returns the state of the log of an event.
func publishedOf(f *folding) *publishedLog {
	if f.l.events == nil {
		f.l.events = &publishedLog{first: f.c.events[f.i].time, digests: map[uint64][sha256.Size]byte{}}
	}
	return f.l.events
}

// drop removes waits.
func (l *publishedLog) drop(over func(*awaitedData, wait) bool) {
	for i := range l.waiting {
		r := &l.waiting[i]
		r.For = slices.DeleteFunc(slices.Clone(r.For), func(w wait) bool { return over(r, w) })
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(r awaitedData) bool { return len(r.For) == 0 })
}

// settle drops the waits whose time is over, and checks the number of runs that wait.
func (l *publishedLog) settle(f *folding, e *event, run string, open int) {
	l.drop(func(_ *awaitedData, w wait) bool { return w.Due != 0 && w.Due+eventOverdue <= e.time })
	f.a.check(Events, len(l.waiting) == open, f.says(run, fmt.Sprintf("%d runs that wait", len(l.waiting)), fmt.Sprint(open)))
}

func published(f *folding, e *event, d publishedData) {
	l, v := publishedOf(f), publishedEvent{}
	ok := json.Unmarshal(d.Event, &v) == nil && v.ID != "" && v.Seq == l.last+1 && v.At == e.time
	f.a.check(Events, ok, f.says("", fmt.Sprintf("event %d of this time", l.last+1), clip(string(d.Event), 80)))
	l.last = max(l.last, v.Seq)
	l.digests[v.Seq] = sha256.Sum256(d.Event)
	l.settle(f, e, "", d.Open)
}

func awaited(f *folding, e *event, d awaitedData) {
	l := publishedOf(f)
	i := slices.IndexFunc(l.waiting, func(r awaitedData) bool { return r.Run == d.Run })
	f.a.check(Events, len(d.For) > 0 && (i < 0 || l.waiting[i].N < d.N), f.says(d.Run, "waits of a later commit", "those before"))
	if i < 0 {
		l.waiting = append(l.waiting, d)
	} else {
		l.waiting[i] = d
	}
	f.a.events = append(f.a.events, eventMark{log: f.l, seq: f.c.seq, run: d.Run, ask: &d, from: f.l.id})
	l.settle(f, e, d.Run, d.Open)
}

func delivered(f *folding, e *event, d deliveredData) {
	l, v := publishedOf(f), publishedEvent{}
	ok := json.Unmarshal(d.Event, &v) == nil && l.digests[v.Seq] == sha256.Sum256(d.Event)
	f.a.check(Events, ok, f.says("", "the delivery of an event as it was published", clip(string(d.Event), 80)))
	for _, to := range d.To {
		waits := slices.ContainsFunc(l.waiting, func(r awaitedData) bool {
			return r.Run == to.Run && r.Session == to.Session && slices.ContainsFunc(r.For, func(w wait) bool { return w.Path == to.Path && w.before(&v) })
		})
		f.a.check(Events, waits, f.says(to.Run, fmt.Sprintf("a wait at step %s for event %d", to.Path, v.Seq), "none"))
		l.drop(func(r *awaitedData, w wait) bool { return r.Run == to.Run && w.Path == to.Path })
		f.a.delivered[deliveryKey{f.l.tenant, f.l.id, to.Run, to.Path, v.Seq}] = true
	}
	l.settle(f, e, "", d.Open)
}

func unawaited(f *folding, e *event, d awaitedData) {
	l := publishedOf(f)
	l.drop(func(r *awaitedData, _ wait) bool { return r.Run == d.Run && r.N <= d.N })
	l.settle(f, e, d.Run, d.Open)
}

// before reports whether an event is later than the one that the run of the wait has.
func (w *wait) before(v *publishedEvent) bool {
	return v.Seq > w.After || w.Since > 0 && v.At > w.Since
}

// closedKey checks the end of the log of a limit or of an event, which is removed. A fact that
// follows is in another log, or a violation.
func closedKey(f *folding, _ *event, _ struct{}) {
	open := 0
	if l := f.l.events; l != nil {
		open = len(l.waiting)
	}
	if l := f.l.limit; l != nil {
		open += l.open()
	}
	f.a.check(Archives, open == 0, f.says("", "key.closed in a log without runs", fmt.Sprintf("%d that wait or hold", open)))
	f.l.fence = keyClosed
}

// awaitsKeys notes the waits of a run for events and quotas.
func awaitsKeys(f *folding, r *logRun, d *waitingData) {
	for _, w := range d.For {
		if w.Kind == "quota" {
			markLimit(f, quotaWaits, d.Run, w.Log, "", w.Path)
		}
		if w.Kind != "event" {
			continue
		}
		if r.events == nil {
			r.events = map[string]wait{}
		}
		r.events[w.Path] = w
		f.a.awaited[awaitKey{f.l, f.c.seq, d.Run, w.Path, w.Log, w.After}] = true
	}
}

// gotEvent checks an event in the inbox of a run.
func gotEvent(f *folding, r *logRun, d *receivedData) {
	w, waits := r.events[d.Path]
	f.a.check(Events, d.ID == "" && waits, f.says(d.Run, "an event for a wait at step "+d.Path, "it, and the run does not wait"))
	if d.Event == nil || !waits {
		return
	}
	_, past := r.steps[d.Path]
	twice := slices.ContainsFunc(r.inbox, func(v receivedData) bool { return v.Kind == "event" && v.Path == d.Path })
	f.a.check(Events, !past && !twice, f.says(d.Run, "one event for the wait at step "+d.Path, "another one"))
	f.a.check(Events, w.before(d.Event), f.says(d.Run, fmt.Sprintf("an event after %d at step %s", w.After, d.Path), fmt.Sprintf("event %d", d.Event.Seq)))
	f.a.events = append(f.a.events, eventMark{log: f.l, seq: f.c.seq, run: d.Run, of: deliveryKey{f.l.tenant, w.Log, d.Run, d.Path, d.Event.Seq}, at: d.Event.At, from: w.Log})
}

// tookEvent checks the step that takes an event from the inbox.
func tookEvent(f *folding, r *logRun, d *doneData) {
	for _, v := range r.inbox {
		if v.Path != d.Path || v.Event == nil || d.Code != "" {
			continue
		}
		var took struct {
			ID  string `json:"id"`
			Seq uint64 `json:"seq"`
		}
		_ = json.Unmarshal([]byte(d.Value), &took) // else it is another one
		f.a.check(Events, took.Seq == v.Event.Seq && took.ID == v.Event.ID, f.says(d.Run, fmt.Sprintf("step %s to take event %d that came", d.Path, v.Event.Seq), clip(d.Value, 60)))
		return
	}
}

// finishEvents compares the logs of events with the homes of the runs.
func finishEvents(a *audit) {
	for _, m := range a.events {
		if m.ask == nil {
			from := a.logs[key{m.log.tenant, m.from}]
			removed := from == nil || from.events != nil && m.at < from.events.first // and has begun anew
			a.check(Events, a.delivered[m.of] || removed || a.incomplete(from), func() Violation {
				return m.log.says(m.seq, m.run, fmt.Sprintf("an event.delivered of event %d in %s", m.of.seq, m.from), "none")
			})
			continue
		}
		home := a.logs[key{m.log.tenant, m.ask.Session}]
		if home == nil || a.incomplete(home) {
			continue
		}
		for _, w := range m.ask.For {
			a.check(Events, a.awaited[awaitKey{home, m.ask.N, m.run, w.Path, m.from, w.After}], func() Violation {
				return m.log.says(m.seq, m.run, fmt.Sprintf("run.waiting for it at step %s in commit %d of %s", w.Path, m.ask.N, m.ask.Session), "none")
			})
		}
	}
}

// awaitKey names a wait for an event in the home of a run.
type awaitKey struct {
	home      *log
	commit    uint64
	run, path string
	from      string // the log of the event
	after     uint64
}
