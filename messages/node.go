package messages

import (
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The verbs of a node's own subjects, which only nodes and operators may use.
const (
	NodeDrain  = "drain"  // take no more work, give runs back, and end
	NodeReplay = "replay" // [Replay] of a run whose workflow the node offers
)

// NodeSubject is where an incarnation takes a verb of its own.
func NodeSubject(incarnation, verb string) string { return NodePrefix + incarnation + "." + verb }

// NodeRun names a run in the body of a verb of a node.
type NodeRun struct {
	Tenant  session.Tenant `json:"tenant"`
	Session session.ID     `json:"session"` // the run's home
	Run     run.ID         `json:"run"`
}

// DecodeNodeRun reads the name of a run and checks its ids.
func DecodeNodeRun(data []byte) (NodeRun, error) {
	n, err := read[NodeRun]("run of a node", data)
	if err == nil {
		err = session.Key{Tenant: n.Tenant, ID: n.Session}.Valid()
	}
	if err == nil {
		err = session.ValidID("run", string(n.Run))
	}
	return n, err
}
