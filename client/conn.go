package client

import (
	"github.com/rathcluster/rath/internal/nats/api"
)

// Conn is the connection that the client works on, for what a client does not
// offer, such as measuring. It ends with the client that dialled it.
func (c *Client) Conn() *api.Conn { return c.conn }
