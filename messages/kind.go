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
	KindStarted    Kind = "started"
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
	KindStatus    Kind = "status"
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
	{KindOpened, "a new session, or a session from a summary"},
	{KindForked, "a session was forked from a parent"},
	{KindDetached, "a session was copied from another, outside its tree"},
	{KindConcatenated, "a session was created from two or more others"},
	{KindImported, "a session was imported from another system's file"},
	{KindChunk, "a row was added by no step of this commit: a user's text, an instruction, a tool's result"},
	{KindPlaced, "a session was sent to a sandbox, or a sandbox was opened for it"},
	{KindAdopted, "a parent took over a branch"},
	{KindMerged, "a session took chunks of others by reference"},
	{KindRejected, "a parent recorded the outcome of a branch without a join: rejected, cancelled or failed"},
	{KindClosed, "a session ended"},
	{KindArchived, "a session was archived: a file may have its only commits"},
	{KindRestored, "an archived session continues"},
	{KindModel, "a model was called"},
	{KindTool, "a tool was called"},
	{KindDid, "the workflow's own code ran as a recorded step"},
	{KindBranched, "a step made branches"},
	{KindRecalled, "memory was searched"},
	{KindRemembered, "memory was written"},
	{KindCompressed, "a session was summarised"},
	{KindSelected, "the next workflow was chosen"},
	{KindFannedOut, "a step opened concurrent branches"},
	{KindStarted, "a step started an independent run"},
	{KindSpread, "the other branches of a fan-out start after the first one's answer or end"},
	{KindGathered, "a step gathered the outcomes of a fan-out's branches"},
	{KindAwaited, "a wait was satisfied"},
	{KindIntent, "a non-idempotent call is about to start"},
	{KindLate, "an outcome that came after its attempt or its run, kept as evidence"},
	{KindSubmitted, "a task was accepted"},
	{KindQueued, "a task was accepted and waits for the run before it"},
	{KindClaimed, "an attempt of a run started"},
	{KindReleased, "an attempt released the run"},
	{KindReview, "a run stopped for a decision"},
	{KindResolved, "a decision about a stopped run"},
	{KindCancel, "a cancel of a run was requested"},
	{KindWarning, "a warning for the workflow's author"},
	{KindStatus, "a workflow reported its progress"},
	{KindWaiting, "a run stopped for an awaited event, without a slot"},
	{KindAnswered, "a question of a run was answered: approved, rejected, or with a value"},
	{KindMessage, "a message for a run"},
	{KindDue, "the time of a timer or a question has come"},
	{KindReported, "a branch of a fan-out reported its outcome to its parent, or a started run to its starter"},
	{KindDisposed, "a run decided the outcomes of its branches; they accept no later event"},
	{KindEnded, "a run ended"},
	{KindSettled, "a fork or a branch reported more usage than the run had counted; of an ended run, `usage` is the new total"},
	{KindQuarantined, "a session was quarantined: no step starts in it, no session merges it or recalls its notes"},
	{KindReadmitted, "a quarantined session was released"},
	{KindRebudgeted, "a run got a new budget"},
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
