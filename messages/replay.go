package messages

import (
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Replay says what the code of a workflow does against what a run recorded.
type Replay struct {
	// Matches says that the code does what is recorded, in branches too.
	Matches bool   `json:"matches"`
	Node    string `json:"node,omitempty"` // where the code was run
	// Runs are the run and the branches that it opened, each after the run that
	// it is a branch of.
	Runs []ReplayedRun `json:"runs"`
	// Truncated says that not all steps fit into the answer.
	Truncated bool `json:"truncated,omitempty"`
}

// ReplayedRun is one run of a replay.
type ReplayedRun struct {
	Run      run.ID     `json:"run"`
	Branch   string     `json:"branch,omitempty"`    // its name, for a branch of a fan-out
	BranchOf run.ID     `json:"branch_of,omitempty"` // the run that opened it
	Workflow string     `json:"workflow"`
	Session  session.ID `json:"session"`
	State    run.State  `json:"state"` // how the run stands
	// Code is the revision of the code that was run, Revisions those that
	// recorded the run's steps.
	Code      string       `json:"code,omitempty"`
	Revisions []string     `json:"revisions,omitempty"`
	Differs   string       `json:"differs,omitempty"` // what is wrong first; empty if nothing
	Steps     []ReplayStep `json:"steps"`
	// Omitted is how many steps that match did not fit into the answer.
	Omitted int `json:"omitted,omitempty"`
}

// ReplayStep is one step of a replay.
type ReplayStep struct {
	Path run.Path `json:"path"`
	// Verdict is "matches", "differs", "new" (the code asks for a step that is
	// not recorded) or "unreached" (the code does not come to it).
	Verdict  string `json:"verdict"`
	Recorded string `json:"recorded,omitempty"`
	Asked    string `json:"asked,omitempty"`
	// Input says that only the step's logical input differs.
	Input   bool   `json:"input,omitempty"`
	Summary string `json:"summary,omitempty"`
}
