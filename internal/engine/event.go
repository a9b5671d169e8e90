package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// ofEvent completes the wait for an event with its log, and the place of the last event that
// the run has of it.
func ofEvent(ex *Execution, w *journal.Wait) (err error) {
	if err = run.ValidEvent(w.Name, w.Key); err != nil {
		return err
	}
	if w.Log, err = journal.EventLog(ex.rt.Mint, ex.home.Tenant, w.Name, w.Key); err != nil {
		return err
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	one, _ := above(ex.lines.of, w.Path)
	for l := range ex.lines.around(one) {
		if at := ex.lines.events[l][w.Log]; at.after(eventPlace{w.After, w.Since}) {
			w.After, w.Since = at.seq, at.since
		}
	}
	return nil
}

// gotEvent notes an event that the step at a path has.
func gotEvent(ex *Execution, at run.Path, e *flow.Event) error {
	log, err := journal.EventLog(ex.rt.Mint, ex.home.Tenant, e.Name, e.Key)
	if err != nil {
		return err
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	one, _ := above(ex.lines.of, at)
	ex.lines.got(one, log, eventPlace{e.Seq, e.At.UnixMilli()})
	return nil
}

// eventPlace is the place of an event in its log, and its time in Unix milliseconds.
type eventPlace struct {
	seq   uint64
	since int64
}

// after compares places, also of a log that was removed and has begun anew.
func (p eventPlace) after(o eventPlace) bool {
	return p.since > o.since || p.since == o.since && p.seq > o.seq
}

// got notes the place of an event that a line has. ex.mu is held.
func (l *lines) got(one *line, log session.ID, at eventPlace) {
	if l.events == nil {
		l.events = map[*line]map[session.ID]eventPlace{}
	}
	if l.events[one] == nil {
		l.events[one] = map[session.ID]eventPlace{}
	}
	if at.after(l.events[one][log]) {
		l.events[one][log] = at
	}
}

// close ends the function of a Gather at a path. The line of the Gather has its events.
// ex.mu is held.
func (l *lines) close(at run.Path) {
	ended := l.of[at]
	delete(l.of, at)
	one, _ := above(l.of, at)
	for log, at := range l.events[ended] {
		l.got(one, log, at)
	}
	delete(l.events, ended)
}

// eventAnswer returns the record of a step that waited for an event.
func eventAnswer(v *journal.Published) (d journal.StepCompleted, err error) {
	e := flow.Event{Name: v.Name, Key: v.Key, ID: v.ID, Seq: v.Seq, At: time.UnixMilli(v.At).UTC(), By: v.By, Says: v.Says}
	if v.Value != "" {
		e.Value = json.RawMessage(v.Value)
	}
	value, err := json.Marshal(e)
	if err != nil {
		return d, fmt.Errorf("flow: event %s: %w", v.Name, err)
	}
	d.Value, d.Summary = string(value), fmt.Sprintf("event %s %s", v.Name, excerpt.Cut(v.Key, 60))
	if who := journal.Named(v.By, v.Says); who != "" {
		d.Summary += " by " + who
	}
	d.Summary = excerpt.Clip(d.Summary, 200)
	return d, nil
}
