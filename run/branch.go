package run

import "github.com/rathcluster/rath/session"

// BranchOutcome is the end of one branch; State is one of session.Closed….
type BranchOutcome struct {
	Reason  string     `json:"reason,omitempty"`
	Session session.ID `json:"session"`
	State   string     `json:"state"`
}
