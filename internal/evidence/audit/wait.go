package audit

import (
	"fmt"
	"slices"
)

// maxSignals is the maximum number of signal ids stored per open run.
const maxSignals = 16 << 10

func (f *folding) waits(e *event, d waitingData) {
	r, _ := f.here(d.Run)
	if !f.lives(d.Run, r, runWaiting) {
		return
	}
	f.attempt(d.Run, r, d.Attempt, runWaiting)
	f.a.check(OneWriter, r.epoch == f.c.epoch, f.says(d.Run, fmt.Sprintf("a claim in epoch %d before run.waiting", f.c.epoch), fmt.Sprintf("the last one in epoch %d", r.epoch)))
	f.a.check(OneEnd, !r.cancelled, f.says(d.Run, "run.ended after run.cancel_requested", runWaiting))
	f.a.check(Waits, r.home, f.says(d.Run, "run.waiting in the home of the run", "it elsewhere"))
	f.a.check(Waits, r.state == "running", f.says(d.Run, "a run that waits to run before", "it "+r.state))
	f.a.check(Waits, len(d.For) > 0, f.says(d.Run, "something to wait for", "nothing"))
	f.a.check(Waits, !d.came(r.inbox),
		f.says(d.Run, "no wait for what has come already", "one that nothing would end"))
	awaitsKeys(f, r, &d)
	r.state, r.suspended, r.parting = "waiting", &d, parting{f.c.seq, e.batch}
	r.clear()
}

func (f *folding) received(e *event, d receivedData) {
	if d.Kind != "branch" {
		f.signal(d.ID, d.Run)
	}
	if d.Run == "" {
		f.idle(&d)
		return
	}
	r, g := f.here(d.Run)
	if !f.lives(d.Run, r, runReceived+" ("+d.Kind+")") {
		return
	}
	f.a.check(Waits, r.home, f.says(d.Run, "run.received in the home of the run", "it elsewhere"))
	f.a.check(Waits, d.N == r.inboxed+1, f.says(d.Run, fmt.Sprintf("place %d in the inbox", r.inboxed+1), fmt.Sprintf("place %d", d.N)))
	r.inboxed = max(r.inboxed, d.N)
	if d.ID != "" {
		at, twice := r.ids[d.ID]
		f.a.check(Waits, !twice, f.says(d.Run, fmt.Sprintf("signal %s taken once, at place %d", d.ID, at), fmt.Sprintf("it again at place %d", d.N)))
		if r.ids == nil {
			r.ids = map[string]uint64{}
		}
		if len(r.ids) < maxSignals {
			r.ids[d.ID] = d.N
		}
	}
	if d.Kind == "ended" && d.Path == "" {
		preceded(f, g, &d)
		return
	}
	switch d.Kind {
	case "approve", "reject", "respond", "timer", "opened":
		openedQuota(f, r, &d)
		f.a.check(Waits, r.asks(&d, e.time), f.says(d.Run, "a question at step "+d.Path+" that is open and takes this answer", d.Kind+" "+d.By))
		f.answered(r, &d)
	}
	if d.Branch != nil {
		f.reported(&d)
	}
	if d.Kind == "ended" {
		startedEnd(f, r, &d)
	}
	f.a.check(Events, (d.Kind == "event") == (d.Event != nil), f.says(d.Run, "an event in a signal of kind event alone", d.Kind))
	if d.Kind == "event" {
		gotEvent(f, r, &d)
	}
	f.a.witness.received(f.l, &d)
	d.Text, d.Value, d.Reason = "", "", ""                    // waits do not depend on the contents
	if _, late := r.steps[d.Path]; d.Branch == nil || !late { // a late report only has the branch's usage
		r.inbox = append(r.inbox, d)
	}
	f.woken(r, &d)
}

// maxLogSignals is the number of the latest signal ids that a log stores.
const maxLogSignals = 128

// signalMark is a recorded signal; run is empty for a signal to the session.
type signalMark struct{ id, run string }

// signal checks that a signal was not recorded before.
func (f *folding) signal(id, run string) {
	if id == "" {
		return
	}
	twice := slices.ContainsFunc(f.l.signals, func(m signalMark) bool { return m.id == id && (run == "" || m.run == run) })
	f.a.check(Waits, !twice, f.says(run, "signal "+id+" taken once", "it again"))
	f.l.signals = append(f.l.signals[max(len(f.l.signals)+1-maxLogSignals, 0):], signalMark{id, run})
}

