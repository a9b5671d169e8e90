package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// Members is this node's list of the nodes that live. All methods may be called
// from several goroutines.
type Members struct {
	cfg         Config
	seeds       []seed
	addr, bound netip.AddrPort
	list        *memberlist.Memberlist
	delegate    *delegate
	view        *view
	log         *slog.Logger

	stop    context.CancelFunc
	work    sync.WaitGroup
	poke    chan struct{}
	leaving atomic.Bool

	mu  sync.Mutex
	err error

	ending sync.Mutex // held by Leave and Close
	left   bool
	closed bool
}

// Start listens, looks for the other nodes, and returns after the first attempt, or
// after 5 s at the latest; attempts continue until [Members.Close]. Reaching no other
// node is no error: the others may start later, or names resolve later. A rejection by
// them is an error: [ErrRefused]. ctx bounds the start.
func Start(ctx context.Context, cfg Config) (*Members, error) {
	bind, advertise, seeds, err := cfg.prepare()
	if err != nil {
		return nil, err
	}
	m := &Members{cfg: cfg, seeds: seeds, bound: bind, view: newView(), log: cfg.Logger, poke: make(chan struct{}, 1)}
	m.delegate = &delegate{cfg: &m.cfg, view: m.view}
	_, meta, err := m.describe()
	if err != nil {
		return nil, err
	}
	m.delegate.meta.Store(&meta)
	mc, err := m.cfg.memberlist(bind, advertise, m.delegate)
	if err != nil {
		return nil, err
	}
	if m.list, err = memberlist.Create(mc); err != nil {
		return nil, fmt.Errorf("cluster: listen on %s: %w", bind, err)
	}
	if m.addr, err = netip.ParseAddrPort(m.list.LocalNode().Address()); err != nil {
		m.list.Shutdown()
		return nil, fmt.Errorf("cluster: advertise: %w", err)
	}
	if bind.Port() == 0 {
		m.bound = netip.AddrPortFrom(bind.Addr(), m.addr.Port())
	}
	n, _, err := m.describe()
	if err != nil {
		m.list.Shutdown()
		return nil, err
	}
	m.view.setSelf(n)

	life, stop := context.WithCancel(context.Background())
	m.stop = stop
	first := make(chan error, 1)
	m.work.Go(func() { m.keepJoined(life, first) })
	m.work.Go(func() { m.keepDescribed(life) })
	wait := time.NewTimer(startTimeout)
	defer wait.Stop()
	select {
	case err = <-first:
	case <-wait.C:
	case <-ctx.Done():
		err = fmt.Errorf("cluster: start: %w", context.Cause(ctx))
	}
	if err != nil {
		m.shut()
		return nil, err
	}
	return m, nil
}

// Addr is where others reach this node, "host:port".
func (m *Members) Addr() string { return m.addr.String() }

// Alive reports whether an incarnation lives, as far as this node can determine. It
// also returns true if [Members.Known] cannot determine it.
func (m *Members) Alive(incarnation string) bool {
	alive, known := m.view.known(incarnation)
	return alive || !known
}

// Known reports whether an incarnation lives, and whether this node can determine that
// at all. It never blocks.
//
// A node that this one saw and that left or was called dead is known to be dead. A node
// that this one never saw is known to be dead too, but not before this node has been
// among others, or known to be alone, for 5 s: until then the rest of the fleet may be
// about to appear. So a node that reaches no other reports no deaths.
//
// A node that lost two or more others within 10 s and has none left cannot determine
// deaths either, until it sees another node: it is probably itself cut off. Nodes that
// announced that they were draining do not count as lost.
func (m *Members) Known(incarnation string) (alive, known bool) { return m.view.known(incarnation) }

// List returns the nodes that live, this one among them, sorted by name. Suspects
// count as alive until they are called dead.
func (m *Members) List() []Node { return m.view.list() }

// Changed returns a channel that is closed at the next change of the list: a node
// joins, leaves, or changes its description. Call it before List. Any number of
// goroutines may wait.
func (m *Members) Changed() <-chan struct{} { return m.view.next() }

// Err returns the latest error of joining: nil while other nodes are in the list and
// none rejects this one, and nil if there is no other node to join. An error that wraps
// [ErrRefused] is a rejection, which an operator has to repair; otherwise the nodes
// have not been reached yet.
func (m *Members) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil && !errors.Is(m.err, ErrRefused) && len(m.view.others()) > 0 {
		return nil // a node has joined since
	}
	return m.err
}

// setErr stores and logs the outcome of a round.
func (m *Members) setErr(r round) {
	var err error
	switch {
	case len(r.refused) > 0:
		err = some(r.refused)
	case len(m.view.others()) == 0 && len(r.unreached) > 0:
		err = some(r.unreached)
	}
	m.mu.Lock()
	was := m.err
	m.err = err
	m.mu.Unlock()
	switch {
	case err == nil || was != nil && was.Error() == err.Error():
	case errors.Is(err, ErrRefused):
		m.log.Error("cluster: this node is refused", "err", err)
	default:
		m.log.Warn("cluster: no other node reached yet", "err", err)
	}
}

// some joins at most three errors.
func some(errs []error) error {
	if len(errs) > 3 {
		errs = append(errs[:3:3], fmt.Errorf("and %d more", len(errs)-3))
	}
	return errors.Join(errs...)
}

