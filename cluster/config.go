package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"
)

// DefaultPort is the default gossip port, UDP and TCP.
const DefaultPort = 7946

// Config describes a node and configures how it finds the others.
type Config struct {
	// Name is the node's stable name, such as the pod's. Incarnation names this
	// start of it and is never used again. Both are ids: letters, digits, - and _,
	// at most 64.
	Name, Incarnation string

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

	// Key must be the same on all nodes. AcceptKeys decrypt received messages only, for
	// the time in which a key is changed.
	Key        Key
	AcceptKeys []Key
	// Label separates fleets: nodes with another label are rejected. Empty is "rath";
	// at most 255 bytes.
	Label string
	// Protocol is the version of the gossip protocol that this program speaks, from 1;
	// OldestProtocol is the oldest that it understands, 0 for only its own. Nodes
	// without a common version do not see each other.
	Protocol, OldestProtocol int

	// About describes this node now: Version, Isolation, Pools, Slots, FreeSlots and
	// Draining; the package sets the other fields. It is called about once a second and
	// by [Members.Update], from several goroutines, and must not block. nil: the node
	// offers nothing.
	About func() Node

	// Logger gets joins, departures and rejections of nodes; nil discards them.
	Logger *slog.Logger

	// For tests.
	transport memberlist.Transport
	resolve   func(ctx context.Context, host string) ([]netip.Addr, error)
	tune      func(*memberlist.Config)
}

// Times of the failure detector.
//
// A node probes one other every probeInterval; without an answer in probeTimeout
// it asks others to probe and tries TCP until the interval is over. Then the node
// is a suspect for suspicionMult x probeInterval (x log10 of the fleet above 10),
// at most suspicionMaxMult times as long while no other node confirms it, and can
// refute. BenchmarkDetect measures the time until all others call it dead, with
// four processes on two busy cores, 20 times each (median, worst, in seconds):
//
//	                                killed        frozen
//	these settings                  1.13  1.71    0.96  1.37
//	suspicionMult 4                 1.42  2.68    1.28  1.62
//	probe 500/250 ms, max mult 3    2.79  3.69    2.42  3.80
//	probe 100/50 ms, mult 2, max 1  0.47  0.66    0.38  0.59
//
// With four threads burning the two cores, and with a node stopped for 0.8 s of
// each second, none was called dead that lived. A node that was frozen for 45 s
// was back for all within 2 ms of waking up. In a bubble with 2 % loss, 100 nodes
// saw each other 1.0 s after the start and a crash after 1.6 s. An idle node uses
// 3 ms of CPU per second. The fastest settings would leave no room for a pod
// whose CPU is throttled: a false death costs a takeover.
const (
	probeInterval    = 200 * time.Millisecond
	probeTimeout     = 100 * time.Millisecond
	suspicionMult    = 3
	suspicionMaxMult = 2
	gossipInterval   = 50 * time.Millisecond
	// pushPullEvery is how often full lists are compared with a random node, which
	// repairs losses of gossip.
	pushPullEvery = 15 * time.Second
	// streamTimeout bounds one exchange over TCP.
	streamTimeout = 3 * time.Second
	// gossipToDead is how long gossip of its death still goes to a dead node, so that a
	// node that wakes up can refute it at once. Later only joining brings it back.
	gossipToDead = 30 * time.Second
)

var id = regexp.MustCompile(`^[A-Za-z0-9_-]+$`) // a bounded repetition compiles to 64 times the size

// isID reports whether s may name a node or an incarnation.
func isID(s string) bool { return len(s) <= 64 && id.MatchString(s) }

