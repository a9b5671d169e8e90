// Package run names what authors and clients see of runs: their ids, states and
// paths, what they may consume, and the errors and codes that they end with.
//
// A run is one execution of a workflow on a session. What the log of a session says
// of it, and how that decides what executes, is in internal/core/journal.
package run

// ID names a run and is its idempotency key, unique per tenant.
type ID string

// State is where a run stands.
type State string

// The states of a run. The last five are final but NeedsReview, which a
// resolution ends.
const (
	Queued      State = "queued"
	Running     State = "running"
	Waiting     State = "waiting"
	NeedsReview State = "needs_review"
	Succeeded   State = "succeeded"
	Failed      State = "failed"
	Cancelled   State = "cancelled"
	TimedOut    State = "timed_out"
)

// Terminal reports whether nothing can follow s.
func (s State) Terminal() bool {
	return s == Succeeded || s == Failed || s == Cancelled || s == TimedOut
}

// Past says in words how a run in a final state ended, such as "has failed" or
// "was cancelled".
func (s State) Past() string {
	switch s {
	case Cancelled:
		return "was cancelled"
	case TimedOut:
		return "has timed out"
	}
	return "has " + string(s)
}

// What a run can wait for.
const (
	WaitApproval = "approval" // a person's yes or no
	WaitResponse = "response" // a value from outside
	WaitMessage  = "message"  // words of the user
	WaitTimer    = "timer"    // a point in time
	WaitBranches = "branches" // the ends of a fan-out's branches
)

// The decisions that end a review.
const (
	Happened = "happened" // the call did take place: go on with Value as its result
	Again    = "again"    // it did not: run it again
	Fail     = "fail"     // end the run as failed
	Pin      = "pin"      // the run waits for a node that offers the revision it was recorded under
)

// MaxInput is the most bytes that a task's input may have.
const MaxInput = 256 << 10

// MaxBranches is how many branches a fan-out may have.
const MaxBranches = 1024

// MaxDepth is how many fan-outs may lie around a branch, those of the workflows
// that submitted each other included: without a bound a workflow that submits
// itself would never end.
const MaxDepth = 32
