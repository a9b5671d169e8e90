// Package run defines the public view of runs for authors and clients: ids, states,
// paths, budgets, errors and codes.
//
// A run is one execution of a workflow on a session.
package run

// ID names a run and is its idempotency key, unique per tenant.
type ID string

// State is the state of a run.
type State string

// The states of a run. The last five are final except NeedsReview, which a resolution
// ends.
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

// Terminal reports whether s is final.
func (s State) Terminal() bool {
	return s == Succeeded || s == Failed || s == Cancelled || s == TimedOut
}

// Past describes the end of a run in a final state, such as "has failed" or "was
// cancelled".
func (s State) Past() string {
	switch s {
	case Cancelled:
		return "was cancelled"
	case TimedOut:
		return "has timed out"
	}
	return "has " + string(s)
}

// The kinds of waits of a run.
const (
	WaitApproval = "approval" // an operator's approval
	WaitResponse = "response" // a value from outside
	WaitMessage  = "message"  // a user's message
	WaitTimer    = "timer"    // a point in time
	WaitQuota    = "quota"    // the tokens or the money of the tenant's day
	WaitBranches = "branches" // the ends of a fan-out's branches
	WaitRun      = "run"      // the end of a run that it started
	WaitEvent    = "event"    // a published event
)

// The decisions that end a review.
const (
	Happened = "happened" // the call did take place: continue with Value as its result
	Again    = "again"    // it did not: run it again
	Fail     = "fail"     // end the run as failed
	Pin      = "pin"      // the run waits for a node that offers the revision under which it was recorded
)

// MaxInput is the maximum size of a task's input, in bytes.
const MaxInput = 256 << 10

// MaxBranches is the maximum number of branches of a fan-out.
const MaxBranches = 1024

// MaxDepth is the maximum number of fan-outs around a branch, including those of
// workflows that submitted each other: without a bound a workflow that submits itself
// would never end.
const MaxDepth = 32
