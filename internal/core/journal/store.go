package journal

import (
	"context"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Claim is a request for a run's right to write to a session.
type Claim struct {
	Session     session.Key
	Home        session.Key // the run's home session; equal to Session for the first claim
	Run         run.ID
	Attempt     uint64 // the home's attempt when claiming another session; 0 at home
	Revision    string // the revision that the node offers
	Incarnation string // of the node
	// Task is recorded if the home log does not have the run yet. With Enqueue it is
	// only recorded: another node claims it.
	Task    *Task
	Enqueue bool
	// Cancel, with Enqueue, is a request that arrived before the home log had the run.
	// A run that is recorded with it has ended, and is not offered.
	Cancel *CancelRequested
	// Seen, if set, is the run's state as the relay knew it at the dispatch.
	Seen *Seen
	// Group is a promise of the node for a suspect, see [SuspectError]: until the
	// attempt records a step, the node executes at most Group suspects. If Group is 1,
	// every other run on the node has recorded a step there. Death is the way in which
	// the previous attempt's node ended, as its parent process saw it, or in which the
	// attempt ended on a node that lives, such as a panic; "" if unknown.
	Group int
	Death string
	// Open is the opening of the session if it does not exist. Root is then its oldest
	// ancestor, empty for the session itself.
	Open session.Opening
	Root session.ID
	// Events are recorded directly after the opening: the first chunks of a session
	// that starts with some.
	Events []session.Event
}

// ClaimResult is the answer to a claim.
type ClaimResult struct {
	State   run.State       // Running: claimed. Any other state is that of the existing run
	Session session.Session // the newest version
	Base    session.Session // the session when the run first claimed it
	Journal *Journal
	Attempt uint64
	Epoch   uint64
	Started time.Time
	Record  *Record // a copy, as of the claim
	// After is the events of the claim's commit that follow the claim. A follower from
	// that commit on does not get them.
	After []session.Event
}

// Batch is the events of one step, or of one part of it.
type Batch struct {
	Session session.Key
	Run     run.ID
	Attempt uint64
	Path    run.Path
	Base    session.Version // the version that the step extends
	Events  []session.Event
}

// Ack is the answer to a committed batch. If the step is in the log already, Recorded
// is set and no event is appended.
type Ack struct {
	// Inbox is the signals that no step has consumed. It is set for a batch that asked
	// to wait for signals that are there already.
	Inbox    []SignalReceived
	Session  session.Session
	Recorded *Step
	At       commitlog.Position
	Time     time.Time // when the step was recorded
	State    run.State // the run's state after it: an earlier cancel turns an end into Cancelled
}

// Signal is a fact for a session from outside its run. Exactly one of the fields after
// Run is set.
type Signal struct {
	To       session.Key
	Run      run.ID // "" where the fact is for the session
	Cancel   *CancelRequested
	Resolve  *Resolved
	Received *SignalReceived    // an answer, a message, the end of a branch
	Close    *run.BranchOutcome // the outcome of the session, a branch, for its parent
	// Quarantine quarantines the session, or releases it; Run is ignored.
	Quarantine *Quarantined
	Rebudget   *Rebudgeted
	// Archive fences the session, Restore lifts the fence; Run is ignored.
	Archive *commitlog.Archival
	Restore *commitlog.Restoration
	// CloseKey closes the log of a key or of an event; Run is ignored.
	CloseKey *KeyClosed
	Tick     bool           // timers may be due
	Late     *StepCompleted // the outcome of a call of an attempt that lost the run
	Limit    *LimitSignal   // of a limit by key
	Event    *EventSignal   // for the log of an event
	Awaited  *Awaited       // a run waits for the end of Run
	Settle   *Part          // the usage of a fork or of a branch, for the home of its run
}

// Store gives a run the right to write to sessions. The implementations are the
// in-memory store of [NewStore] and the session actors on a node. It is safe for
// concurrent use.
//
// Claim starts an attempt, or queues the run behind the one that holds the session
// (State Queued), or returns the run's state. It returns ErrKeyReused if the id names
// another task, ErrState if the run executes here already, ErrSuperseded if the log
// holds another attempt than the claim has seen, and a [SuspectError] if the node must
// make a promise first. ErrPoison is not an error: the run's state is then NeedsReview.
//
// Commit appends a batch and returns once it is durable. For a step that is in the log
// already it returns the step's record. ErrSuperseded, ErrCancelled and
// session.ErrConflict mean that this attempt must stop; session.ErrStale means that the
// batch extends a version that is no longer the newest.
//
// Apply records a signal and returns once it is durable. For a signal that no longer
// has an effect it returns ErrState with the reason. It does the same for the report of
// a branch without which the run continued or ended, but records the branch's usage.
//
// Follow calls take with each commit of a session that is held here, in order from a
// position on, until stop is called. A commit that cannot be read is delivered later.
// The store calls take from its own goroutines, one call at a time: take must not block
// and must not call the store.
//
// The store owns the events of a claim or a batch from the call on, even after it
// returned because ctx ended: the caller must not change them. Returned values are
// shared with other callers and read-only; the Record of a ClaimResult is the caller's.
// After the end of ctx or session.ErrUnavailable a claim or a batch may still be in the
// log. Retrying it is safe: the answer is then the recorded one.
type Store interface {
	Claim(ctx context.Context, c Claim) (*ClaimResult, error)
	Commit(ctx context.Context, b Batch) (Ack, error)
	Apply(ctx context.Context, s Signal) error
	Follow(k session.Key, after commitlog.Position, take func(*commitlog.Entry)) (stop func())
}
