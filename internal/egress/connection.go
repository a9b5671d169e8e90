package egress

import (
	"net"
	"sync"
)

// connections is a net.Listener of connections that are brought to it.
type connections struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
	slots  chan struct{}
}

func (c *connections) end() { c.once.Do(func() { close(c.closed) }) }

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	select {
	case conn := <-c.accept:
		return conn, nil
	case <-c.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (c *connections) Close() error { c.end(); return nil }

// Addr implements net.Listener.
func (c *connections) Addr() net.Addr { return &net.UnixAddr{Name: "sandbox", Net: "unix"} }

// connection gives its slot back.
type connection struct {
	net.Conn
	once    sync.Once
	release func()
}

func (c *connection) Close() error {
	c.once.Do(c.release)
	return c.Conn.Close()
}
