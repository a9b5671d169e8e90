package lineage

// Kind is what a record is about. The list grows by release only.
type Kind string

// The kinds of records.
const (
	Opened       Kind = "opened"
	Forked       Kind = "forked"
	Detached     Kind = "detached"
	Concatenated Kind = "concatenated"
	Imported     Kind = "imported"

	Chunk   Kind = "chunk"
	Placed  Kind = "placed"
	Adopted Kind = "adopted"
	Merged  Kind = "merged"

	Rejected Kind = "rejected"
	Closed   Kind = "closed"

	Archived Kind = "archived"
	Restored Kind = "restored"

	Model      Kind = "model"
	Tool       Kind = "tool"
	Did        Kind = "did"
	Branched   Kind = "branched"
	Recalled   Kind = "recalled"
	Remembered Kind = "remembered"
	Compressed Kind = "compressed"
	Selected   Kind = "selected"
	FannedOut  Kind = "fanned_out"
	Spread     Kind = "spread"
	Gathered   Kind = "gathered"
	Awaited    Kind = "awaited"
	Intent     Kind = "intent"
	Late       Kind = "late"

	Submitted Kind = "submitted"
	Queued    Kind = "queued"
	Claimed   Kind = "claimed"
	Released  Kind = "released"
	Review    Kind = "review"
	Resolved  Kind = "resolved"
	Cancel    Kind = "cancel"
	Warning   Kind = "warning"
	Waiting   Kind = "waiting"
	Answered  Kind = "answered"
	Message   Kind = "message"
	Due       Kind = "due"
	Reported  Kind = "reported"
	Disposed  Kind = "disposed"
	Ended     Kind = "ended"
	Settled   Kind = "settled"

	Quarantined Kind = "quarantined"
	Readmitted  Kind = "readmitted"
	Rebudgeted  Kind = "rebudgeted"
)

var kinds = []struct {
	kind Kind
	doc  string
}{
	{Opened, "a session came to be from nothing, or as a summary that starts over"},
	{Forked, "a session came to be as a branch of a parent"},
	{Detached, "a session came to be as a copy of another that is not its branch"},
	{Concatenated, "a session came to be from two or more others"},
	{Imported, "a session came to be from another system's file"},
	{Chunk, "a row was added that no step of this commit made: a user's text, an instruction, a tool's result"},
	{Placed, "a session was sent to a sandbox, or a sandbox was opened for it"},
	{Adopted, "a parent took over a branch"},
	{Merged, "a session took chunks of others by reference"},
	{Rejected, "a parent recorded how a branch ended that it did not take: rejected, cancelled or failed"},
	{Closed, "a session ended: nothing follows in it"},
	{Archived, "a session was archived: its commits may only be in a file"},
	{Restored, "a session that was archived goes on"},
	{Model, "a model was called"},
	{Tool, "a tool was called"},
	{Did, "the workflow's own code ran as a recorded step"},
	{Branched, "a step made branches"},
	{Recalled, "memory was searched"},
	{Remembered, "memory was written"},
	{Compressed, "a session was summarised"},
	{Selected, "the next workflow was chosen"},
	{FannedOut, "a step opened branches that run at the same time"},
	{Spread, "the other branches of a fan-out begin, now that the first one was answered or has ended"},
	{Gathered, "a step took in how the branches of a fan-out ended"},
	{Awaited, "a wait was satisfied"},
	{Intent, "a call is about to start whose effect must not happen twice"},
	{Late, "an outcome came from a superseded attempt and is kept as evidence"},
	{Submitted, "a task was accepted"},
	{Queued, "a task was accepted and waits for the run before it"},
	{Claimed, "an attempt of a run began"},
	{Released, "an attempt gave the run back"},
	{Review, "a run stopped for a person"},
	{Resolved, "a person decided about a run that had stopped"},
	{Cancel, "a run was asked to stop"},
	{Warning, "something the author of the workflow should know"},
	{Waiting, "a run stopped, and holds nothing, until what it waits for has come"},
	{Answered, "a person answered what a run had asked: approved, rejected, or with a value"},
	{Message, "words for a run reached it"},
	{Due, "a time for which a run waited, or up to which, has come"},
	{Reported, "a branch of a fan-out reported to its parent how it ended"},
	{Disposed, "a run said how branches of its fan-out ended for it; they accept nothing after it"},
	{Ended, "a run ended"},
	{Settled, "a fork or a branch reported more usage of a run than the run had counted; of a run that has ended, `usage` is the new total"},
	{Quarantined, "a session was quarantined: no step begins in it, no session merges it or recalls what it wrote"},
	{Readmitted, "a session that was quarantined goes on"},
	{Rebudgeted, "a run may consume more, or less, than its task said"},
}

// Kinds returns every kind, in the order of the documentation.
func Kinds() []Kind {
	all := make([]Kind, len(kinds))
	for i, k := range kinds {
		all[i] = k.kind
	}
	return all
}

// Doc describes records of the kind in one line; it is empty for a kind that this
// release does not know.
func (k Kind) Doc() string {
	for _, e := range kinds {
		if e.kind == k {
			return e.doc
		}
	}
	return ""
}
