//go:build e2e && linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/testkit/fleet"
)

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func between(random *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(random.Int64N(int64(to-from)))
}

func one(random *rand.Rand, ps []*fleet.Process) *fleet.Process { return ps[random.IntN(len(ps))] }

func (n *nemesis) workers() []*fleet.Process {
	return append(slices.Clone(n.w.f.Nodes()), n.w.f.Routers()...)
}

// kill kills processes and starts them again after a while.
func (n *nemesis) kill(ctx context.Context, after time.Duration, ps ...*fleet.Process) error {
	release := n.hold(ps...)
	var errs []error
	for _, p := range ps {
		if err := p.Kill(); !errors.Is(err, fleet.ErrNotRunning) {
			errs = append(errs, err)
		}
	}
	sleep(ctx, after)
	return errors.Join(append(errs, release())...)
}

func (n *nemesis) killNodes(ctx context.Context, random *rand.Rand) error {
	ps := n.workers()
	random.Shuffle(len(ps), func(i, j int) { ps[i], ps[j] = ps[j], ps[i] })
	return n.kill(ctx, between(random, 0, 3*time.Second), ps[:1+random.IntN(len(ps))]...)
}

func (n *nemesis) killServer(ctx context.Context, random *rand.Rand) error {
	return n.kill(ctx, between(random, 0, 5*time.Second), one(random, n.w.f.Servers()))
}

func (n *nemesis) killServers(ctx context.Context, random *rand.Rand) error {
	return n.kill(ctx, between(random, 0, 2*time.Second), n.w.f.Servers()...)
}

func (n *nemesis) killLeader(ctx context.Context, random *rand.Rand) error {
	victim := n.leader(ctx, fmt.Sprintf("EV_1_%d", random.IntN(4)))
	if victim == nil {
		victim = one(random, n.w.f.Servers())
	}
	return n.kill(ctx, between(random, 0, 5*time.Second), victim)
}

// leader returns the server that leads a stream, nil if no server reports one.
func (n *nemesis) leader(ctx context.Context, stream string) *fleet.Process {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s, err := n.js.Stream(ctx, stream)
	if err != nil || s.CachedInfo().Cluster == nil {
		return nil
	}
	for _, p := range n.w.f.Servers() {
		if p.Name == s.CachedInfo().Cluster.Leader {
			return p
		}
	}
	return nil
}

func (n *nemesis) freeze(ctx context.Context, d time.Duration, p *fleet.Process) error {
	if err := p.Freeze(); err != nil {
		return err
	}
	sleep(ctx, d)
	return p.Thaw()
}

func (n *nemesis) freezeNode(ctx context.Context, random *rand.Rand) error {
	return n.freeze(ctx, between(random, 8*time.Second, 13*time.Second), one(random, n.workers()))
}

func (n *nemesis) freezeServer(ctx context.Context, random *rand.Rand) error {
	return n.freeze(ctx, between(random, 2*time.Second, 9*time.Second), one(random, n.w.f.Servers()))
}

// way is a direction of the network.
type way struct{ from, to *fleet.Process }

// cut cuts directions for a while.
func (n *nemesis) cut(ctx context.Context, d time.Duration, ways ...way) error {
	var errs []error
	for _, w := range ways {
		errs = append(errs, n.w.f.Cut(w.from, w.to))
	}
	sleep(ctx, d)
	for _, w := range ways {
		errs = append(errs, n.w.f.Heal(w.from, w.to))
	}
	return errors.Join(errs...)
}

func (n *nemesis) cutNode(ctx context.Context, random *rand.Rand) error {
	p := one(random, n.workers())
	var ways []way
	for _, s := range n.w.f.Servers() {
		ways = append(ways, way{p, s}, way{s, p})
	}
	return n.cut(ctx, between(random, time.Second, 12*time.Second), ways...)
}

func (n *nemesis) cutNodeOneWay(ctx context.Context, random *rand.Rand) error {
	p, out := one(random, n.workers()), random.IntN(2) == 0
	var ways []way
	for _, s := range n.w.f.Servers() {
		if out {
			ways = append(ways, way{p, s})
		} else {
			ways = append(ways, way{s, p})
		}
	}
	return n.cut(ctx, between(random, time.Second, 12*time.Second), ways...)
}

