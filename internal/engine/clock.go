package engine

import (
	"sync"
	"time"
)

// Clock is the clock of a runtime; nil is the machine's. A clock made by [NewClock] is
// for tests: it stands still while any part of a run works, and jumps to the next due
// time when all of it waits. So the recorded times depend on the waits of a run, not on
// the duration of its work, the interleaving of its branches, or the place of a crash.
// The clock outlives the runtimes that use it, as a wall clock does; it serves one tree
// of runs at a time, and is safe for concurrent use.
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

// GoTo moves a standing clock forward to a time, never back.
func (c *Clock) GoTo(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.After(c.now) {
		c.now = at
	}
}

// at calls f at a time, at once if the time is past. A standing clock never calls f by
// itself: at then returns a nil timer.
func (c *Clock) at(t time.Time, f func()) *time.Timer {
	left := t.Sub(c.Now())
	if c != nil && left > 0 {
		return nil
	}
	return time.AfterFunc(left, f)
}
