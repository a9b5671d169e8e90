package execd

import (
	"context"
	"net"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/loopback"
)

// A daemon of a pod opens no connections. Instead, connections of its holder wait there:
// each carries one connection of a command to the proxy of the sandbox.
const (
	spareCarriers = 4
	mostCarriers  = 64
	// carryPatience is how long a command waits for a free connection.
	carryPatience = 10 * time.Second
	redialWait    = 100 * time.Millisecond
)

// Carry passes the connections of commands to serve until Close. It is called once, for a
// sandbox that was opened with a list of hosts.
func (c *Client) Carry(serve func(net.Conn)) {
	for range spareCarriers {
		c.done.Go(func() {
			for c.closing.Err() == nil {
				if conn := c.carrier(); conn != nil {
					serve(conn)
					continue
				}
				select {
				case <-c.closing.Done():
				case <-c.gone:
					return
				case <-time.After(redialWait):
				}
			}
		})
	}
}

// carrier waits until a command uses a connection to the daemon; nil means that the
// connection ended.
func (c *Client) carrier() net.Conn {
	s, err := c.dial(c.closing)
	if err != nil {
		return nil
	}
	stop := context.AfterFunc(c.closing, func() { s.Close() })
	var kind byte
	if err = s.send(kindCarry, nil); err == nil {
		kind, _, err = s.receive()
	}
	stop()
	if err != nil || kind != kindCarried {
		s.Close()
		return nil
	}
	return s.Conn
}

// carry joins a connection of a command with a connection that the holder opened for it.
func (d *server) carry(c net.Conn) {
	go func() {
		defer c.Close()
		select {
		case s := <-d.carriers:
			defer s.Close()
			if s.send(kindCarried, nil) == nil {
				loopback.Join(c, s.Conn)
			}
		case <-time.After(carryPatience):
		}
	}()
}
