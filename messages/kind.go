package messages

// Kind is the subject matter of a record. Later releases add kinds and remove none.
type Kind string

// The kinds of records.
const (
	KindOpened       Kind = "opened"
	KindForked       Kind = "forked"
	KindDetached     Kind = "detached"
	KindConcatenated Kind = "concatenated"
	KindImported     Kind = "imported"

	KindChunk   Kind = "chunk"
	KindPlaced  Kind = "placed"
	KindAdopted Kind = "adopted"
	KindMerged  Kind = "merged"

	KindRejected Kind = "rejected"
	KindClosed   Kind = "closed"

	KindArchived Kind = "archived"
	KindRestored Kind = "restored"

	KindModel      Kind = "model"
	KindTool       Kind = "tool"
	KindDid        Kind = "did"
	KindBranched   Kind = "branched"
	KindRecalled   Kind = "recalled"
	KindRemembered Kind = "remembered"
	KindCompressed Kind = "compressed"
	KindSelected   Kind = "selected"
	KindFannedOut  Kind = "fanned_out"
	KindSpread     Kind = "spread"
	KindGathered   Kind = "gathered"
	KindAwaited    Kind = "awaited"
	KindIntent     Kind = "intent"
	KindLate       Kind = "late"

	KindSubmitted Kind = "submitted"
	KindQueued    Kind = "queued"
	KindClaimed   Kind = "claimed"
	KindReleased  Kind = "released"
	KindReview    Kind = "review"
	KindResolved  Kind = "resolved"
	KindCancel    Kind = "cancel"
	KindWarning   Kind = "warning"
	KindWaiting   Kind = "waiting"
	KindAnswered  Kind = "answered"
	KindMessage   Kind = "message"
	KindDue       Kind = "due"
	KindReported  Kind = "reported"
	KindDisposed  Kind = "disposed"
	KindEnded     Kind = "ended"
	KindSettled   Kind = "settled"

	KindQuarantined Kind = "quarantined"
	KindReadmitted  Kind = "readmitted"
	KindRebudgeted  Kind = "rebudgeted"
)

var kinds = []struct {
	kind Kind
	doc  string
}{
	{KindOpened, "a session came to be from nothing, or as a summary that starts over"},
	{KindForked, "a session came to be as a branch of a parent"},
	{KindDetached, "a session came to be as a copy of another that is not its branch"},
	{KindConcatenated, "a session came to be from two or more others"},
	{KindImported, "a session came to be from another system's file"},
	{KindChunk, "a row was added that no step of this commit made: a user's text, an instruction, a tool's result"},
	{KindPlaced, "a session was sent to a sandbox, or a sandbox was opened for it"},
	{KindAdopted, "a parent took over a branch"},
	{KindMerged, "a session took chunks of others by reference"},
	{KindRejected, "a parent recorded how a branch ended that it did not take: rejected, cancelled or failed"},
	{KindClosed, "a session ended: nothing follows in it"},
	{KindArchived, "a session was archived: its commits may only be in a file"},
	{KindRestored, "a session that was archived goes on"},
	{KindModel, "a model was called"},
	{KindTool, "a tool was called"},
	{KindDid, "the workflow's own code ran as a recorded step"},
	{KindBranched, "a step made branches"},
	{KindRecalled, "memory was searched"},
	{KindRemembered, "memory was written"},
	{KindCompressed, "a session was summarised"},
	{KindSelected, "the next workflow was chosen"},
	{KindFannedOut, "a step opened branches that run at the same time"},
	{KindSpread, "the other branches of a fan-out begin, now that the first one was answered or has ended"},
	{KindGathered, "a step took in how the branches of a fan-out ended"},
	{KindAwaited, "a wait was satisfied"},
	{KindIntent, "a call is about to start whose effect must not happen twice"},
	{KindLate, "an outcome came from a superseded attempt and is kept as evidence"},
	{KindSubmitted, "a task was accepted"},
	{KindQueued, "a task was accepted and waits for the run before it"},
	{KindClaimed, "an attempt of a run began"},
	{KindReleased, "an attempt gave the run back"},
	{KindReview, "a run stopped for a person"},
	{KindResolved, "a person decided about a run that had stopped"},
	{KindCancel, "a run was asked to stop"},
	{KindWarning, "something the author of the workflow should know"},
	{KindWaiting, "a run stopped, and holds nothing, until what it waits for has come"},
	{KindAnswered, "a person answered what a run had asked: approved, rejected, or with a value"},
	{KindMessage, "words for a run reached it"},
	{KindDue, "a time for which a run waited, or up to which, has come"},
	{KindReported, "a branch of a fan-out reported to its parent how it ended"},
	{KindDisposed, "a run said how branches of its fan-out ended for it; they accept nothing after it"},
	{KindEnded, "a run ended"},
	{KindSettled, "a fork or a branch reported more usage of a run than the run had counted; of a run that has ended, `usage` is the new total"},
	{KindQuarantined, "a session was quarantined: no step begins in it, no session merges it or recalls what it wrote"},
	{KindReadmitted, "a session that was quarantined goes on"},
	{KindRebudgeted, "a run may consume more, or less, than its task said"},
}

// Kinds returns every kind, in the order of the documentation.
func Kinds() []Kind {
	all := make([]Kind, len(kinds))
	for i, k := range kinds {
		all[i] = k.kind
	}
	return all
}

// Doc describes records of the kind in one line; it is empty for a kind unknown to this
// release.
func (k Kind) Doc() string {
	for _, e := range kinds {
		if e.kind == k {
			return e.doc
		}
	}
	return ""
}
