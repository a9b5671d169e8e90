package events

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
	From    int // the byte of the answer at which Text begins
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
// draft, whose text is void. It skips a delta of an older try, a repetition, and one that
// only starts the step.
func (d *Draft) Add(x messages.Delta) (dropped bool) {
	newer := x.Attempt > d.Attempt || x.Attempt == d.Attempt && x.Try > d.Try
	switch {
	case x.Start != nil, x.Attempt < d.Attempt, x.Attempt == d.Attempt && x.Try < d.Try, !newer && x.N <= d.N && x.N > 0:
		return false
	case newer, x.Void:
		dropped = !d.empty()
		*d = Draft{Attempt: x.Attempt, Try: x.Try}
	}
	if x.Void {
		d.N = x.N // the text after it begins anew
		return dropped
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

// empty reports whether the draft has no text.
func (d *Draft) empty() bool { return d.Text == "" && d.Reasoning == "" && len(d.Calls) == 0 }

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
