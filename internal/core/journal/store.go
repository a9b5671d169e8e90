package journal

import (
	"context"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Claim asks for the right to write to a session for a run.
type Claim struct {
	Session     session.Key
	Home        session.Key // the run's home session; equal to Session for the first claim
	Run         run.ID
	Attempt     uint64 // the home's attempt when claiming another session; 0 at home
	Revision    string // what the node offers
	Incarnation string // of the node
	// Task is recorded when the home log does not know the run yet. With
	// Enqueue it is only recorded: another node claims it.
	Task    *Task
	Enqueue bool
	// Cancel, with Enqueue, was asked before the home log knew the run: one that is
	// recorded with it has ended, and is not offered.
	Cancel *CancelRequested
	// Seen, if set, is what a relay knew of the run when it dispatched it.
	Seen *Seen
	// Group is a promise of the node for a suspect, see [SuspectError]: until the attempt
	// records a step, it executes at most so many suspects, and for 1 nothing beside it but
	// runs that have recorded a step there. Death is how the node of the attempt before
	// ended, as the process that started it saw it, "" if nobody did.
	Group int
	Death string
	// Open says how the session comes to be if it does not exist; Root is then
	// its oldest ancestor, empty for itself.
	Open session.Opening
	Root session.ID
	// Events are recorded with the opening, after it: the first chunks of a
	// session that starts with some.
	Events []session.Event
}

// ClaimResult is the answer to a claim.
type ClaimResult struct {
	State   run.State       // Running: claimed. Anything else: the run is there already and stands so
	Session session.Session // the newest version
	Base    session.Session // the session when the run first claimed it
	Journal *Journal
	Attempt uint64
	Epoch   uint64
	Started time.Time
	Record  *Record // a copy, as of the claim
	// After are the events of the claim's commit that come after it: who follows from
	// that commit on does not get them.
	After []session.Event
}

// Batch is what one step, or one part of it, records.
type Batch struct {
	Session session.Key
	Run     run.ID
	Attempt uint64
	Path    run.Path
	Base    session.Version // the version that the step extends
	Events  []session.Event
}

// Ack is the answer to a committed batch. Recorded is set, and nothing was
// appended, when the step was there already.
type Ack struct {
	// Inbox is what the run received and no step has taken, for a batch that
	// asked to wait for what had come already.
	Inbox    []SignalReceived
	Session  session.Session
	Recorded *Step
	At       commitlog.Position
	Time     time.Time // when the step was recorded
	State    run.State // how the run stands after it: a cancel that came first turns an end into Cancelled
}

// Signal is a fact for a session from outside its run. One of the fields after
// Run says which.
type Signal struct {
	To       session.Key
	Run      run.ID // "" where the fact is for the session
	Cancel   *CancelRequested
	Resolve  *Resolved
	Received *SignalReceived    // an answer, a message, the end of a branch
	Close    *run.BranchOutcome // how the session, a branch, ended for its parent
	// Quarantine quarantines the session, or releases it; Run is not looked at.
	Quarantine *Quarantined
	Rebudget   *Rebudgeted
	// Archive fences the session, Restore lifts the fence; Run is not looked at.
	Archive *commitlog.Archival
	Restore *commitlog.Restoration
	Tick    bool           // something may be due by the clock
	Late    *StepCompleted // the outcome of a call of an attempt that lost the run
	Settle  *Part          // the usage of a fork or of a branch, for the home of its run
}

// Store gives a run the right to write to sessions: that of [NewStore] in memory, the
// session actors on a node. It is safe for concurrent use.
//
// Claim records that an attempt begins, or queues the run behind the one that
// holds the session (State Queued), or says how the run stands. ErrKeyReused:
// the id names another task. ErrState: the run is executing here already.
// ErrSuperseded: the log holds another attempt than the claim has seen. A
// [SuspectError]: the node has to promise something for it.
// ErrPoison is not an error: the run then stands in NeedsReview.
//
// Commit appends a batch and returns once it is durable. A step that is there
// already is answered with its record. ErrSuperseded, ErrCancelled and
// session.ErrConflict mean that this attempt must stop; session.ErrStale that
// the batch extends a version that is no longer the newest.
//
// Apply records a signal and returns once it is durable; a signal that changes
// nothing any more returns ErrState and says why. So does the report of a branch
// that the run went on or ended without, although it records what the branch used.
//
// Follow has take called with each commit of a session that is held here, in order from a
// position on, until stop was called. What cannot be read comes later. take is called in
// goroutines of the store, by one at a time: it does not wait, and asks the store nothing.
//
// The events of a claim or a batch belong to the store from the call on, also after it
// returned because ctx ended: the caller does not change them again. What comes back is
// shared with other callers and only read; the Record of a ClaimResult is the caller's.
// After the end of ctx or session.ErrUnavailable a claim or a batch may be in the log all
// the same. Making it again is safe: what is recorded then is the answer.
type Store interface {
	Claim(ctx context.Context, c Claim) (*ClaimResult, error)
	Commit(ctx context.Context, b Batch) (Ack, error)
	Apply(ctx context.Context, s Signal) error
	Follow(k session.Key, after commitlog.Position, take func(*commitlog.Entry)) (stop func())
}