// idle checks a message to a session that no run holds.
func (f *folding) idle(d *receivedData) {
	f.a.check(Waits, d.Kind == "message" && d.ID != "" && d.N == 0 && d.Text == "", f.says("", "the id of a message, for the session", d.Kind+" "+d.ID))
	f.a.check(Waits, f.l.active == "", f.says("", "a message in the inbox of the run that holds the session, "+f.l.active, "it beside"))
	said := f.i+1 < len(f.c.events) && f.c.events[f.i+1].kind == sessionChunk
	f.a.check(Waits, said, f.says("", "the chunk of the message after its id", "none"))
}

// woken checks that a run resumes if, and only if, all its waits have ended.
func (f *folding) woken(r *logRun, d *receivedData) {
	if r.state != "waiting" {
		f.a.check(Waits, d.Wake == 0, f.says(d.Run, "a wake of a run that waits only", fmt.Sprintf("wake %d while it is %s", d.Wake, r.state)))
		return
	}
	came := r.suspended.came(r.inbox)
	switch {
	case d.Wake > 0:
		f.a.check(Waits, d.Wake == r.wake+1, f.says(d.Run, fmt.Sprintf("wake %d", r.wake+1), fmt.Sprintf("wake %d", d.Wake)))
		f.a.check(Waits, came, f.says(d.Run, "a wake once all has come that the run waits for", "one before"))
		r.state, r.suspended, r.wake = "queued", nil, max(r.wake, d.Wake)
	default:
		f.a.check(Waits, !came, f.says(d.Run, "a wake with the last that the run waits for", "none: it would wait for ever"))
	}
}

// came reports whether an inbox ends the wait of the run.
func (d *waitingData) came(inbox []receivedData) bool {
	came := func(w wait) bool { return w.came(inbox) }
	if d.Any {
		return slices.ContainsFunc(d.For, came)
	}
	return !slices.ContainsFunc(d.For, func(w wait) bool { return !came(w) })
}

// came reports whether an inbox ends the wait.
func (w wait) came(inbox []receivedData) bool {
	ended, succeeded := 0, 0
	for i := range inbox {
		v := &inbox[i]
		switch v.Kind {
		case "approve", "reject", "respond", "timer", "event", "opened":
			if v.Path == w.Path {
				return true
			}
		case "message":
			if w.Kind == "message" {
				return true
			}
		case "ended":
			if w.Kind == "run" && v.Ended != nil && v.Ended.Run == w.Name {
				return true
			}
		case "branch":
			if w.Kind == "branches" && v.Branch != nil && slices.Contains(w.Branches, v.Branch.Link.Session) {
				ended++
				if v.Branch.State == "succeeded" {
					succeeded++
				}
			}
		}
	}
	return w.Kind == "branches" && (ended == len(w.Branches) || w.Need > 0 && succeeded >= w.Need)
}

// asks reports whether the run waits for an answer like this one at this time, without
// having one.
func (r *logRun) asks(d *receivedData, now int64) bool {
	return r.state == "waiting" && slices.ContainsFunc(r.suspended.For, func(w wait) bool {
		switch d.Kind {
		case "approve", "reject":
			if w.Kind != "approval" {
				return false
			}
		case "respond":
			if w.Kind != "response" {
				return false
			}
		case "opened":
			if w.Kind != "quota" {
				return false
			}
		case "timer":
			if w.Due == 0 || now < w.Due {
				return false
			}
		}
		return w.Path == d.Path && !w.came(r.inbox)
	})
}

// took removes the signals that a step consumed from the inbox.
func (r *logRun) took(d *doneData) {
	if len(r.inbox) > 0 {
		r.inbox = slices.DeleteFunc(r.inbox, func(v receivedData) bool {
			return v.Kind == "message" && v.N <= d.Inbox || v.Kind != "message" && v.Path == d.Path ||
				ofQuota(v.Path, d.Path) ||
				d.Kind == "result" && v.Ended != nil && v.Ended.Run == d.Name
		})
	}
}

// ofQuota reports whether a wait at a path was for the quota of the tenant, by the model call
// at another path.
func ofQuota(path, call string) bool {
	parent, _, _ := cutLast(path, ".")
	return parent == call+".quota"
}
