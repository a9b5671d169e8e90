package run

import (
	"time"
)

// Budget bounds the consumption of a run; zero fields are unlimited. Time is wall-clock
// time from the first claim.
type Budget struct {
	MicroUSD int64         `json:"micro_usd,omitempty"`
	Steps    int64         `json:"steps,omitempty"`
	Time     time.Duration `json:"time,omitempty"` // nanoseconds on the wire
	Tokens   int64         `json:"tokens,omitempty"`
}

// IsZero reports whether the budget is unlimited.
func (b Budget) IsZero() bool { return b == Budget{} }
