package events

import (
	"cmp"
	"math"
	"slices"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Bounds of a Fold. Beyond them it forgets the oldest: a step that is done may then get a
// late delta, and a draft begins with its next piece.
const (
	maxOpen = 1024
	maxDone = 4096
)

// Fold returns the events of records and deltas as they arrive. The zero Fold is empty. It
// is not safe for concurrent use.
type Fold struct {
	open []*openStep // the oldest first
	done map[stepKey]uint64
	last []stepKey // of done, the oldest first
}

type stepKey struct {
	run  run.ID
	step run.Path
}

// openStep is a step in flight.
type openStep struct {
	stepKey
	started Event
	draft   Draft
}

// Record returns the events of a record. Drafts that it makes void come first.
func (f *Fold) Record(r *messages.Record) []Event {
	key := stepKey{r.Run, r.Step}
	var out []Event
	switch {
	case IsStep(r):
		f.drop(func(o *openStep) bool { return o.stepKey == key })
		f.finish(key, r.Attempt)
	case r.Kind == messages.KindClaimed && r.Home == "" && r.Attempt > 0:
		out = f.endAttempts(r.Run, r.Attempt-1)
	case r.Kind == messages.KindReleased && r.Workflow != "", r.Kind == messages.KindReview:
		out = f.endAttempts(r.Run, r.Attempt)
	case r.Kind == messages.KindEnded:
		out = f.endAttempts(r.Run, math.MaxUint64)
	}
	return append(out, Of(r)...)
}

// endAttempts ends the attempts of a run up to one: their drafts are void, and later deltas
// of them are skipped.
func (f *Fold) endAttempts(id run.ID, attempt uint64) []Event {
	f.finish(stepKey{run: id}, attempt)
	return f.void(func(o *openStep) bool { return o.run == id && o.started.Attempt <= attempt })
}

// finish records that a step, or an attempt of a run, is done.
func (f *Fold) finish(key stepKey, attempt uint64) {
	if f.done == nil {
		f.done = map[stepKey]uint64{}
	}
	if _, had := f.done[key]; !had {
		f.last = append(f.last, key)
	}
	f.done[key] = max(f.done[key], attempt)
	if len(f.last) > maxDone {
		delete(f.done, f.last[0])
		f.last = f.last[1:]
	}
}

// drop removes open steps, and returns them.
func (f *Fold) drop(which func(*openStep) bool) (dropped []*openStep) {
	f.open = slices.DeleteFunc(f.open, func(o *openStep) bool {
		if which(o) {
			dropped = append(dropped, o)
			return true
		}
		return false
	})
	return dropped
}

// void removes open steps, and returns the events that make their drafts void.
func (f *Fold) void(which func(*openStep) bool) (out []Event) {
	for _, o := range f.drop(which) {
		if !o.draft.empty() {
			out = append(out, o.event(messages.EventTextVoid))
		}
	}
	return out
}

// step returns the step of a draft, and the event of its start if it is new. It returns nil
// for a step that is done, or in flight in a later attempt.
func (f *Fold) step(started *Event) (o *openStep, out []Event) {
	key := stepKey{started.Run, started.Step}
	for _, k := range [...]stepKey{key, {run: started.Run}} {
		if at, done := f.done[k]; done && started.Attempt <= at {
			return nil, nil
		}
	}
	i := slices.IndexFunc(f.open, func(o *openStep) bool { return o.stepKey == key })
	switch {
	case i >= 0 && f.open[i].started.Attempt == started.Attempt:
		return f.open[i], nil
	case i >= 0 && f.open[i].started.Attempt > started.Attempt:
		return nil, nil
	}
	out = f.void(func(o *openStep) bool { return o.stepKey == key })
	if len(f.open) == maxOpen {
		f.open = f.open[1:]
	}
	o = &openStep{stepKey: key, started: *started}
	o.started.Kind = messages.EventStepStarted
	f.open = append(f.open, o)
	return o, append(out, o.started)
}

// Delta returns the events of a delta. lost reports that deltas before it are missing, so
// that the run's live state is needed, see [Fold.Live].
func (f *Fold) Delta(d *messages.Delta) (out []Event, lost bool) {
	started := Event{Run: d.Run, Session: d.Session, Step: d.Step, Attempt: d.Attempt, StepKind: journal.StepModel, Agent: d.Agent}
	if s := d.Start; s != nil {
		started.StepKind, started.Text = s.Kind, s.Did
		nameStep(&started, s.Kind, s.Name)
	}
	o, out := f.step(&started)
	if o == nil || d.Start != nil {
		return out, false
	}
	before := o.draft
	switch dropped := o.draft.Add(*d); {
	case dropped, d.Void && o.draft.N != before.N:
		out = append(out, o.event(messages.EventTextVoid))
	case o.draft.N == before.N && o.draft.Try == before.Try:
		return out, false // a repetition, or of an older try
	}
	if d.Void {
		return out, false
	}
	lost = d.N > 1 && (d.Try != before.Try || d.N > before.N+1)
	if d.Text != "" || d.Reasoning != "" || d.Call != nil {
		e := o.event(messages.EventTextDelta)
		e.Text, e.Reasoning, e.CallPart = d.Text, d.Reasoning, d.Call
		out = append(out, e)
	}
	return out, lost
}

// event returns an event about the draft of the step.
func (o *openStep) event(kind messages.EventKind) Event {
	return Event{
		Kind: kind, Run: o.run, Session: o.started.Session, Step: o.stepKey.step, Attempt: o.started.Attempt,
		Try: o.draft.Try, N: o.draft.N, Agent: o.started.Agent,
	}
}

// nameStep sets the name of a step in the field of its kind.
func nameStep(e *Event, kind, name string) {
	switch kind {
	case journal.StepModel, journal.StepCompress, journal.StepSelection:
		e.Agent = cmp.Or(e.Agent, name)
	case journal.StepTool:
		e.Tool = name
	default:
		e.Name = name
	}
}

// Live returns the events that bring the drafts to the live state of a run: steps that
// began unseen, and the text of drafts of which deltas are missing.
func (f *Fold) Live(l *messages.Live) (out []Event) {
	for i := range l.Steps {
		s := &l.Steps[i]
		started := Event{Run: l.Run, Session: l.Session, Step: s.Step, Attempt: l.Attempt, StepKind: s.Kind, Text: s.Did, Model: s.Model}
		nameStep(&started, s.Kind, s.Name)
		o, more := f.step(&started)
		out = append(out, more...)
		if o == nil || s.Kind == journal.StepTool {
			continue
		}
		d := &o.draft
		if s.Try < d.Try || s.Try == d.Try && (s.N < d.N || s.N == d.N && !d.Truncated) || s.Try > d.Try && s.N == 0 && d.empty() {
			continue
		}
		if !d.empty() {
			out = append(out, o.event(messages.EventTextVoid))
		}
		*d = Draft{Attempt: l.Attempt, Try: s.Try, N: s.N}
		if s.N == 0 { // the text of a step without deltas is the progress of its work
			continue
		}
		d.Text, d.From = s.Text, s.From
		out = append(out, o.draftEvents()...)
	}
	return out
}

// draftEvents returns the events with all of the step's draft.
func (o *openStep) draftEvents() (out []Event) {
	d := &o.draft
	if d.Text != "" || d.Reasoning != "" {
		e := o.event(messages.EventTextDelta)
		e.Text, e.From, e.Reasoning = d.Text, d.From, d.Reasoning
		out = append(out, e)
	}
	for i := range d.Calls {
		e := o.event(messages.EventTextDelta)
		call := d.Calls[i]
		e.CallPart = &call
		out = append(out, e)
	}
	return out
}

// Open returns the events with which a reader begins to follow: the steps in flight, and
// their drafts so far.
func (f *Fold) Open() (out []Event) {
	for _, o := range f.open {
		out = append(append(out, o.started), o.draftEvents()...)
	}
	return out
}

// Forget drops the steps of a run whose deltas no longer arrive.
func (f *Fold) Forget(id run.ID) { f.drop(func(o *openStep) bool { return o.run == id }) }
