package natsbus

import (
	"net"

	"github.com/nats-io/nats.go"
)

type (
	natsMsg = nats.Msg
	netConn = net.Conn
)

// Kill ends the connection as the death of its process does: nothing that is
// under way is finished.
func (c *Conn) Kill() { c.nc.Close() }

// Cut breaks the connection, which is restored by itself.
func (c *Conn) Cut() error { return c.nc.ForceReconnect() }
