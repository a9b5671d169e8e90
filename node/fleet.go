package node

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/messages"
)

// Gossip configures how a node and the others of its fleet find each other.
type Gossip struct {
	// Bind is the address to listen on, "IP" or "IP:port", UDP and TCP. Empty is
	// 127.0.0.1:7946; port 0 takes a free one.
	Bind string
	// Advertise is the address at which others reach this node, "IP" or "IP:port".
	// Empty is the bound one. It is required if Bind is 0.0.0.0 or ::, because no
	// address is guessed from the interfaces.
	Advertise string
	// Join are addresses of other nodes, "host" or "host:port"; a host may be an IP or
	// a name with many addresses. This node may be among them. Without addresses the
	// node waits for others to contact it.
	Join []string
	// Key encrypts and authenticates the traffic between nodes, and must be the same on
	// all of them: 16, 24 or 32 bytes as base64, as `rath cluster key` writes it.
	// AcceptKeys decrypt received messages only, for the time in which a key is
	// changed.
	Key        string
	AcceptKeys []string
	// Label separates fleets: nodes with another label are rejected. Empty is "rath";
	// at most 255 bytes.
	Label string
}

// keys reads the texts of the keys.
func (g *Gossip) keys() (key cluster.Key, accepted []cluster.Key, err error) {
	if key, err = cluster.ParseKey(g.Key); err != nil {
		return nil, nil, err
	}
	for i, text := range g.AcceptKeys {
		k, err := cluster.ParseKey(text)
		if err != nil {
			return nil, nil, fmt.Errorf("key %d: %w", i+2, err)
		}
		accepted = append(accepted, k)
	}
	return key, accepted, nil
}

// protocol is the gossip protocol of this release, oldestProtocol the oldest one that
// it understands; see cluster.Config.
const (
	protocol       = 1
	oldestProtocol = 1
)

// join makes the node a member, if gossip is configured. Gossip begins before the node
// accepts tasks.
func (n *Instance) join(ctx context.Context) error {
	g := n.o.Fleet.Gossip
	if g == nil {
		return nil
	}
	key, accepted, err := g.keys()
	if err != nil {
		return fmt.Errorf("node: gossip: %w", err)
	}
	n.members, err = cluster.Start(ctx, cluster.Config{
		Name: n.o.Name, Incarnation: n.incarnation, Bind: g.Bind, Advertise: g.Advertise, Join: g.Join, Key: key, AcceptKeys: accepted, Label: g.Label,
		Protocol: protocol, OldestProtocol: oldestProtocol, About: n.member, Logger: n.log,
	})
	if err != nil {
		return fmt.Errorf("node: gossip: %w", err)
	}
	return nil
}

// member describes the node to the others.
func (n *Instance) member() cluster.Node {
	if n.o.Idle {
		return cluster.Node{Version: Version(), Draining: n.draining.Load()}
	}
	m := cluster.Node{Version: Version(), Pools: []string{n.o.Fleet.Pool}, Slots: n.o.Slots, Draining: n.draining.Load()}
	if n.wired.Load() {
		m.FreeSlots, m.Isolation = n.system.Free(), string(n.isolation)
	}
	return m
}

// alive returns a function that reports whether an incarnation is alive, nil without
// gossip. Bound nodes do not gossip and count as alive: they are asked directly.
func (n *Instance) alive() func(string) bool {
	if n.members == nil {
		return nil
	}
	return func(incarnation string) bool {
		_, bound := messages.BoundTo(incarnation)
		return bound || n.members.Alive(incarnation)
	}
}

// known returns a function that reports whether an incarnation is alive, and whether
// gossip has that information; nil without gossip.
func (n *Instance) known() func(string) (alive, known bool) {
	if n.members == nil {
		return nil
	}
	return func(incarnation string) (alive, known bool) {
		if _, bound := messages.BoundTo(incarnation); bound {
			return false, false
		}
		return n.members.Known(incarnation)
	}
}

// changed returns a channel that is closed at the next change of alive, nil without
// gossip.
func (n *Instance) changed() func() <-chan struct{} {
	if n.members == nil {
		return nil
	}
	return n.members.Changed
}

// changes signals the relay that nodes have joined or left, until ctx ends.
func (n *Instance) changes(ctx context.Context) <-chan struct{} {
	if n.members == nil {
		return nil
	}
	out := make(chan struct{}, 1)
	n.work.Go(func() {
		for changed := n.members.Changed(); ; {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			changed = n.members.Changed() // before the receiver looks
			select {
			case out <- struct{}{}:
			default:
			}
		}
	})
	return out
}

// relay returns the options of the node's relay.
func (n *Instance) relay(ctx context.Context) *dispatch.RelayOptions {
	return &dispatch.RelayOptions{Incarnation: n.incarnation, Known: n.known(), Changed: n.changes(ctx), Signal: n.system.Signal, Strangers: n.meet}
}

// meet records which relays belong to another gossip.
func (n *Instance) meet(strangers []string) {
	n.strangers.Store(&strangers)
	if len(strangers) > 0 {
		n.log.Warn("nodes with another gossip use the same streams, and each half takes the other one for dead: give all of them one -label, one key and a common address in -join, or give each fleet a separate NATS account",
			"incarnations", strings.Join(strangers, ", "))
	}
}

// gossipFrom reads the settings of gossip: bind is empty for none.
func gossipFrom(bind, advertise, join, keyFile, label string) (*Gossip, error) {
	if bind == "" {
		if join != "" || keyFile != "" {
			return nil, fmt.Errorf("node: gossip needs an address to listen on: set -gossip (RATH_GOSSIP), such as 0.0.0.0:%d", cluster.DefaultPort)
		}
		return nil, nil
	}
	g := &Gossip{Bind: bind, Advertise: advertise, Label: label}
	for host := range strings.SplitSeq(join, ",") {
		if host = strings.TrimSpace(host); host != "" {
			g.Join = append(g.Join, host)
		}
	}
	if keyFile == "" {
		return nil, fmt.Errorf("node: gossip needs a key that all nodes share: write one with `rath cluster key` into a file and name it with -gossip-key-file (RATH_GOSSIP_KEY_FILE)")
	}
	text, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("node: gossip key: %w", err)
	}
	// The first key encrypts; the others are older or newer ones, while some nodes
	// still have another version of the file.
	lines := strings.Fields(string(text))
	if len(lines) == 0 {
		lines = []string{""}
	}
	g.Key, g.AcceptKeys = lines[0], lines[1:]
	if _, _, err := g.keys(); err != nil {
		return nil, fmt.Errorf("node: gossip key in %s: %w", keyFile, err)
	}
	return g, nil
}
