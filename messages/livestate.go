package messages

import (
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Live is how a run stands at this moment, told by the relay of its partition and by
// the node that executes it, without a commit. Nothing of it is recorded. Times are
// Unix milliseconds, zero for what is not known.
type Live struct {
	Run     run.ID     `json:"run"`
	State   run.State  `json:"state"`
	Session session.ID `json:"session,omitempty"`
	// Node is the incarnation that executes the run, and Attempt counts its claims.
	Node    string `json:"node,omitempty"`
	Attempt uint64 `json:"attempt,omitempty"`
	At      int64  `json:"at_ms"` // of the answer
	// Steps are under way at that node, the oldest first, at most MaxLiveSteps. More is
	// how many others there are.
	Steps []LiveStep `json:"steps,omitempty"`
	More  int        `json:"more,omitempty"`
	// Since is when the last step ended, or the attempt began: while no step is under
	// way, the workflow's own code has run since then.
	Since int64 `json:"since_ms,omitempty"`
	// Silent says that the node did not answer. If it has died, another one takes the
	// run within seconds.
	Silent bool `json:"silent,omitempty"`
	// Queue is where a run waits for a slot, Behind the run of its session that it
	// waits for, and Untaken is set while no log holds its task.
	Queue   *LiveQueue `json:"queue,omitempty"`
	Behind  run.ID     `json:"behind,omitempty"`
	Untaken bool       `json:"untaken,omitempty"`
	// Unbegun is how many branches of the run wait for a slot.
	Unbegun int `json:"unbegun,omitempty"`
	// Unoffered are those of them whose workflow no node that lives offers.
	Unoffered []LiveUnoffered `json:"unoffered,omitempty"`
	// Waits is what the run waits for, and Review what a person has to decide.
	Waits  []Wait  `json:"waits,omitempty"`
	Review *Review `json:"review,omitempty"`
	// Quarantine is the reason of the quarantine of its session, "" without one.
	Quarantine string `json:"quarantine,omitempty"`
	// Due is when the run may begin, a wait times out, a review expires or the run must
	// have ended, whichever comes first.
	Due int64 `json:"due_ms,omitempty"`
}

// LiveUnoffered counts branches of a workflow, in a revision if they need one.
type LiveUnoffered struct {
	Workflow string `json:"workflow"`
	Revision string `json:"revision,omitempty"`
	Branches int    `json:"branches"`
}

// MaxLiveSteps bounds the steps of a Live.
const MaxLiveSteps = 64

// LiveStep is a step under way.
type LiveStep struct {
	Step  run.Path `json:"step"`
	Kind  string   `json:"kind"`            // as in the records of steps: model, tool, do, ...
	Name  string   `json:"name,omitempty"`  // of the agent, the tool or the function
	Did   string   `json:"did,omitempty"`   // what a tool call does, such as its command
	Model string   `json:"model,omitempty"` // that is asked, or whose limit is waited for
	// Doing is waits (for a limit of the model), asks (nothing of the model's answer has
	// come), answers, pauses (before the next try), works (a tool or a function runs), queues
	// (a tool call waits for others of its round), opens (the sandbox) or records (the
	// outcome).
	Doing string `json:"doing"`
	// Began is when the step began, At when Doing did or the last piece of an answer
	// came, and Until when it ends by itself at the latest.
	Began int64 `json:"began_ms"`
	At    int64 `json:"at_ms"`
	Until int64 `json:"until_ms,omitempty"`
	// Try counts the requests for the answer in this attempt, and Error is why the one
	// before failed.
	Try   int    `json:"try,omitempty"`
	Error string `json:"error,omitempty"`
	// Text is the end of what the model has written in this try, or how far the call of
	// a tool says that it is. Bytes is how much has come of it, with reasoning and arguments, and Tokens an estimate of that.
	Text   string   `json:"text,omitempty"`
	Bytes  int      `json:"bytes,omitempty"`
	Tokens int64    `json:"tokens,omitempty"`
	Calls  []string `json:"calls,omitempty"` // tools that the answer calls so far
}

// LiveQueue is where a run waits for a slot. A pool has a queue in each partition.
type LiveQueue struct {
	// Pool is "" while no node that lives offers the workflow, and Revision the one that
	// the run needs.
	Pool     string `json:"pool,omitempty"`
	Revision string `json:"revision,omitempty"`
	Class    string `json:"class,omitempty"`
	// Ahead is how many runs of its partition get a slot first, if none comes, and
	// Waiting how many runs of the pool wait there.
	Ahead   int `json:"ahead"`
	Waiting int `json:"waiting"`
	// Nodes is how many nodes of the pool live, and Free how many slots they have.
	Nodes int `json:"nodes"`
	Free  int `json:"free"`
	// Sent is the incarnation that was sent the run and has not answered.
	Sent string `json:"sent,omitempty"`
	// Again is when the run is offered again, after a node did not take it.
	Again int64 `json:"again_ms,omitempty"`
}
