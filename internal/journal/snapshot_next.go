//go:build next

package journal

import "github.com/rathcluster/rath/run"

// Two fields of a snapshot have other names than in this release, so that a
// reader that took one for the other would not know which runs there are.
type (
	wireActive struct {
		Active run.ID `json:"holder,omitempty"`
	}
	wireQueue struct {
		Queue []run.ID `json:"queued,omitempty"`
	}
)
