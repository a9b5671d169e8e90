package limiter

import "time"

// clock tells which times of a store have passed for certain. Without a look for a while it
// knows less, and then the next look says it again.
type clock struct {
	began time.Time
	ahead time.Duration // of the time since began
	seen  time.Time     // when ahead was learned; zero is never
}

// clockFor is how long what was learned holds: clocks that run at different speeds drift.
const clockFor = time.Minute

// learn takes in that a time of the store had passed.
func (c *clock) learn(passed, now time.Time) {
	if c.began.IsZero() {
		c.began = now
	}
	ahead := time.Duration(passed.UnixNano()) - now.Sub(c.began)
	if c.seen.IsZero() || now.Sub(c.seen) > clockFor || ahead > c.ahead {
		c.ahead, c.seen = ahead, now
	}
}

// passed returns the time of the store that has passed for certain, in milliseconds.
func (c *clock) passed(now time.Time) int64 {
	if c.seen.IsZero() {
		return 0
	}
	return (c.ahead + now.Sub(c.began)).Milliseconds()
}
