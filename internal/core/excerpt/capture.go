package excerpt

// Capture is a writer that keeps the head and the tail of its input. It never fails and
// never holds more than its limit. It must not be used concurrently.
type Capture struct {
	head, tail []byte // tail is a ring once it is full
	headMax    int
	tailMax    int
	next       int // where the ring continues
	total      int64
}

// NewCapture returns a capture that keeps limit bytes, half from the head and
// half from the tail.
func NewCapture(limit int) *Capture {
	return &Capture{headMax: limit / 2, tailMax: limit - limit/2}
}

// Write implements io.Writer; it always accepts all of p.
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

// Kept returns the kept bytes so far, and the total number of bytes written. The caller
// owns the slices.
func (c *Capture) Kept() (head, tail []byte, total int64) {
	tail = append(tail, c.tail[c.next:]...)
	return append([]byte(nil), c.head...), append(tail, c.tail[:c.next]...), c.total
}
