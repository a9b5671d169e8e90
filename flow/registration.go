package flow

import (
	"encoding/json"

	"github.com/rathcluster/rath/run"
)

// Registration offers a workflow to the tasks that name it.
type Registration struct {
	Name        string // of one subject token: [A-Za-z0-9_-]{1,64}
	Description string
	// Revision is the author's string for this version of the code; it is recorded with
	// each run.
	Revision string
	// Batch limits the runs to leftover capacity; other runs are for interactive use.
	Batch bool
	// Limit bounds the runs that have the same key, such as those of one customer; nil is no
	// limit. It holds for the tasks that a node takes after its start.
	Limit *run.Limit
	// Input is the JSON Schema of a task's input; nil accepts anything.
	Input json.RawMessage
	// New makes the workflow for one run. NewFor, if set, is called instead and may read
	// the task from Info. A starting node also calls New, or NewFor, to find the agents
	// and workflows in the fields of the workflow. It calls NewFor with no input, then
	// with a text and an object until one call returns a workflow.
	New    func() Workflow
	NewFor func(Info) (Workflow, error)
}
