package api_test

import (
	"bytes"
	"io"
	"net"
	"sync"
)

// deaf drops a client's messages for a subscription, like a server that denies it.
func deaf(dial func() (net.Conn, error), what string) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		c, err := dial()
		return &deafConn{c, []byte(what)}, err
	}
}

type deafConn struct {
	net.Conn
	what []byte
}

// Write implements net.Conn.
func (c *deafConn) Write(b []byte) (int, error) {
	var rest []byte
	for line := range bytes.SplitAfterSeq(b, []byte("\r\n")) {
		if !bytes.HasPrefix(line, c.what) {
			rest = append(rest, line...)
		}
	}
	_, err := c.Conn.Write(rest)
	return len(b), err
}

// ice is a network that can be frozen: no data passes, and none is lost. Writes do not
// block then: a lock held meanwhile would stop virtual time.
type ice struct {
	mu   sync.Mutex
	melt chan struct{} // closed unless frozen
}

func newIce() *ice {
	i := &ice{melt: make(chan struct{})}
	close(i.melt)
	return i
}

// freeze returns the function that thaws.
func (i *ice) freeze() (thaw func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	melt := make(chan struct{})
	i.melt = melt
	return func() { close(melt) }
}

func (i *ice) melted() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.melt
}

func (i *ice) dial(dial func() (net.Conn, error)) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		c, err := dial()
		if err != nil {
			return nil, err
		}
		out := &iced{Conn: c, in: make(chan []byte, 1<<12), out: make(chan []byte, 1<<12), closed: make(chan struct{})}
		go out.pass(i, out.out, func(b []byte) { _, _ = c.Write(b) })
		go func() {
			defer close(out.in)
			for {
				b := make([]byte, 32<<10)
				n, err := c.Read(b)
				if err != nil {
					return
				}
				<-i.melted()
				select {
				case out.in <- b[:n]:
				case <-out.closed:
					return
				}
			}
		}()
		return out, nil
	}
}

type iced struct {
	net.Conn
	in, out chan []byte
	rest    []byte
	closed  chan struct{}
	once    sync.Once
}

func (c *iced) pass(i *ice, from <-chan []byte, write func([]byte)) {
	for {
		select {
		case b := <-from:
			<-i.melted()
			write(b)
		case <-c.closed:
			return
		}
	}
}

// Read implements net.Conn.
func (c *iced) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		select {
		case next, ok := <-c.in:
			if !ok {
				return 0, io.EOF
			}
			c.rest = next
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write implements net.Conn.
func (c *iced) Write(b []byte) (int, error) {
	select {
	case c.out <- bytes.Clone(b):
		return len(b), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

// Close implements net.Conn.
func (c *iced) Close() error {
	c.once.Do(func() {
		close(c.closed)
	})
	return c.Conn.Close()
}
