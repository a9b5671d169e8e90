package natsbus

import (
	"net"

	"github.com/nats-io/nats.go"
)

type (
	natsMsg = nats.Msg
	netConn = net.Conn
)
