package messages

import (
	"slices"

	"github.com/rathcluster/rath/internal/excerpt"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Delta is a piece of model output under way. It is provisional: the call's event has
// what counts. An answer is asked for more than once if it breaks off, and the deltas
// of each try are an answer of their own: those of a try that broke off are void. See
// [Draft].
type Delta struct {
	Run     run.ID     `json:"run"`
	Session session.ID `json:"session"`
	Step    run.Path   `json:"step"`
	Attempt uint64     `json:"attempt"`
	// Try counts the requests for the answer in the attempt, from one; zero is a node of
	// an earlier release. N counts the deltas of a try from one, so that a reader sees
	// whether it lost some.
	Try int    `json:"try,omitempty"`
	N   uint64 `json:"n"`
	// Void says, in a delta without a piece, that the try broke off.
	Void  bool   `json:"void,omitempty"`
	Agent string `json:"agent,omitempty"`
	Text  string `json:"text,omitempty"`
	// Reasoning is what the model thinks aloud, where it says so.
	Reasoning string     `json:"reasoning,omitempty"`
	Call      *CallDelta `json:"call,omitempty"`
}

// CallDelta is a piece of a tool call. ID and Name come once; Args is to be
// appended to what came before under the same Index.
type CallDelta struct {
	Index int    `json:"index"`
	ID    string `json:"id,omitempty"`
	Name  string `json:"name,omitempty"`
	Args  string `json:"args,omitempty"`
}

// MarshalJSON writes the delta, marked as provisional.
func (d Delta) MarshalJSON() ([]byte, error) {
	type plainDelta Delta
	return encode(struct {
		Provisional bool `json:"provisional"`
		plainDelta
	}{true, plainDelta(d)})
}

// DecodeDelta reads a delta.
func DecodeDelta(data []byte) (Delta, error) { return Decode[Delta]("delta", data) }

// KindRefused is the kind of an event about a task that was not taken. It is
// no lineage record: nothing was committed.
const KindRefused lineage.Kind = "refused"

// KindHeld is the kind of an event about a task that is accepted but waits for a
// bound, which its code and reason name. It is published from time to time while
// the task waits, and is no lineage record either.
const KindHeld lineage.Kind = "held"

// Event is something that was committed for a run: a lineage record. A task that
// was refused or waits, which commits nothing, has one of KindRefused or KindHeld
// with code and reason.
type Event = lineage.Record

// DecodeEvent reads an event. Fields of later releases are skipped.
func DecodeEvent(data []byte) (Event, error) { return Decode[Event]("event", data) }

// Draft joins the deltas of a step to what the model has written so far in the newest
// try, and drops what a try wrote that broke off. The zero Draft is empty. It is not
// safe for concurrent use.
type Draft struct {
	Attempt uint64
	Try     int
	N       uint64 // of the last delta
	Text    string
	// Reasoning is what the model thinks aloud.
	Reasoning string
	Calls     []CallDelta // by the order of their beginnings, with the arguments so far
	// Truncated says that more came than MaxDraft bytes, or that deltas were lost.
	Truncated bool
}

// MaxDraft bounds the bytes that a Draft keeps.
const MaxDraft = 256 << 10

// Add takes the next delta of the step, and reports whether the draft was dropped
// before: what was shown of it never happened. A delta of an older try is skipped.
func (d *Draft) Add(x Delta) (dropped bool) {
	had := d.N > 0
	switch {
	case x.Attempt < d.Attempt, x.Attempt == d.Attempt && x.Try < d.Try:
		return false
	case x.Attempt > d.Attempt, x.Try > d.Try, x.Void:
		*d = Draft{Attempt: x.Attempt, Try: x.Try}
		dropped = had
	}
	if x.Void {
		d.Try++ // nothing more comes of this one
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
		i := slices.IndexFunc(d.Calls, func(k CallDelta) bool { return k.Index == c.Index })
		if i < 0 {
			i = len(d.Calls)
			d.Calls = append(d.Calls, CallDelta{Index: c.Index})
		}
		d.keep(&d.Calls[i].ID, c.ID)
		d.keep(&d.Calls[i].Name, c.Name)
		d.keep(&d.Calls[i].Args, c.Args)
	}
	return dropped
}

// keep appends as much as there is room for.
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
