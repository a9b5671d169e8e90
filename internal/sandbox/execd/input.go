package execd

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"
)

// input buffers the standard input of a command: the bytes received over the connection
// that the command has not read. The client sends no more than a window of them, so the
// reader of the connection never waits for the command.
type input struct {
	taken func(n int) error // called with the number of bytes that the command read

	mu    sync.Mutex
	more  sync.Cond
	data  []byte
	ended error // the error that a reader gets after data
}

func newInput(taken func(int) error) *input {
	in := &input{taken: taken}
	in.more.L = &in.mu
	return in
}

var errWindow = errors.New("more standard input than its window holds")

func (in *input) add(p []byte) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.data)+len(p) > window {
		return errWindow
	}
	in.data = append(in.data, p...)
	in.more.Broadcast()
	return nil
}

func (in *input) end(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ended == nil {
		in.ended = err
	}
	in.more.Broadcast()
}

// Read implements io.Reader for the command.
func (in *input) Read(p []byte) (int, error) {
	in.mu.Lock()
	for len(in.data) == 0 && in.ended == nil {
		in.more.Wait()
	}
	if len(in.data) == 0 {
		defer in.mu.Unlock()
		return 0, in.ended
	}
	n := copy(p, in.data)
	in.data = in.data[n:]
	in.mu.Unlock()
	// A disconnected client needs no credit.
	_ = in.taken(n)
	return n, nil
}

// credit is the number of input bytes that a client may send.
type credit struct {
	mu   sync.Mutex
	more sync.Cond
	n    int
	over bool
}

func newCredit() *credit {
	c := &credit{n: window}
	c.more.L = &c.mu
	return c
}

func (c *credit) add(payload []byte) {
	if len(payload) != 4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += int(binary.LittleEndian.Uint32(payload))
	c.more.Broadcast()
}

func (c *credit) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.more.Broadcast()
}

// take waits until bytes may be sent and returns their number; 0 means that no more input
// is wanted.
func (c *credit) take(most int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.n == 0 && !c.over {
		c.more.Wait()
	}
	if c.over {
		return 0
	}
	n := min(c.n, most)
	c.n -= n
	return n
}

// pumpInput sends the data of r until its end, its error, or the command's end. It reports
// an error before it sends the end of input, after which the command may end.
func pumpInput(s *stream, r io.Reader, c *credit, failed chan<- error) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		for p := buf[:n]; len(p) > 0; {
			k := c.take(len(p))
			if k == 0 || s.send(kindInput, p[:k]) != nil {
				return // the command has ended, or its result has the error
			}
			p = p[k:]
		}
		if err != nil {
			if err != io.EOF {
				failed <- err
			}
			_ = s.send(kindEnd, nil) // likewise
			return
		}
	}
}