// prepare checks a configuration and fills in its defaults.
func (c *Config) prepare() (bind, advertise netip.AddrPort, seeds []seed, err error) {
	fail := func(err error) (netip.AddrPort, netip.AddrPort, []seed, error) {
		return netip.AddrPort{}, netip.AddrPort{}, nil, err
	}
	for _, v := range []struct{ what, id string }{{"name", c.Name}, {"incarnation", c.Incarnation}} {
		if !isID(v.id) {
			return fail(fmt.Errorf("cluster: %s %q: 1 to 64 letters, digits, - or _", v.what, v.id))
		}
	}
	for _, k := range append([]Key{c.Key}, c.AcceptKeys...) {
		if err := k.check(); err != nil {
			return fail(err)
		}
	}
	if c.Label == "" {
		c.Label = "rath"
	}
	if len(c.Label) > memberlist.LabelMaxSize {
		return fail(fmt.Errorf("cluster: label: %d bytes, at most %d", len(c.Label), memberlist.LabelMaxSize))
	}
	if c.OldestProtocol == 0 {
		c.OldestProtocol = c.Protocol
	}
	if c.Protocol < 1 || c.OldestProtocol < 1 || c.OldestProtocol > c.Protocol {
		return fail(fmt.Errorf("cluster: protocol %d, oldest %d: from 1, the oldest not above the other", c.Protocol, c.OldestProtocol))
	}
	if c.About == nil {
		c.About = func() Node { return Node{} }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.resolve == nil {
		c.resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if bind, err = address("bind", cmp.Or(c.Bind, "127.0.0.1"), DefaultPort); err != nil {
		return fail(err)
	}
	advertise = bind
	if c.Advertise != "" {
		if advertise, err = address("advertise", c.Advertise, bind.Port()); err != nil {
			return fail(err)
		}
	}
	if advertise.Addr().IsUnspecified() {
		return fail(fmt.Errorf("cluster: advertise %s: no address that others could reach: give this node's own, in a pod status.podIP through the downward API", advertise.Addr()))
	}
	for _, j := range c.Join {
		s, err := parseSeed(j)
		if err != nil {
			return fail(err)
		}
		seeds = append(seeds, s)
	}
	return bind, advertise, seeds, nil
}

// address parses "IP" or "IP:port". It rejects a host name: memberlist would listen on
// all interfaces for a name that it cannot parse.
func address(what, s string, port uint16) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a.Unmap(), port), nil
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("cluster: %s %q: give an IP address or IP:port, IPv6 in brackets", what, s)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// seed is one entry of Config.Join.
type seed struct {
	host string
	port uint16
}

func parseSeed(s string) (seed, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return seed{a.Unmap().String(), DefaultPort}, nil
	}
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		host, text = s, strconv.Itoa(DefaultPort)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 || len(host) > 253 || !hostname.MatchString(host) {
		return seed{}, fmt.Errorf("cluster: join %q: give host or host:port, IPv6 in brackets", s)
	}
	return seed{host, uint16(port)}, nil
}

var hostname = regexp.MustCompile(`^[A-Za-z0-9_.:%-]+$`)

// memberlist is the configuration of the library.
func (c *Config) memberlist(bind, advertise netip.AddrPort, d *delegate) (*memberlist.Config, error) {
	accept := make([][]byte, 0, len(c.AcceptKeys))
	for _, k := range c.AcceptKeys {
		accept = append(accept, k)
	}
	ring, err := memberlist.NewKeyring(accept, c.Key)
	if err != nil {
		return nil, errors.New("cluster: key: cannot be used")
	}
	mc := memberlist.DefaultLANConfig()
	mc.Name, mc.Label, mc.Keyring = c.Incarnation, c.Label, ring
	mc.BindAddr, mc.BindPort = bind.Addr().String(), int(bind.Port())
	mc.AdvertiseAddr, mc.AdvertisePort = advertise.Addr().String(), int(advertise.Port())
	mc.ProbeInterval, mc.ProbeTimeout = probeInterval, probeTimeout
	mc.SuspicionMult, mc.SuspicionMaxTimeoutMult = suspicionMult, suspicionMaxMult
	mc.GossipInterval, mc.GossipToTheDeadTime = gossipInterval, gossipToDead
	mc.PushPullInterval, mc.TCPTimeout = pushPullEvery, streamTimeout
	// The messages are small: packing them costs more than it saves.
	mc.EnableCompression = false
	mc.Delegate, mc.Events, mc.Alive, mc.Merge = d, d, d, d
	mc.Logger = newLibraryLog(c.Logger)
	mc.Transport = c.transport
	if c.tune != nil {
		c.tune(mc)
	}
	return mc, nil
}
