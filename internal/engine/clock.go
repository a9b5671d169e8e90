package engine

import (
	"sync"
	"time"
)

// Clock is the time of a runtime; nil is the machine's. One that [NewClock] makes is
// for tests: it stands still as long as anything of a run is at work, and goes at once
// to the next time that something is due when all of it waits. So the times that are
// recorded follow from what a run waits for, not from how long its work takes, how the
// work of branches interleaves, and where it is cut off. It outlives the runtimes that
// use it, as a wall clock does; it serves one tree of runs at a time, and is safe for
// concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that stands at a time.
func NewClock(at time.Time) *Clock { return &Clock{now: at} }

// Now returns the time.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// GoTo moves a clock that stands on to a time, never back.
func (c *Clock) GoTo(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.After(c.now) {
		c.now = at
	}
}

// at calls f at a time, at once when that is past. What stands calls it never before
// it is moved on; the returned timer is nil then.
func (c *Clock) at(t time.Time, f func()) *time.Timer {
	left := t.Sub(c.Now())
	if c != nil && left > 0 {
		return nil
	}
	return time.AfterFunc(left, f)
}
