package limiter

import "time"

// clock computes the times of a store that have certainly passed. Without a reading for
// a while the bound falls behind, until the next reading.
type clock struct {
	began time.Time
	ahead time.Duration // relative to the time since began
	seen  time.Time     // time of the last change of ahead; zero is never
}

// clockFor is how long a reading remains valid: clocks run at different speeds.
const clockFor = time.Minute

// learn records that a time of the store has passed.
func (c *clock) learn(passed, now time.Time) {
	if c.began.IsZero() {
		c.began = now
	}
	ahead := time.Duration(passed.UnixNano()) - now.Sub(c.began)
	if c.seen.IsZero() || now.Sub(c.seen) > clockFor || ahead > c.ahead {
		c.ahead, c.seen = ahead, now
	}
}

// passed returns a time of the store that has certainly passed, in milliseconds.
func (c *clock) passed(now time.Time) int64 {
	if c.seen.IsZero() {
		return 0
	}
	return (c.ahead + now.Sub(c.began)).Milliseconds()
}