func (n *nemesis) cutServer(ctx context.Context, random *rand.Rand) error {
	p, kind := one(random, n.w.f.Servers()), random.IntN(3)
	var ways []way
	for _, s := range n.w.f.Servers() {
		if s == p {
			continue
		}
		if kind != 1 {
			ways = append(ways, way{p, s})
		}
		if kind != 2 {
			ways = append(ways, way{s, p})
		}
	}
	return n.cut(ctx, between(random, time.Second, 10*time.Second), ways...)
}

// cutNodes separates one node from the others, but not from NATS.
func (n *nemesis) cutNodes(ctx context.Context, random *rand.Rand) error {
	p, both := one(random, n.workers()), random.IntN(2) == 0
	var ways []way
	for _, other := range n.workers() {
		if other != p {
			ways = append(ways, way{p, other})
			if both {
				ways = append(ways, way{other, p})
			}
		}
	}
	return n.cut(ctx, between(random, time.Second, 8*time.Second), ways...)
}

// losePackets loses some of the packets that reach some processes.
func (n *nemesis) losePackets(ctx context.Context, random *rand.Rand) error {
	all := n.w.f.All()
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:1+random.IntN(len(all))]
	var errs []error
	for _, p := range all {
		errs = append(errs, n.w.f.Lose(p, 0.01+0.3*random.Float64()))
	}
	sleep(ctx, between(random, 2*time.Second, 10*time.Second))
	for _, p := range all {
		errs = append(errs, n.w.f.Lose(p, 0))
	}
	return errors.Join(errs...)
}

// flap repeatedly freezes and thaws a node.
func (n *nemesis) flap(ctx context.Context, random *rand.Rand) error {
	p := one(random, n.workers())
	for range 3 + random.IntN(4) {
		if err := n.freeze(ctx, between(random, 300*time.Millisecond, 2*time.Second), p); err != nil {
			return err
		}
		sleep(ctx, between(random, 100*time.Millisecond, time.Second))
	}
	return nil
}

// rollNodes restarts one node after the other in the orderly way.
func (n *nemesis) rollNodes(ctx context.Context, _ *rand.Rand) error {
	for _, p := range n.workers() {
		if err := n.roll(ctx, p, 40*time.Second); err != nil {
			return err
		}
	}
	return nil
}

// upgradeNodes moves nodes and routers one by one to the next release, or back,
// with another revision of the workflows each time; some may stay behind until
// another fault like this one, so that releases are mixed for longer.
func (n *nemesis) upgradeNodes(ctx context.Context, random *rand.Rand) error {
	ps, to := n.workers(), n.next
	ahead := 0
	for _, p := range ps {
		if p.Uses() == n.next {
			ahead++
		}
	}
	if 2*ahead > len(ps) {
		to = "" // back
	}
	random.Shuffle(len(ps), func(i, j int) { ps[i], ps[j] = ps[j], ps[i] })
	return n.upgrade(ctx, to, ps[random.IntN(len(ps)):]...)
}

// upgrade moves processes one by one to a program file, "" for this release's.
func (n *nemesis) upgrade(ctx context.Context, to string, ps ...*fleet.Process) error {
	n.mu.Lock()
	n.revision++
	revision := n.revision
	n.mu.Unlock()
	for _, p := range ps {
		p.Use(to)
		p.Set(envRevision, fmt.Sprint(revision))
		if err := n.roll(ctx, p, 40*time.Second); err != nil {
			return err
		}
	}
	return nil
}

func (n *nemesis) rollServers(ctx context.Context, _ *rand.Rand) error {
	for _, p := range n.w.f.Servers() {
		// A NATS server that catches up with the others may not end in time. It
		// gives up then, as its manager would make it.
		err := n.roll(ctx, p, 30*time.Second)
		if _, late := errors.AsType[*exec.ExitError](err); err != nil && !late {
			return err
		}
		ready, cancel := context.WithTimeout(ctx, 20*time.Second)
		_ = n.w.f.ServersUp(ready) // after an error, too, the next server is stopped
		cancel()
	}
	return nil
}

