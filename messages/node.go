package messages

// The verbs of a node's own subjects, which only nodes and operators may use.
const (
	NodeDrain  = "drain"  // take no more work, give runs back, and end
	NodeReplay = "replay" // [Replay] of a run whose workflow the node offers
	NodeLive   = "live"   // what the execution of a run is at, see [Live]
)

// NodeSubject is where an incarnation takes a verb of its own.
func NodeSubject(incarnation, verb string) string { return NodePrefix + incarnation + "." + verb }
