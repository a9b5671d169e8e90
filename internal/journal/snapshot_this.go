//go:build !next

package journal

import "github.com/rathcluster/rath/run"

// What a snapshot calls the active run and those that wait.
type (
	wireActive struct {
		Active run.ID `json:"active,omitempty"`
	}
	wireQueue struct {
		Queue []run.ID `json:"queue,omitempty"`
	}
)
