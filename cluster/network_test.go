package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// network connects the nodes of a test: it delays, loses or blocks packets, and refuses
// or stalls connections, as a real network does. It has no goroutine of its own, so it
// can live in a synctest bubble.
type network struct {
	mu      sync.Mutex
	ports   map[string]*port
	rng     *rand.Rand
	loss    float64 // of packets, not of connections
	latency time.Duration
	cut     func(from, to string) bool
}

func newNetwork(seed uint64) *network {
	return &network{ports: map[string]*port{}, rng: rand.New(rand.NewPCG(seed, 1)), latency: time.Millisecond}
}

// attach registers an address, and replaces a former user of it.
func (n *network) attach(addr string) *port {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &port{
		net: n, addr: netip.MustParseAddrPort(addr),
		packets: make(chan *memberlist.Packet, 1024), streams: make(chan net.Conn, 64), down: make(chan struct{}),
	}
	n.ports[addr] = p
	return p
}

// crash removes an address: it sends nothing any more, and packets and connections to
// it are refused.
func (n *network) crash(addr string) {
	n.mu.Lock()
	p := n.ports[addr]
	delete(n.ports, addr)
	n.mu.Unlock()
	p.Shutdown()
}

// set changes the behavior of the network.
func (n *network) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// partition cuts the given addresses off from all others, in both directions.
func (n *network) partition(addrs ...string) {
	in := map[string]bool{}
	for _, a := range addrs {
		in[a] = true
	}
	n.set(func() { n.cut = func(from, to string) bool { return in[from] != in[to] } })
}

func (n *network) heal() { n.set(func() { n.cut = nil }) }

// way returns the fate of a packet or connection that is sent now. to is nil if no node
// is there.
func (n *network) way(from *port, addr string) (to *port, cut, lost bool, delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	own := from.addr.String()
	cut = n.ports[own] != from || n.cut != nil && n.cut(own, addr)
	return n.ports[addr], cut, n.rng.Float64() < n.loss, n.latency + rand.N(n.latency+1)
}

// port is one node's place in the network.
type port struct {
	net     *network
	addr    netip.AddrPort
	packets chan *memberlist.Packet
	streams chan net.Conn
	once    sync.Once
	down    chan struct{}
}

var _ memberlist.Transport = (*port)(nil)

func (p *port) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return p.addr.Addr().AsSlice(), int(p.addr.Port()), nil
}

func (p *port) WriteTo(b []byte, addr string) (time.Time, error) {
	to, cut, lost, delay := p.net.way(p, addr)
	if to == nil || cut || lost {
		return time.Now(), nil
	}
	packet := append([]byte(nil), b...)
	time.AfterFunc(delay, func() {
		select {
		case to.packets <- &memberlist.Packet{Buf: packet, From: net.UDPAddrFromAddrPort(p.addr), Timestamp: time.Now()}:
		default: // the receiver's buffer is full
		}
	})
	return time.Now(), nil
}

func (p *port) PacketCh() <-chan *memberlist.Packet { return p.packets }

func (p *port) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	to, cut, _, delay := p.net.way(p, addr)
	if cut {
		time.Sleep(timeout)
		return nil, errors.New("dial " + addr + ": i/o timeout")
	}
	time.Sleep(delay)
	refused := fmt.Errorf("dial %s: connection refused", addr)
	if to == nil {
		return nil, refused
	}
	select {
	case <-to.down:
		return nil, refused
	default:
	}
	here, there := net.Pipe()
	// A pipe has no buffer, and the library writes before it sets a deadline.
	here.SetDeadline(time.Now().Add(timeout))
	select {
	case to.streams <- conn{there, p.addr}:
		return conn{here, to.addr}, nil
	case <-to.down:
		return nil, refused
	}
}

func (p *port) StreamCh() <-chan net.Conn { return p.streams }

func (p *port) Shutdown() error {
	p.once.Do(func() { close(p.down) })
	return nil
}

// conn is a pipe with the node at its other end.
type conn struct {
	net.Conn
	remote netip.AddrPort
}

func (c conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }
