package local

import (
	"github.com/rathcluster/rath/sandbox"
)

// capture is a writer that keeps the head and the tail of what passes. It never fails and never holds more than its limit. It is for one
// goroutine at a time.
type capture struct {
	head, tail []byte // tail is a ring once it is full
	headMax    int
	tailMax    int
	next       int // where the ring continues
	total      int64
}

// newCapture returns a capture that keeps limit bytes, half from the head and
// half from the tail; zero or less means sandbox.DefaultOutput.
func newCapture(limit int) *capture {
	if limit <= 0 {
		limit = sandbox.DefaultOutput
	}
	return &capture{headMax: limit / 2, tailMax: limit - limit/2}
}

// Write implements io.Writer; it always takes all of p.
func (c *capture) Write(p []byte) (int, error) {
	n := len(p)
	c.total += int64(n)
	if room := c.headMax - len(c.head); room > 0 {
		k := min(room, len(p))
		c.head = append(c.head, p[:k]...)
		p = p[k:]
	}
	if len(p) > c.tailMax {
		p = p[len(p)-c.tailMax:]
	}
	if room := c.tailMax - len(c.tail); room > 0 {
		k := min(room, len(p))
		c.tail = append(c.tail, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 {
		k := copy(c.tail[c.next:], p)
		p = p[k:]
		c.next = (c.next + k) % c.tailMax
	}
	return n, nil
}

// output returns what was kept so far. The slices are the caller's.
func (c *capture) output() sandbox.Output {
	out := sandbox.Output{Head: append([]byte(nil), c.head...), Total: c.total}
	out.Tail = append(out.Tail, c.tail[c.next:]...)
	out.Tail = append(out.Tail, c.tail[:c.next]...)
	return out
}
