package flow

import "encoding/json"

// Registration offers a workflow to the tasks that name it.
type Registration struct {
	Name        string // of one subject token: [A-Za-z0-9_-]{1,64}
	Description string
	// Revision is the author's string for this version of the code; it is
	// recorded with each run.
	Revision string
	// Batch says that runs may take what is left; others are for results that people
	// wait for.
	Batch bool
	// Input is the JSON Schema of a task's input; nil accepts anything.
	Input json.RawMessage
	// New makes the workflow for one run. NewFor, if set, is called instead
	// and may read what the task asks for. A node that starts calls it as well, NewFor
	// with no input, then a text and an object until it makes one, to tell what the workflow is
	// made of: the agents and workflows in its fields.
	New    func() Workflow
	NewFor func(Info) (Workflow, error)
}
