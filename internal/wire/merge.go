package wire

import (
	"fmt"

	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// MergeInput is the input of the built-in workflow "merge", which joins sessions into a
// new one: their chunks one after the other, with the files of the first. The joined
// sessions are unchanged.
type MergeInput struct {
	// Sessions are ids, with ":version" for an older version than the newest.
	Sessions []string `json:"sessions"`
}

// maxMerge is the maximum number of sessions that one task merges.
const maxMerge = 64

// Check validates the input.
func (in MergeInput) Check() error {
	if n := len(in.Sessions); n < 2 || n > maxMerge {
		return &strict.Error{Message: "merge", Problem: fmt.Sprintf("%d sessions are named", n), Remedy: fmt.Sprintf("name 2 to %d", maxMerge)}
	}
	seen := map[session.ID]bool{}
	for _, name := range in.Sessions {
		ref, err := session.ParseRef(session.DefaultTenant, name)
		if err != nil {
			return fmt.Errorf("merge: %q names no session of the task's tenant: %w: %w", name, run.ErrMalformed, err)
		}
		if seen[ref.ID] {
			return &strict.Error{
				Message: "merge", Problem: fmt.Sprintf("session %s is named twice", ref.ID),
				Remedy: "a session cannot be merged with itself, fork it if you mean that",
			}
		}
		seen[ref.ID] = true
	}
	return nil
}
