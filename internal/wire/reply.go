package wire

import (
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Runs is a page of runs, the newest first. Next is the After of the next
// page, zero at the end: a page may have few runs, or none, and not be the last one.
// Waiting, on the first page, is how many tasks of the tenant no node has taken yet:
// they are no runs. Submitted, where Query.All asks for it, is how many were submitted
// whose ids are kept, whichever the page chooses: branches of fan-outs are not among them.
type Runs struct {
	Runs    []messages.RunInfo `json:"runs"`
	Next    uint64             `json:"next,omitempty"`
	Waiting uint64             `json:"waiting,omitempty"`

	Submitted uint64 `json:"submitted,omitempty"`
}

// Workflows is what is on offer, sorted by name.
type Workflows struct {
	Workflows []messages.Workflow `json:"workflows"`
}

// Nodes are the nodes that live, sorted by name.
type Nodes struct {
	Nodes []messages.Node `json:"nodes"`
	// Streams are those that the node which answers watches.
	Streams []messages.StreamFill `json:"streams,omitempty"`
}

// Tools are what processes announced, sorted by name.
type Tools struct {
	Tools []messages.Tool `json:"tools"`
}

// DeadLetters is a page of a tenant's dead letters, oldest first. Next is the
// After of the next page, zero on the last one.
type DeadLetters struct {
	Letters []messages.StoredLetter `json:"letters"`
	Next    uint64                  `json:"next,omitempty"`
}

// Tasks are those of the tasks that were asked for which are known.
type Tasks struct {
	Tasks []KnownTask `json:"tasks"`
}

// KnownTask is a task that was submitted before.
type KnownTask struct {
	Run run.ID `json:"run"`
	// Digest is that of its body, its subject and its tenant, the same for the same
	// task. It is "" if none was submitted under the id, which is taken all the same.
	Digest string `json:"digest,omitempty"`
	// Refused is the code of a task that was refused.
	Refused run.Code `json:"refused,omitempty"`
}
