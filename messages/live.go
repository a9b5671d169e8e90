package messages

import (
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Delta is a piece of model output under way. It is provisional: the call's event has
// what counts. An answer is asked for more than once if it breaks off, and the deltas
// of each try are an answer of their own: those of a try that broke off are void.
type Delta struct {
	Run     run.ID     `json:"run"`
	Session session.ID `json:"session"`
	Step    run.Path   `json:"step"`
	Attempt uint64     `json:"attempt"`
	// Try counts the requests for the answer in the attempt, from one. N counts the deltas of
	// a try from one, so that a reader sees whether it lost some.
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
	return Encode(struct {
		Provisional bool `json:"provisional"`
		plainDelta
	}{true, plainDelta(d)})
}

// DecodeDelta reads a delta.
func DecodeDelta(data []byte) (Delta, error) { return Decode[Delta]("delta", data) }

// KindRefused is the kind of an event about a task that was not taken. It is
// no lineage record: nothing was committed.
const KindRefused Kind = "refused"

// KindHeld is the kind of an event about a task that is accepted but waits for a
// bound, which its code and reason name. It is published from time to time while
// the task waits, and is no lineage record either.
const KindHeld Kind = "held"

// DecodeEvent reads an event: something that was committed for a run, as a lineage
// record, or of KindRefused or KindHeld, with code and reason. Fields of later releases
// are skipped.
func DecodeEvent(data []byte) (Record, error) { return Decode[Record]("event", data) }
