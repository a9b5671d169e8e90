//go:build !next

package run

// What a snapshot calls the active run and those that wait.
type (
	wireActive struct {
		Active ID `json:"active,omitempty"`
	}
	wireQueue struct {
		Queue []ID `json:"queue,omitempty"`
	}
)
