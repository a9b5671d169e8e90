package messages

import (
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Delta is a piece of model output under way. It is provisional: the deltas of a
// call that fails are void; the call's event has what counts. N counts the deltas
// of a call from one, so that a reader sees whether it lost some.
type Delta struct {
	Run     run.ID     `json:"run"`
	Session session.ID `json:"session"`
	Step    run.Path   `json:"step"`
	Attempt uint64     `json:"attempt"`
	N       uint64     `json:"n"`
	Agent   string     `json:"agent,omitempty"`
	Text    string     `json:"text,omitempty"`
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
func DecodeDelta(data []byte) (Delta, error) { return read[Delta]("delta", data) }

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

// Refused returns the event about a task that was not taken.
func Refused(t session.Tenant, id run.ID, workflow string, e Error) Event {
	ev := untaken(KindRefused, t, id, workflow, "task refused: ", e)
	ev.State = string(run.Failed)
	return ev
}

// TaskHeld returns the event about a task that waits.
func TaskHeld(t session.Tenant, id run.ID, workflow string, e Error) Event {
	return untaken(KindHeld, t, id, workflow, "task waits: ", e)
}

func untaken(kind lineage.Kind, t session.Tenant, id run.ID, workflow, what string, e Error) Event {
	summary := what + e.Text
	if r := []rune(summary); len(r) > lineage.MaxSummary {
		summary = string(r[:lineage.MaxSummary-1]) + "…"
	}
	return Event{
		Schema: lineage.Schema, Kind: kind, Tenant: t, Run: id, Workflow: workflow,
		Code: e.Code, Reason: e.Text, Summary: summary,
	}
}

// DecodeEvent reads an event. Fields of later releases are skipped.
func DecodeEvent(data []byte) (Event, error) { return read[Event]("event", data) }