func (n *nemesis) roll(ctx context.Context, p *fleet.Process, patience time.Duration) error {
	release := n.hold(p)
	ending, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := p.Drain(ending)
	if ctx.Err() != nil || endedBefore(err) {
		err = nil // it was killed because the time is over
	}
	if err := errors.Join(err, release()); err != nil {
		return err
	}
	up, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := p.Up(up); err != nil && ctx.Err() == nil && !errors.Is(err, fleet.ErrNotRunning) {
		return err
	}
	return nil
}

// endedBefore reports whether a process ended before it could do so in the orderly way: a
// task ended its node, or the node had just been started and did not catch the signal yet.
func endedBefore(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return exit.ExitCode() == poisonExit || ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}

// fillDisk fills the disk of a server. With space again it has to be restarted: it
// stops storing for good after a failure.
func (n *nemesis) fillDisk(ctx context.Context, random *rand.Rand) error {
	p := one(random, n.w.f.Servers())
	if err := n.w.f.Fill(p); err != nil {
		return err
	}
	sleep(ctx, between(random, 2*time.Second, 6*time.Second))
	return errors.Join(n.w.f.Free(p), n.kill(ctx, 0, p))
}

func (n *nemesis) sicken(ctx context.Context, random *rand.Rand) error {
	n.w.model.sick.Store(&sicknesses[random.IntN(len(sicknesses))])
	sleep(ctx, between(random, time.Second, 6*time.Second))
	n.w.model.sick.Store(nil)
	return nil
}

// stallRuns stops the goroutines of a node's runs at the end of a call, past every timeout,
// while the node and the actors of their sessions live on. When these runs resume, they do
// not know the decisions made about them in the meantime.
func (n *nemesis) stallRuns(ctx context.Context, random *rand.Rand) error {
	name := n.w.path("stalls", one(random, n.w.f.Nodes()).Name)
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		return err
	}
	sleep(ctx, between(random, time.Second, 12*time.Second))
	return os.Remove(name)
}

func (n *nemesis) killTool(ctx context.Context, random *rand.Rand) error {
	return n.kill(ctx, between(random, 0, 3*time.Second), one(random, n.w.f.Others()))
}

// purgeSnap removes the snapshots of sessions and the stored open sets of the relays: both
// are derived from the logs.
func (n *nemesis) purgeSnap(ctx context.Context, _ *rand.Rand) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	s, err := n.js.Stream(ctx, "SNAP")
	if err == nil {
		err = s.Purge(ctx)
	}
	if err != nil && !n.away(err) {
		return err
	}
	return nil
}

// away reports whether an error only means that NATS is unavailable at the moment.
func (n *nemesis) away(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, nats.ErrDisconnected) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrReconnectBufExceeded) ||
		errors.As(err, &api) && api.Code >= 500
}

// see keeps some of the dispatches that relays send.
func (n *nemesis) see(m *nats.Msg) {
	if m.Header.Get(again) != "" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	const most = 500
	c := &nats.Msg{Subject: m.Subject, Data: slices.Clone(m.Data), Header: nats.Header{again: {"yes"}}}
	if n.worked++; len(n.work) < most {
		n.work = append(n.work, c)
	} else {
		n.work[n.worked%most] = c
	}
}

// again marks the messages that the nemesis publishes.
const again = "Again"

// repeatDispatches sends old dispatches again, some of them to other nodes.
func (n *nemesis) repeatDispatches(_ context.Context, random *rand.Rand) error {
	n.mu.Lock()
	var old []*nats.Msg
	for range min(20, len(n.work)) {
		m := *n.work[random.IntN(len(n.work))]
		m.Subject = n.work[random.IntN(len(n.work))].Subject
		m.Reply = nats.NewInbox()
		old = append(old, &m)
	}
	n.mu.Unlock()
	for _, m := range old {
		if err := n.nc.PublishMsg(m); err != nil && !n.away(err) {
			return err
		}
	}
	return nil
}

func (n *nemesis) repeatTasks(ctx context.Context, random *rand.Rand) error {
	for range 5 {
		n.w.load.mu.Lock()
		var t *task
		if order := n.w.load.order; len(order) > 0 {
			t = n.w.load.tasks[order[random.IntN(len(order))]]
		}
		n.w.load.mu.Unlock()
		if t != nil {
			n.w.load.submit(ctx, t)
		}
	}
	return nil
}
