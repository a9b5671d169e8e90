package messages

import (
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Live is the current state of a run, reported by the relay of its partition and by the
// node that executes it, without a commit. It is not recorded. Times are Unix
// milliseconds, zero if unknown.
type Live struct {
	Run     run.ID     `json:"run"`
	State   run.State  `json:"state"`
	Session session.ID `json:"session,omitempty"`
	// Node is the incarnation that executes the run, and Attempt counts its claims.
	Node    string `json:"node,omitempty"`
	Attempt uint64 `json:"attempt,omitempty"`
	At      int64  `json:"at_ms"` // of the answer
	// Steps are the steps in flight at that node, the oldest first, at most
	// MaxLiveSteps. More is the number of others.
	Steps []LiveStep `json:"steps,omitempty"`
	More  int        `json:"more,omitempty"`
	// Since is the end of the last step, or the start of the attempt: while no step is
	// in flight, the workflow's own code has been running since then.
	Since int64 `json:"since_ms,omitempty"`
	// Silent reports that the node did not answer. If the node has died, another one
	// takes over the run within seconds.
	Silent bool `json:"silent,omitempty"`
	// Queue is set while a run waits for a slot, Behind is the run of its session that
	// it waits for, and Untaken is set while no log holds its task.
	Queue   *LiveQueue `json:"queue,omitempty"`
	Behind  run.ID     `json:"behind,omitempty"`
	Untaken bool       `json:"untaken,omitempty"`
	// Limit is set while a run waits for the limit by key of its workflow.
	Limit *LiveLimit `json:"limit,omitempty"`
	// Unbegun is the number of the run's branches that wait for a slot.
	Unbegun int `json:"unbegun,omitempty"`
	// Unoffered are those of them whose workflow no live node offers.
	Unoffered []LiveUnoffered `json:"unoffered,omitempty"`
	// Waits is the run's waits, and Review the decision that an operator must make.
	Waits  []Wait  `json:"waits,omitempty"`
	Review *Review `json:"review,omitempty"`
	// Quarantine is the reason of the quarantine of its session, "" without one.
	Quarantine string `json:"quarantine,omitempty"`
	// Due is the earliest time at which the run may start, a wait times out, a review
	// expires or the run must end.
	Due int64 `json:"due_ms,omitempty"`
}

// LiveUnoffered counts branches of a workflow, in a revision if they need one.
type LiveUnoffered struct {
	Workflow string `json:"workflow"`
	Revision string `json:"revision,omitempty"`
	Branches int    `json:"branches"`
}

// LiveLimit is the limit by key that a run waits for.
type LiveLimit struct {
	Limit string `json:"limit"` // as in "1 at a time for acme"
	// Holders are the runs that have a place, and Before those that wait before it, the
	// next one first, at most MaxLiveLimit of each. Ahead is the number of the latter.
	Holders []run.ID `json:"holders,omitempty"`
	Before  []run.ID `json:"before,omitempty"`
	Ahead   int      `json:"ahead"`
	// Quota is set if the limit is the quota of the tenant. Begun are the runs that it let
	// begin today, and Opens, in Unix milliseconds, is when it lets further ones begin by
	// itself, zero for a time that depends on the ends of runs.
	Quota bool  `json:"quota,omitempty"`
	Begun int64 `json:"begun,omitempty"`
	Opens int64 `json:"opens_ms,omitempty"`
}

// MaxLiveLimit bounds the runs of a LiveLimit.
const MaxLiveLimit = 16

// MaxLiveSteps bounds the steps of a Live.
const MaxLiveSteps = 64

// LiveStep is a step in flight.
type LiveStep struct {
	Step  run.Path `json:"step"`
	Kind  string   `json:"kind"`            // as in the records of steps: model, tool, do, ...
	Name  string   `json:"name,omitempty"`  // of the agent, the tool or the function
	Did   string   `json:"did,omitempty"`   // the action of a tool call, such as its command
	Model string   `json:"model,omitempty"` // the called model, or the one whose limit is awaited
	// Doing is waits (for a limit of the model), asks (no piece of the model's answer
	// has arrived), answers, pauses (before the next try), works (a tool or a function
	// runs), queues (a tool call waits for others of its round), opens (the sandbox) or
	// records (the outcome).
	Doing string `json:"doing"`
	// Began is the start of the step, At the start of Doing or the time of the last
	// piece of an answer, and Until the latest time at which it ends by itself.
	Began int64 `json:"began_ms"`
	At    int64 `json:"at_ms"`
	Until int64 `json:"until_ms,omitempty"`
	// Try counts the requests for the answer in this attempt, and Error is the reason
	// why the previous one failed.
	Try   int    `json:"try,omitempty"`
	Error string `json:"error,omitempty"`
	// Text is the end of the answer's text in this try, or the progress that the tool's
	// call reports. From is the byte of the answer at which Text begins, and N the number
	// of the last delta of the try whose text it includes: the text goes on with the
	// next delta. Bytes is the size of the output so far, with reasoning and arguments,
	// and Tokens an estimate of it.
	Text   string   `json:"text,omitempty"`
	From   int      `json:"from,omitempty"`
	N      uint64   `json:"n,omitempty"`
	Bytes  int      `json:"bytes,omitempty"`
	Tokens int64    `json:"tokens,omitempty"`
	Calls  []string `json:"calls,omitempty"` // tools that the answer has called so far
}

// LiveQueue is the queue in which a run waits for a slot. A pool has a queue in each
// partition.
type LiveQueue struct {
	// Pool is "" while no live node offers the workflow. Revision is the revision that
	// the run needs.
	Pool     string `json:"pool,omitempty"`
	Revision string `json:"revision,omitempty"`
	Class    string `json:"class,omitempty"`
	// Ahead is the number of runs of its partition that get a slot first, provided that
	// no others arrive, and Waiting the number of waiting runs of the pool.
	Ahead   int `json:"ahead"`
	Waiting int `json:"waiting"`
	// Nodes is the number of live nodes of the pool, and Free the number of their free
	// slots.
	Nodes int `json:"nodes"`
	Free  int `json:"free"`
	// Sent is the incarnation to which the run was sent and that has not answered.
	Sent string `json:"sent,omitempty"`
	// Again is the time of the next offer, after a node did not accept the run.
	Again int64 `json:"again_ms,omitempty"`
}
