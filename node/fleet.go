package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/sandbox"
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

// fleet is the node's place among the nodes that gossip.
type fleet struct {
	o         *Options
	members   *cluster.Members // nil without gossip
	draining  atomic.Bool
	strangers atomic.Pointer[[]string] // see dispatch.RelayOptions
	load      atomic.Pointer[load]     // nil as long as the node cannot execute runs
}

// load is a node's capacity for runs.
type load struct {
	free      func() int        // slots
	isolation sandbox.Isolation // of its sandboxes, "" without a backend
}

// join makes the node a member, if gossip is configured. Gossip begins before the node
// accepts tasks.
func (f *fleet) join(ctx context.Context, incarnation string) error {
	g := f.o.Fleet.Gossip
	if g == nil {
		return nil
	}
	key, accepted, err := g.keys()
	if err != nil {
		return fmt.Errorf("node: gossip: %w", err)
	}
	f.members, err = cluster.Start(ctx, cluster.Config{
		Name: f.o.Name, Incarnation: incarnation, Bind: g.Bind, Advertise: g.Advertise, Join: g.Join, Key: key, AcceptKeys: accepted, Label: g.Label,
		Protocol: protocol, OldestProtocol: oldestProtocol, About: f.member, Logger: f.o.Logger,
	})
	if err != nil {
		return fmt.Errorf("node: gossip: %w", err)
	}
	return nil
}

// address returns the node's address for gossip, "" without gossip.
func (f *fleet) address() string {
	if f.members == nil {
		return ""
	}
	return f.members.Addr()
}

// drain announces to the other nodes that this one accepts no more work.
func (f *fleet) drain() {
	f.draining.Store(true)
	if f.members == nil {
		return
	}
	if err := f.members.Update(); err != nil {
		f.o.Logger.Warn("the other nodes do not know yet that this node drains", "error", err)
	}
}

// leaveLast bounds how long leave waits until the other members have received the
// node's departure.
const leaveLast = 2 * time.Second

func (f *fleet) leave() error {
	if f.members == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveLast)
	defer cancel()
	return errors.Join(f.members.Leave(ctx), f.members.Close())
}

// member describes the node to the others.
func (f *fleet) member() cluster.Node {
	if f.o.Idle {
		return cluster.Node{Version: Version(), Draining: f.draining.Load()}
	}
	m := cluster.Node{Version: Version(), Pools: []string{f.o.Fleet.Pool}, Slots: f.o.Slots, Draining: f.draining.Load()}
	if l := f.load.Load(); l != nil {
		m.FreeSlots, m.Isolation = l.free(), string(l.isolation)
	}
	return m
}

// alive returns a function that reports whether an incarnation is alive, nil without
// gossip. Bound nodes do not gossip and count as alive: they are asked directly.
func (f *fleet) alive() func(string) bool {
	if f.members == nil {
		return nil
	}
	return func(incarnation string) bool {
		_, bound := messages.BoundTo(incarnation)
		return bound || f.members.Alive(incarnation)
	}
}

// known returns a function that reports whether an incarnation is alive, and whether
// gossip has that information; nil without gossip.
func (f *fleet) known() func(string) (alive, known bool) {
	if f.members == nil {
		return nil
	}
	return func(incarnation string) (alive, known bool) {
		if _, bound := messages.BoundTo(incarnation); bound {
			return false, false
		}
		return f.members.Known(incarnation)
	}
}

// changed returns a channel that is closed at the next change of alive, nil without
// gossip.
func (f *fleet) changed() func() <-chan struct{} {
	if f.members == nil {
		return nil
	}
	return f.members.Changed
}

// changes signals the relay that nodes have joined or left, until ctx ends. work counts
// its goroutine.
func (f *fleet) changes(ctx context.Context, work *sync.WaitGroup) <-chan struct{} {
	if f.members == nil {
		return nil
	}
	out := make(chan struct{}, 1)
	work.Go(func() {
		for changed := f.members.Changed(); ; {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			changed = f.members.Changed() // before the receiver looks
			select {
			case out <- struct{}{}:
			default:
			}
		}
	})
	return out
}

// meet records which relays belong to another gossip.
func (f *fleet) meet(strangers []string) {
	f.strangers.Store(&strangers)
	if len(strangers) > 0 {
		f.o.Logger.Warn("nodes with another gossip use the same streams, and each half takes the other one for dead: give all of them one -label, one key and a common address in -join, or give each fleet a separate NATS account",
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
