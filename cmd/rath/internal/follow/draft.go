package follow

import (
	"slices"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/messages"
)

// Draft joins the deltas of a step to the text that the model has written so far in the
// newest try, and drops the text of an aborted try. The zero Draft is empty. It is not
// safe for concurrent use.
type Draft struct {
	Attempt uint64
	Try     int
	N       uint64 // of the last delta
	Text    string
	// Reasoning is the reasoning of the model.
	Reasoning string
	Calls     []messages.CallDelta // in the order of their beginnings, with the arguments so far
	// Truncated reports that the text exceeded MaxDraft bytes, or that deltas were
	// lost.
	Truncated bool
}

// MaxDraft bounds the bytes that a Draft keeps.
const MaxDraft = 256 << 10

// Add adds the next delta of the step, and reports whether it dropped the earlier
// draft, whose text is void. A delta of an older try is skipped.
func (d *Draft) Add(x messages.Delta) (dropped bool) {
	had := d.N > 0
	switch {
	case x.Attempt < d.Attempt, x.Attempt == d.Attempt && x.Try < d.Try:
		return false
	case x.Attempt > d.Attempt, x.Try > d.Try, x.Void:
		*d = Draft{Attempt: x.Attempt, Try: x.Try}
		dropped = had
	}
	if x.Void {
		d.Try++ // it gets no more deltas
		return dropped
	}
	if x.N <= d.N && x.N > 0 {
		return dropped // a repetition
	}
	d.Truncated = d.Truncated || x.N > d.N+1
	d.N = x.N
	d.keep(&d.Text, x.Text)
	d.keep(&d.Reasoning, x.Reasoning)
	if c := x.Call; c != nil {
		i := slices.IndexFunc(d.Calls, func(k messages.CallDelta) bool { return k.Index == c.Index })
		if i < 0 {
			i = len(d.Calls)
			d.Calls = append(d.Calls, messages.CallDelta{Index: c.Index})
		}
		d.keep(&d.Calls[i].ID, c.ID)
		d.keep(&d.Calls[i].Name, c.Name)
		d.keep(&d.Calls[i].Args, c.Args)
	}
	return dropped
}

// keep appends s up to the free room.
func (d *Draft) keep(to *string, s string) {
	room := MaxDraft - len(d.Text) - len(d.Reasoning)
	for _, c := range d.Calls {
		room -= len(c.ID) + len(c.Name) + len(c.Args) + 1
	}
	if len(s) > room {
		s, d.Truncated = excerpt.Start(s, max(room, 0)), true
	}
	*to += s
}