// Update sends the node's current description to the others, without waiting for the
// next second; it does not wait until they have it. The error is [ErrTooLarge]: then
// the others keep the previous description.
func (m *Members) Update() error {
	if _, _, err := m.describe(); err != nil {
		return err
	}
	select {
	case m.poke <- struct{}{}:
	default:
	}
	return nil
}

// describe returns the current description of this node.
func (m *Members) describe() (Node, []byte, error) {
	n := m.cfg.About()
	n.Name, n.Incarnation, n.Protocol = m.cfg.Name, m.cfg.Incarnation, m.cfg.Protocol
	n.Draining = n.Draining || m.leaving.Load()
	if m.addr.IsValid() {
		n.Addr = m.addr.String()
	}
	meta, err := encode(n, m.cfg.OldestProtocol)
	return n, meta, err
}

const (
	describeEvery = time.Second
	// Between two descriptions of one node at least describeFastest passes, and more in
	// a large fleet, where each of them goes through every node.
	describeFastest = 500 * time.Millisecond
	describePerNode = 50 * time.Millisecond
	// describeTimeout bounds how long a description may take to be sent.
	describeTimeout = time.Second
)

// keepDescribed sends this node's description to the others, and logs joins and
// departures.
func (m *Members) keepDescribed(ctx context.Context) {
	tick := time.NewTicker(describeEvery)
	defer tick.Stop()
	var (
		seen = map[string]Node{}
		sent = *m.delegate.meta.Load()
		free = false // this node's Draining, as sent
		at   time.Time
		bad  string
	)
	for {
		changed := m.view.next()
		seen = m.report(seen)
		select {
		case <-changed:
			continue
		case <-tick.C:
		case <-m.poke:
		case <-ctx.Done():
			return
		}
		n, meta, err := m.describe()
		if err != nil {
			if err.Error() != bad {
				m.log.Error("cluster: the others keep an old description of this node", "err", err)
			}
			bad = err.Error()
			continue
		}
		bad = ""
		if bytes.Equal(meta, sent) {
			continue
		}
		pause := max(describeFastest, time.Duration(len(seen))*describePerNode)
		if time.Since(at) < pause && n.Draining == free {
			continue // the next tick sends it
		}
		sent, free, at = meta, n.Draining, time.Now()
		m.delegate.meta.Store(&meta)
		m.view.setSelf(n)
		if err := m.list.UpdateNode(describeTimeout); err != nil && ctx.Err() == nil {
			m.log.Debug("cluster: the others learn later how this node is", "err", err)
		}
	}
}

// report logs the joins and departures since the last call.
func (m *Members) report(seen map[string]Node) map[string]Node {
	now := m.view.others()
	for inc, n := range now {
		if _, ok := seen[inc]; !ok {
			m.log.Info("cluster: a node is here", "name", n.Name, "incarnation", inc, "addr", n.Addr, "nodes", len(now)+1)
		}
	}
	lost := false
	for inc, n := range seen {
		if _, ok := now[inc]; ok {
			continue
		}
		if n.Draining {
			m.log.Info("cluster: a node left", "name", n.Name, "incarnation", inc, "nodes", len(now)+1)
			continue
		}
		lost = true
		m.log.Warn("cluster: a node is gone", "name", n.Name, "incarnation", inc, "addr", n.Addr, "nodes", len(now)+1)
	}
	if lost && m.view.cutOff() {
		m.log.Warn("cluster: this node sees no other any more and takes itself for cut off")
	}
	return now
}

// leaveTimeout bounds how long Leave waits.
const leaveTimeout = 2 * time.Second

// Leave announces to the others that this node leaves, and returns when they have
// received it, at ctx's deadline, or after 2 s. They then call it dead at once. The
// list is updated until [Members.Close]. After an error the others notice by
// themselves, about a second after Close.
func (m *Members) Leave(ctx context.Context) error {
	m.ending.Lock()
	defer m.ending.Unlock()
	return m.leave(ctx)
}

func (m *Members) leave(ctx context.Context) error {
	if m.left || m.closed {
		return nil
	}
	m.left = true
	m.stop() // no more joining
	end := time.Now().Add(leaveTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end = d
	}
	// For the others the library does not distinguish a node that left from one that
	// died.
	m.leaving.Store(true)
	if n, meta, err := m.describe(); err == nil {
		m.delegate.meta.Store(&meta)
		m.view.setSelf(n)
		m.list.UpdateNode(max(time.Until(end)/2, time.Millisecond)) //nolint:errcheck // then they take it for dead
	}
	if err := m.list.Leave(max(time.Until(end), time.Millisecond)); err != nil {
		return fmt.Errorf("cluster: leave: the others will notice by themselves: %w", cmp.Or(ctx.Err(), err))
	}
	return nil
}

// Close leaves, if [Members.Leave] was not called, and ends everything that Start
// began. List and Alive then answer from the last state. Closing twice is allowed.
func (m *Members) Close() error {
	m.ending.Lock()
	defer m.ending.Unlock()
	if m.closed {
		return nil
	}
	if err := m.leave(context.Background()); err != nil {
		m.log.Info("cluster: left before all others knew", "err", err)
	}
	m.closed = true
	return m.shut()
}

// shut ends all goroutines and announces nothing.
func (m *Members) shut() error {
	m.stop()
	m.work.Wait()
	if err := m.list.Shutdown(); err != nil {
		return fmt.Errorf("cluster: close: %w", err)
	}
	return nil
}
