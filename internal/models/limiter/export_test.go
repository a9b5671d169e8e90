package limiter

import "time"

// Shorten sets how long the window, the leases and the slack are.
func (s *Set) Shorten(window, lease, slack time.Duration) { s.terms = terms{window, lease, slack} }
