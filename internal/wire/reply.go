package wire

import (
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Runs is a page of runs, the newest first. Next is the After of the next page, zero at
// the end: a page may have few runs, or none, without being the last one. Waiting, on
// the first page, is the number of the tenant's tasks that no node has accepted yet:
// they are not runs. Submitted, if Query.All is set, is the number of submitted tasks
// whose ids are kept, independent of the page. It excludes branches of fan-outs.
type Runs struct {
	Runs    []messages.RunInfo `json:"runs"`
	Next    uint64             `json:"next,omitempty"`
	Waiting uint64             `json:"waiting,omitempty"`

	Submitted uint64 `json:"submitted,omitempty"`
	// Behind is the number of messages of LINEAGE that the index of runs lacks. While it
	// catches up, a list with conditions is read from the whole history.
	Behind uint64 `json:"behind,omitempty"`
}

// Workflows is the offered workflows, sorted by name.
type Workflows struct {
	Workflows []messages.Workflow `json:"workflows"`
}

// Nodes are the live nodes, sorted by name.
type Nodes struct {
	Nodes []messages.Node `json:"nodes"`
	// Streams are the streams that the answering node watches.
	Streams []messages.StreamFill `json:"streams,omitempty"`
}

// Tools are the announced tools, sorted by name.
type Tools struct {
	Tools []messages.Tool `json:"tools"`
}

// DeadLetters is a page of a tenant's dead letters, oldest first. Next is the
// After of the next page, zero on the last one.
type DeadLetters struct {
	Letters []messages.StoredLetter `json:"letters"`
	Next    uint64                  `json:"next,omitempty"`
}

// Tasks are the known ones of the requested tasks.
type Tasks struct {
	Tasks []KnownTask `json:"tasks"`
}

// KnownTask is a task that was submitted before.
type KnownTask struct {
	Run run.ID `json:"run"`
	// Digest identifies the task's body, subject and tenant. It is "" if no task was
	// submitted under the id, which is in use nevertheless.
	Digest string `json:"digest,omitempty"`
	// Refused is the code of a rejected task.
	Refused run.Code `json:"refused,omitempty"`
}
