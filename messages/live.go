package messages

import (
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Delta is a piece of model output in progress. It is provisional: only the call's
// event counts. If an answer breaks off it is requested again. The deltas of each try
// are a separate answer, and the deltas of a try that broke off are void.
type Delta struct {
	Run     run.ID     `json:"run"`
	Session session.ID `json:"session"`
	Step    run.Path   `json:"step"`
	Attempt uint64     `json:"attempt"`
	// Try counts the requests for the answer in the attempt, from one. N counts the
	// deltas of a try from one, so that a reader can detect lost ones.
	Try int    `json:"try,omitempty"`
	N   uint64 `json:"n"`
	// Void reports, in a delta without a piece, that the earlier deltas of the try are
	// void: the try broke off, or its text so far was thought.
	Void bool `json:"void,omitempty"`
	// Start reports, in a delta without a number and a piece, that the step begins.
	Start *StepStart `json:"start,omitempty"`

	Agent string `json:"agent,omitempty"`
	Text  string `json:"text,omitempty"`
	// Reasoning is the model's visible reasoning, if it has any.
	Reasoning string     `json:"reasoning,omitempty"`
	Call      *CallDelta `json:"call,omitempty"`
}

// StepStart describes a step that begins.
type StepStart struct {
	Kind string `json:"kind"`           // as in the records of steps: model, tool, do, ...
	Name string `json:"name,omitempty"` // of the agent, the tool or the function
	Did  string `json:"did,omitempty"`  // the action of a tool call, such as its command
}

// CallDelta is a piece of a tool call. ID and Name are sent once; Args is appended to
// the earlier Args of the same Index.
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

// KindRefused is the kind of an event about a rejected task. It is not a lineage
// record: nothing was committed.
const KindRefused Kind = "refused"

// KindHeld is the kind of an event about a task that is accepted but waits for a
// bound, which its code and reason name. It is published from time to time while
// the task waits, and is no lineage record either.
const KindHeld Kind = "held"

// DecodeEvent reads an event: a commit for a run, as a lineage record, or an event of
// KindRefused or KindHeld, with code and reason. Fields of later releases are skipped.
func DecodeEvent(data []byte) (Record, error) { return Decode[Record]("event", data) }
