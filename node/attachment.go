package node

import (
	"os"

	"github.com/rathcluster/rath/internal/nats/supervise"
)

// announce writes this node's address and credentials into its store.
func (n *Instance) announce() error {
	if n.server == nil || n.server.URL() == "" {
		return nil
	}
	user, password := n.server.Node()
	toolUser, toolPassword := n.server.Tool()
	operatorUser, operatorPassword := n.server.Operator()
	a := supervise.Attachment{
		PID: os.Getpid(), URL: n.server.URL(), User: user, Password: password, Level: n.o.NATS.Level,
		ToolUser: toolUser, ToolPassword: toolPassword, OperatorUser: operatorUser, OperatorPassword: operatorPassword,
	}
	if n.members != nil && n.o.Fleet.Gossip.Label == devLabel {
		a.Gossip, a.GossipKey = n.members.Addr(), n.o.Fleet.Gossip.Key
	}
	return a.Write(n.o.Store)
}
