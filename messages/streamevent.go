package messages

import (
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// EventKind is the subject matter of a [StreamEvent]. Later releases add kinds.
type EventKind string

// The kinds of events.
const (
	// EventRunQueued: a task was accepted and its run waits for a node or for the run
	// before it.
	EventRunQueued EventKind = "run.queued"
	// EventRunStarted: an attempt of a run began.
	EventRunStarted EventKind = "run.started"
	// EventRunChanged: the run waits, resumes, was asked to stop, warns or the like; State
	// is set if its state changed.
	EventRunChanged EventKind = "run.changed"
	// EventRunEnded: the run ended; no event of the run follows but run.changed with more
	// usage.
	EventRunEnded EventKind = "run.ended"
	// EventStepStarted: a step began. It is sent for steps in flight alone, and for calls
	// that must not happen twice also as a record.
	EventStepStarted EventKind = "step.started"
	// EventTextDelta: a piece of a model's answer, to be appended to the step's draft.
	EventTextDelta EventKind = "text.delta"
	// EventTextVoid: the step's draft is void; without a step, all drafts of the stream.
	EventTextVoid EventKind = "text.void"
	// EventStepDone: a step was recorded. It replaces the step's draft.
	EventStepDone EventKind = "step.done"
	// EventQuestionAsked: a run waits for a person or a program, see Waits, or for a
	// decision about a call that was cut off.
	EventQuestionAsked EventKind = "question.asked"
	// EventQuestionAnswered: somebody answered a question, or decided.
	EventQuestionAnswered EventKind = "question.answered"
	// EventBranchStarted: the sessions in Branches, or the session itself, came to be as
	// branches.
	EventBranchStarted EventKind = "branch.started"
	// EventBranchEnded: branches ended, see Ends. A branch may have several such events:
	// its own end, and its outcome for the session that opened it; the last one counts.
	EventBranchEnded EventKind = "branch.ended"
	// EventFilesChanged: the files of the session changed from HeadBefore to HeadAfter.
	EventFilesChanged EventKind = "files.changed"
	// EventSessionChanged: the session changed otherwise, such as by a row of a user.
	EventSessionChanged EventKind = "session.changed"
	// EventSessionEnded: the access of the reader ends, and the stream with it.
	EventSessionEnded EventKind = "session.ended"
	// EventStreamCut: the server ends the stream, for the reason in Text; a reader that
	// connects again with the id of its last event lacks none.
	EventStreamCut EventKind = "stream.cut"
)

// EventKinds returns all kinds, in the order of the documentation.
func EventKinds() []EventKind {
	return []EventKind{
		EventRunQueued, EventRunStarted, EventRunChanged, EventRunEnded, EventStepStarted, EventTextDelta, EventTextVoid, EventStepDone,
		EventQuestionAsked, EventQuestionAnswered, EventBranchStarted, EventBranchEnded, EventFilesChanged, EventSessionChanged,
		EventSessionEnded, EventStreamCut,
	}
}

// StreamEvent is one event of a stream over HTTP: a part of a lineage record, with its
// Place, or a draft, which no log holds and which has none. Fields are zero where they do
// not apply; those of a record mean the same as in [Record].
type StreamEvent struct {
	Kind EventKind `json:"kind"`
	// Place is the position of the record. The id of the event stands for it and for the
	// places of other event streams; readers send the id, and use the place to find the
	// commit.
	Place *EventPlace `json:"place,omitempty"`
	// Record is the kind of the record, and StepKind of a step in flight its kind as in
	// the records of steps: model, tool, do, ...
	Record   Kind   `json:"record,omitempty"`
	StepKind string `json:"step_kind,omitempty"`

	Run      run.ID     `json:"run,omitempty"`
	Session  session.ID `json:"session,omitempty"`
	Root     session.ID `json:"root,omitempty"`
	Commit   uint64     `json:"commit,omitempty"`
	Workflow string     `json:"workflow,omitempty"`
	Step     run.Path   `json:"step,omitempty"`
	Attempt  uint64     `json:"attempt,omitempty"`
	State    string     `json:"state,omitempty"`
	Code     run.Code   `json:"code,omitempty"`
	Failed   bool       `json:"failed,omitempty"` // a tool ran and reported a failure
	Reason   string     `json:"reason,omitempty"`
	Time     int64      `json:"time,omitempty"` // Unix milliseconds

	Agent string `json:"agent,omitempty"`
	Tool  string `json:"tool,omitempty"`
	Call  string `json:"call,omitempty"` // the id of the tool call
	Calls int    `json:"calls,omitempty"`
	Model string `json:"model,omitempty"`
	Name  string `json:"name,omitempty"`
	Role  string `json:"role,omitempty"`
	By    string `json:"by,omitempty"`
	Via   string `json:"via,omitempty"`
	Node  string `json:"node,omitempty"`

	// Text is the summary of a record, in one line, or a piece of an answer.
	Text string `json:"text,omitempty"`
	// Try, N, Reasoning and CallPart are those of a draft, see [Delta]. From is the byte
	// of the answer at which Text begins, if the stream has not sent the text before it.
	Try       int        `json:"try,omitempty"`
	N         uint64     `json:"n,omitempty"`
	From      int        `json:"from,omitempty"`
	Reasoning string     `json:"reasoning,omitempty"`
	CallPart  *CallDelta `json:"call_part,omitempty"`

	Usage   session.Usage `json:"usage,omitzero"`
	Cost    string        `json:"cost,omitempty"`
	Elapsed int64         `json:"elapsed,omitempty"` // milliseconds
	Finish  string        `json:"finish,omitempty"`

	Waits      []Wait              `json:"waits,omitempty"`
	Due        int64               `json:"due,omitempty"`
	Branches   []Ref               `json:"branches,omitempty"`
	BranchOf   *Place              `json:"branch_of,omitempty"`
	Parents    []Ref               `json:"parents,omitempty"`
	Ends       []run.BranchOutcome `json:"ends,omitempty"`
	HeadBefore string              `json:"head_before,omitempty"`
	HeadAfter  string              `json:"head_after,omitempty"`
	Result     *Ref                `json:"result,omitempty"`
}

// EventPlace is the position of a record in the event streams.
type EventPlace struct {
	Partition uint32 `json:"partition"`
	Seq       uint64 `json:"seq"`
	K         int    `json:"k"`
}
