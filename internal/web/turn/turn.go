// Package turn folds the updates of a run into a turn of a conversation, which every
// protocol of chats has: text that only grows, a question, and the end.
//
// A run's drafts can become void: a try breaks off, or a node dies and another one asks the
// model again. The clients of such protocols cannot take text back. So a [Fold] passes on a
// draft as it comes, and after a void only the text that goes beyond the text passed on.
// [Fold.Finish] compares with the recorded text.
package turn

import (
	"strings"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Separator stands between the texts of two answers of one turn.
const Separator = "\n\n"

// Replaced precedes the recorded text of a turn whose passed-on text was void.
const Replaced = Separator + "[The text above is void. The recorded answer follows.]" + Separator

// Event is a piece of a turn. One field is set.
type Event struct {
	Text string          // to append
	Asks []messages.Wait // the run waits for a person
	End  *messages.Result
}

// Fold is the state of a turn. Its zero value begins a turn; Late begins one whose earlier
// updates the reader lacks. It is not safe for concurrent use.
type Fold struct {
	Run  run.ID
	Late bool // no text passes before Finish

	sent    strings.Builder // passed on
	base    string          // of the steps before the present one
	draft   strings.Builder // of the present step
	home    session.ID
	step    run.Path
	attempt uint64
	try     int
	n       uint64
	redo    bool // the draft is compared with the text passed on
	closed  map[run.Path]bool
	other   map[run.Path]bool // steps without an answer for the reader
}

// Sent returns the text that was passed on.
func (f *Fold) Sent() string { return f.sent.String() }

// Add folds an update. ok is false for an update without an event.
func (f *Fold) Add(u client.Update) (e Event, ok bool) {
	switch {
	case u.Result != nil:
		return Event{End: u.Result}, true
	case u.Event != nil:
		return f.record(u.Event)
	case u.Delta != nil:
		e.Text = f.delta(u.Delta)
	}
	return e, e.Text != ""
}

func (f *Fold) record(r *messages.Record) (e Event, ok bool) {
	switch {
	case r.Kind == messages.KindReview:
		return Event{Asks: []messages.Wait{{Kind: "decision", Step: r.Step, Title: r.Reason}}}, true
	case r.Kind == messages.KindWaiting && r.Asks() != "":
		return Event{Asks: Asked(r.Waits)}, true
	}
	return e, false
}

// Asked returns the waits that a person can end.
func Asked(all []messages.Wait) (asks []messages.Wait) {
	for _, w := range all {
		if w.Kind == run.WaitApproval || w.Kind == run.WaitResponse || w.Kind == run.WaitMessage {
			asks = append(asks, w)
		}
	}
	return asks
}

// delta returns the text that a delta adds.
func (f *Fold) delta(d *messages.Delta) string {
	if f.home == "" {
		f.home = d.Session
	}
	if d.Run != f.Run || d.Session != f.home || f.Late || d.Attempt < f.attempt {
		return ""
	}
	if s := d.Start; s != nil {
		if s.Kind != journal.StepModel {
			f.skip(d.Step)
		}
		return ""
	}
	if f.other[d.Step] || !f.move(d) {
		return ""
	}
	f.n = d.N
	if d.Void || d.Text == "" {
		return ""
	}
	more := d.Text
	if f.draft.Len() == 0 && f.base != "" {
		more = Separator + more
	}
	f.draft.WriteString(d.Text)
	if !f.redo {
		f.sent.WriteString(more)
		return more
	}
	more, same := strings.CutPrefix(Join(f.base, f.draft.String()), f.sent.String())
	if !same {
		return ""
	}
	f.redo = false
	f.sent.WriteString(more)
	return more
}

func (f *Fold) skip(step run.Path) {
	if f.other == nil {
		f.other = map[run.Path]bool{}
	}
	f.other[step] = true
}

// move goes to the step and the try of a delta. It returns false for a delta to skip, and
// for one after a gap, with which the turn becomes late.
func (f *Fold) move(d *messages.Delta) bool {
	switch {
	case d.Step != f.step:
		if f.closed[d.Step] {
			f.Late = true // steps at the same time
			return false
		}
		f.close()
		f.step, f.try, f.n = d.Step, d.Try, 0
	case d.Attempt == f.attempt && (d.Try < f.try || d.Try == f.try && d.N <= f.n):
		return false
	case d.Attempt > f.attempt || d.Try > f.try || d.Void:
		f.redo = f.redo || f.draft.Len() > 0
		f.draft.Reset()
		if f.try = d.Try; !d.Void {
			f.n = 0
		}
	}
	f.attempt = d.Attempt
	if d.N != f.n+1 && !d.Void {
		f.Late = true
		return false
	}
	return true
}

// close ends the draft of the present step.
func (f *Fold) close() {
	if f.closed == nil {
		f.closed = map[run.Path]bool{}
	}
	f.closed[f.step] = true
	f.base = Join(f.base, f.draft.String())
	f.draft.Reset()
}

// Finish returns the rest of the turn, given its recorded text. Sent then ends with that
// text.
func (f *Fold) Finish(text string) string {
	rest, ok := strings.CutPrefix(text, f.sent.String())
	if !ok {
		rest = Replaced + text
	}
	f.sent.WriteString(rest)
	return rest
}

// Complete reports whether the passed-on text is the one answer of the result, so that it
// needs no comparison with the session.
func (f *Fold) Complete(r *messages.Result) bool {
	return !f.Late && !f.redo && f.base == "" && f.sent.String() == r.Output && len(r.Output) < maxOutput
}

// maxOutput bounds the output of a result.
const maxOutput = 16 << 10

// Begin returns the index of the first of some rows of a session, the oldest first, that a
// run has added, or len(rows). A row that no step made names no run; started is the time of
// the first claim of the run, in Unix milliseconds.
func Begin(id run.ID, started int64, rows []messages.Chunk) int {
	for i := range rows {
		if r := &rows[i]; r.Run == string(id) || r.Run == "" && r.Time >= started {
			return i
		}
	}
	return len(rows)
}

// Text returns the text of the rows of a turn.
func Text(rows []messages.Chunk) (text string) {
	for i := range rows {
		if rows[i].Kind == session.Assistant {
			text = Join(text, rows[i].Text)
		}
	}
	return text
}

// Join joins the texts of two answers of a turn.
func Join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + Separator + b
}
