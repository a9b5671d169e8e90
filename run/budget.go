package run

import (
	"time"
)

// Budget bounds what a run may consume; zero fields are unlimited. Time is
// wall-clock time from the first claim.
type Budget struct {
	MicroUSD int64         `json:"micro_usd,omitempty"`
	Steps    int64         `json:"steps,omitempty"`
	Time     time.Duration `json:"time,omitempty"` // nanoseconds on the wire
	Tokens   int64         `json:"tokens,omitempty"`
}

// IsZero reports whether nothing is limited.
func (b Budget) IsZero() bool { return b == Budget{} }
