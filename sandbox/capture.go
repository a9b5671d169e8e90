package sandbox

import (
	"fmt"
	"io"
)

// Capture is a writer that keeps the head and the tail of what passes, for
// backends. It never fails and never holds more than its limit. It is for one
// goroutine at a time.
type Capture struct {
	head, tail []byte // tail is a ring once it is full
	headMax    int
	tailMax    int
	next       int // where the ring continues
	total      int64
}

var _ io.Writer = (*Capture)(nil)

// NewCapture returns a Capture that keeps limit bytes, half from the head and
// half from the tail; zero or less means DefaultOutput.
func NewCapture(limit int) *Capture {
	if limit <= 0 {
		limit = DefaultOutput
	}
	return &Capture{headMax: limit / 2, tailMax: limit - limit/2}
}

// Write implements io.Writer; it always takes all of p.
func (c *Capture) Write(p []byte) (int, error) {
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

// Output returns what was kept so far. The slices are the caller's.
func (c *Capture) Output() Output {
	out := Output{Head: append([]byte(nil), c.head...), Total: c.total}
	out.Tail = append(out.Tail, c.tail[c.next:]...)
	out.Tail = append(out.Tail, c.tail[:c.next]...)
	return out
}

// Dropped returns how many bytes between head and tail were not kept.
func (o Output) Dropped() int64 { return o.Total - int64(len(o.Head)) - int64(len(o.Tail)) }

// Bytes returns the output as one piece: all of it if nothing was dropped,
// else the head, a line that says how much is missing, and the tail.
func (o Output) Bytes() []byte {
	data := append([]byte(nil), o.Head...)
	if n := o.Dropped(); n > 0 {
		data = fmt.Appendf(data, "\n[... %d bytes dropped ...]\n", n)
	}
	return append(data, o.Tail...)
}
