package cluster

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/memberlist"
)

// Node is one start of a node, by its last description.
type Node struct {
	// Name is stable over restarts: the pod's name. Incarnation names this start.
	Name, Incarnation string
	// Addr is where others reach its gossip, as "host:port".
	Addr string
	// Protocol is the version that the node speaks to other nodes.
	Protocol int
	// Version is the release of the program, for people.
	Version string
	// Isolation is the strongest level that its sandboxes enforce, "" if it opens
	// none.
	Isolation string
	// Pools are the pools whose tasks it takes, sorted.
	Pools []string
	// Slots is how many runs it takes at a time, FreeSlots how many more it would
	// take now. Both lag by up to a second, more in a fleet of dozens.
	Slots, FreeSlots int
	// Draining reports that it accepts no new runs and will leave.
	Draining bool
}

// MaxMetadata is the largest size of a node's description in bytes; see [ErrTooLarge].
const MaxMetadata = memberlist.MetaMaxSize

// ErrTooLarge reports that a node's description has more than [MaxMetadata] bytes: its
// pools are too many, or their names too long.
var ErrTooLarge = errors.New("the node's description is too large")

// metadata is the encoding of a Node in each message about it. Names are short because
// of the limit. Readers ignore unknown fields.
type metadata struct {
	Name      string   `json:"n"`
	Protocol  int      `json:"p"`
	Oldest    int      `json:"o"`
	Version   string   `json:"v,omitempty"`
	Isolation string   `json:"i,omitempty"`
	Pools     []string `json:"l,omitempty"`
	Slots     int      `json:"s,omitempty"`
	Free      int      `json:"f,omitempty"`
	Draining  bool     `json:"d,omitempty"`
}

// encode describes a node that accepts protocols from oldest on.
func encode(n Node, oldest int) ([]byte, error) {
	data, err := json.Marshal(metadata{
		Name: n.Name, Protocol: n.Protocol, Oldest: oldest, Version: n.Version, Isolation: n.Isolation,
		Pools: slices.Sorted(slices.Values(n.Pools)), Slots: n.Slots, Free: n.FreeSlots, Draining: n.Draining,
	})
	if err != nil {
		return nil, fmt.Errorf("cluster: describe node %s: %w", n.Name, err)
	}
	if len(data) > MaxMetadata {
		return nil, fmt.Errorf("cluster: describe node %s: %w: %d bytes, at most %d: offer fewer pools (%d now) or give them shorter names",
			n.Name, ErrTooLarge, len(data), MaxMetadata, len(n.Pools))
	}
	return data, nil
}

// decode reads the description of another node, and the oldest protocol that it
// accepts.
func decode(peer *memberlist.Node) (Node, int, error) {
	var d metadata
	if err := json.Unmarshal(peer.Meta, &d); err != nil || !isID(d.Name) || !isID(peer.Name) || d.Protocol <= 0 {
		return Node{}, 0, fmt.Errorf("%q at %s is no node of Rath: it does not describe itself as one", peer.Name, peer.Address())
	}
	return Node{
		Name: d.Name, Incarnation: peer.Name, Addr: peer.Address(), Protocol: d.Protocol, Version: d.Version,
		Isolation: d.Isolation, Pools: d.Pools, Slots: d.Slots, FreeSlots: d.Free, Draining: d.Draining,
	}, d.Oldest, nil
}

// protocolDiffers begins the reason in errors and logs of both sides.
const protocolDiffers = "the protocol differs"

// fits returns an error unless two nodes understand each other: each accepts the
// other's protocol.
func (c *Config) fits(peer Node, oldest int) error {
	if peer.Protocol >= c.OldestProtocol && c.Protocol >= oldest {
		return nil
	}
	return fmt.Errorf("%s: node %s at %s speaks %d and accepts %d or newer, this node speaks %d and accepts %d or newer: run releases that overlap",
		protocolDiffers, peer.Name, peer.Addr, peer.Protocol, oldest, c.Protocol, c.OldestProtocol)
}

func byName(a, b Node) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Incarnation, b.Incarnation))
}
