package messages

import (
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Replay compares a workflow's code with a recorded run.
type Replay struct {
	// Matches reports that the code reproduces the record, including the branches.
	Matches bool   `json:"matches"`
	Node    string `json:"node,omitempty"` // the node that ran the code
	// Runs are the run and the branches that it opened, each after its parent.
	Runs []ReplayedRun `json:"runs"`
	// Truncated reports that not all steps fit into the answer.
	Truncated bool `json:"truncated,omitempty"`
}

// ReplayedRun is one run of a replay.
type ReplayedRun struct {
	Run      run.ID     `json:"run"`
	Branch   string     `json:"branch,omitempty"`    // its name, for a branch of a fan-out
	BranchOf run.ID     `json:"branch_of,omitempty"` // the run that opened it
	Workflow string     `json:"workflow"`
	Session  session.ID `json:"session"`
	State    run.State  `json:"state"` // the run's state
	// Code is the revision of the executed code, Revisions are those that recorded the
	// run's steps.
	Code      string       `json:"code,omitempty"`
	Revisions []string     `json:"revisions,omitempty"`
	Differs   string       `json:"differs,omitempty"` // the first difference; empty if there is none
	Steps     []ReplayStep `json:"steps"`
	// Omitted is the number of matching steps that did not fit into the answer.
	Omitted int `json:"omitted,omitempty"`
}

// ReplayStep is one step of a replay.
type ReplayStep struct {
	Path run.Path `json:"path"`
	// Verdict is "matches", "differs", "new" (the code requests a step that is not
	// recorded) or "unreached" (the code does not reach it).
	Verdict  string `json:"verdict"`
	Recorded string `json:"recorded,omitempty"`
	Asked    string `json:"asked,omitempty"`
	// Input reports that only the step's logical input differs.
	Input   bool   `json:"input,omitempty"`
	Summary string `json:"summary,omitempty"`
}
