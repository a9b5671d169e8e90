package egress

import (
	"bufio"
	"net"
	"sync"
)

// connections is a net.Listener of connections that are passed to it.
type connections struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
	slots  chan struct{}
}

func (c *connections) end() { c.once.Do(func() { close(c.closed) }) }

// bring passes a connection to the server, or closes it if the server has ended.
func (c *connections) bring(conn net.Conn) {
	select {
	case c.accept <- conn:
	case <-c.closed:
		conn.Close()
	}
}

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

// connection releases its slot when it is closed.
type connection struct {
	net.Conn
	once    sync.Once
	release func()
}

func (c *connection) Close() error {
	c.once.Do(c.release)
	return c.Conn.Close()
}

// ahead is a connection whose first bytes have been read already.
type ahead struct {
	net.Conn
	r *bufio.Reader
}

func (a ahead) Read(p []byte) (int, error) { return a.r.Read(p) }
