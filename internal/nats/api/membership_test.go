package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/session"
)

// relayer is a process that only relays.
type relayer struct {
	t    *testing.T
	conn *api.Conn
	ice  *ice
	stop context.CancelFunc
	done chan error
	dead bool
}

const relayPartitions = 4

func startRelay(t *testing.T, srv *natsserver.Server, o *dispatch.RelayOptions) *relayer {
	t.Helper()
	opts := options(srv, t)
	opts.Partitions = relayPartitions
	r := &relayer{t: t, ice: newIce(), done: make(chan error, 1)}
	opts.Dialer = r.ice.dial(opts.Dialer)
	conn := must.Get(api.Connect(t.Context(), opts))(t)
	r.conn = conn
	must.Do(t, conn.Streams.Provision(t.Context()))
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { r.done <- conn.Dispatch.StartRelay(ctx, o).Wait() }()
	t.Cleanup(r.leave)
	return r
}

// leave ends the relay as a node does that stops.
func (r *relayer) leave() {
	if r.dead {
		return
	}
	r.dead = true
	r.stop()
	if err := <-r.done; err != nil {
		r.t.Error(err)
	}
	must.Report(r.t, r.conn.Conn.Close())
}

// crash ends it like kill -9, without a message to anybody.
func (r *relayer) crash() {
	r.dead = true
	r.conn.Kill()
	r.stop()
	if err := <-r.done; err != nil {
		r.t.Error(err)
	}
}

// within polls ok until it returns true, in virtual time, and returns the elapsed time.
func within(t *testing.T, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		switch d := time.Since(began); {
		case ok():
			return d
		case d > limit:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// spread reports whether each partition is relayed once, and no process relays more
// than most.
func spread(most int, relays ...*relayer) func() bool {
	return func() bool {
		var all []uint32
		for _, r := range relays {
			mine := r.conn.Relays()
			if len(mine) > most {
				return false
			}
			all = append(all, mine...)
		}
		slices.Sort(all)
		return slices.Equal(all, []uint32{0, 1, 2, 3})
	}
}

// TestRelaysSpread starts, stops and kills relays over one server: the partitions spread
// over the living ones, each on one of them.
func TestRelaysSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		a := startRelay(t, srv, &dispatch.RelayOptions{Incarnation: "a"})
		if d := within(t, time.Second, "one relay has all", spread(4, a)); d > 100*time.Millisecond {
			t.Errorf("a relay that is alone waited for %v", d)
		}
		b := startRelay(t, srv, &dispatch.RelayOptions{Incarnation: "b"})
		within(t, 2*time.Second, "two relays share", spread(2, a, b))
		c := startRelay(t, srv, &dispatch.RelayOptions{Incarnation: "c"})
		within(t, 2*time.Second, "three relays share", spread(2, a, b, c))
		if d := within(t, time.Second, "it stays so", spread(2, a, b, c)); d != 0 {
			t.Errorf("it took %v", d)
		}

		b.leave()
		if d := within(t, time.Second, "two are left", spread(2, a, c)); d > 500*time.Millisecond {
			t.Errorf("the part of one who left was taken over after %v", d)
		}
		a.crash()
		if d := within(t, 5*time.Second, "one is left", spread(4, c)); d < time.Second || d > 3100*time.Millisecond {
			t.Errorf("the part of one who crashed was taken over after %v", d)
		}
		// A server restarts, or a network comes back.
		must.Do(t, c.conn.Cut())
		time.Sleep(10 * time.Second)
		within(t, time.Second, "it goes on", spread(4, c))
	})
}

// TestRelayFrozen freezes a relay between two records until another one has taken over: it
// stores at most the record in progress.
func TestRelayFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		a := startRelay(t, srv, &dispatch.RelayOptions{Incarnation: "a"})
		within(t, time.Second, "one relay has all", spread(4, a))
		b := startRelay(t, srv, &dispatch.RelayOptions{Incarnation: "b"})
		within(t, 2*time.Second, "two relays share", spread(2, a, b))

		thaw := a.ice.freeze()
		within(t, 5*time.Second, "the other one has all", func() bool { return len(b.conn.Relays()) == 4 })
		log := b.conn.Logs.Log()
		for i := range 40 {
			turns(t, log, session.Key{Tenant: session.DefaultTenant, ID: b.conn.Logs.Minter().ID(fmt.Sprintf("s%d", i))}, 3, true)
		}
		time.Sleep(time.Second)
		thaw()
		within(t, 3*time.Second, "two relays share again", spread(2, a, b))
		for i := range 20 {
			turns(t, log, session.Key{Tenant: session.DefaultTenant, ID: b.conn.Logs.Minter().ID(fmt.Sprintf("z%d", i))}, 3, true)
		}
		time.Sleep(time.Second)
		if extra := checkReaders(t, srv, b.conn); extra > 4 {
			t.Errorf("%d records are repeated, want at most one per partition", extra)
		}
	})
}

// TestRelaysTakeOver has relays come, go and die while sessions are written.
// Readers see each record once and in order, and each run has one result.
func TestRelaysTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		next := 0
		relay := func() *relayer {
			next++
			return startRelay(t, srv, &dispatch.RelayOptions{Incarnation: fmt.Sprintf("r%02d", next)})
		}
		writer := startRelay(t, srv, &dispatch.RelayOptions{Incarnation: "writer"})
		log := writer.conn.Logs.Log()
		live := []*relayer{relay(), relay()}
		n := 0
		write := func(sessions int) {
			for range sessions {
				turns(t, log, session.Key{Tenant: session.DefaultTenant, ID: writer.conn.Logs.Minter().ID(fmt.Sprintf("s%d", n))}, 2, true)
				n++
			}
		}
		for round := range 6 {
			write(10)
			switch round % 3 {
			case 0:
				live[0].leave()
				live = live[1:]
			case 1:
				live[0].crash()
				live = live[1:]
			case 2:
				live = append(live, relay(), relay())
			}
			write(10)
			write(10)
			time.Sleep(time.Duration(round) * 700 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		for _, r := range live {
			r.leave()
		}
		within(t, time.Second, "one relay has all", spread(4, writer))
		time.Sleep(time.Second)
		extra := checkReaders(t, srv, writer.conn)
		t.Logf("%d sessions, %d records repeated", n, extra)
		_, js := operatorOf(t, srv)
		s := must.Get(js.Stream(t.Context(), streams.StreamResult))(t)
		if state := s.CachedInfo().State; state.Msgs != uint64(n) || state.LastSeq != uint64(n) {
			t.Errorf("%d results, %d were stored, want %d", state.Msgs, state.LastSeq, n)
		}
	})
}

// checkReaders demands that a reader who drops repetitions gets each record once, and the
// records of each partition in order. It returns the number of repetitions.
func checkReaders(t *testing.T, srv *natsserver.Server, conn *api.Conn) (extra int) {
	t.Helper()
	n := &node{t: t, srv: srv, conn: conn}
	have, want := n.records(t)
	extra = len(have) - len(want)
	var had lineage.Cursor
	read := map[uint32][]string{}
	for _, m := range n.told(t) {
		for _, r := range m.records {
			if had.Take(&r) {
				read[r.Partition] = append(read[r.Partition], place(&r))
			}
		}
	}
	var got []string
	for _, p := range slices.Sorted(maps.Keys(read)) {
		got = append(got, read[p]...)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("lineage (-event streams +readers):\n%s", diff)
	}
	return extra
}

// TestDeadNodesRuns gives the relays a membership: the runs of a dead node are offered at
// once, not with the next sweep.
func TestDeadNodesRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		changed := make(chan struct{}, 1)
		var dead atomic.Bool
		r := startRelay(t, srv, &dispatch.RelayOptions{
			Incarnation: "a", Changed: changed, Known: func(incarnation string) (alive, known bool) { return incarnation != "dead" || !dead.Load(), true },
		})
		within(t, time.Second, "it relays", spread(4, r))
		for i := range 12 {
			turns(t, r.conn.Logs.Log(), session.Key{Tenant: session.DefaultTenant, ID: r.conn.Logs.Minter().ID(fmt.Sprintf("s%d", i))}, 1, false)
		}
		time.Sleep(45 * time.Second) // a sweep sees that their node lives
		offers := r.conn.TakeAll(t)
		time.Sleep(time.Second)
		if n := offers(); n != 0 {
			t.Fatalf("%d runs of a live node were offered", n)
		}
		dead.Store(true)
		changed <- struct{}{}
		if d := within(t, time.Second, "all are offered", func() bool { return offers() == 12 }); d > 100*time.Millisecond {
			t.Errorf("the runs were offered after %v", d)
		}
	})
}

// TestDeadRelaysRuns kills one of three nodes that relay: as soon as membership considers
// it dead its runs are offered, including the runs of its own partitions, and the others
// keep their partitions.
func TestDeadRelaysRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		var dead atomic.Bool
		var changes []chan struct{}
		relay := func(name string) *relayer {
			changed := make(chan struct{}, 1)
			changes = append(changes, changed)
			return startRelay(t, srv, &dispatch.RelayOptions{
				Incarnation: name, Changed: changed, Known: func(incarnation string) (alive, known bool) { return incarnation != "dead" || !dead.Load(), true },
			})
		}
		a, b := relay("m"), relay("n")
		victim := relay("dead")
		within(t, 5*time.Second, "three relays share", func() bool { return len(victim.conn.Relays()) > 0 && spread(2, a, b, victim)() })
		for i := range 40 {
			turns(t, a.conn.Logs.Log(), session.Key{Tenant: session.DefaultTenant, ID: a.conn.Logs.Minter().ID(fmt.Sprintf("s%d", i))}, 1, false)
		}
		offers := a.conn.TakeAll(t)
		time.Sleep(time.Second)
		before := [][]uint32{a.conn.Relays(), b.conn.Relays()}
		// Just after a beat it is missed last.
		beats := listener(t, srv, "rath.node.relay.>")
		for {
			if m := <-beats; strings.Contains(m, `"relay":"dead"`) {
				break
			}
		}
		victim.crash()
		time.Sleep(800 * time.Millisecond)
		if n := offers(); n != 0 {
			t.Fatalf("%d runs of a live node were offered", n)
		}
		dead.Store(true)
		for _, c := range changes {
			c <- struct{}{}
		}
		if d := within(t, 5*time.Second, "all are offered", func() bool { return offers() >= 40 }); d > 50*time.Millisecond {
			t.Errorf("the runs were offered after %v", d)
		}
		for i, r := range []*relayer{a, b} {
			now := r.conn.Relays()
			if moved := slices.ContainsFunc(before[i], func(p uint32) bool { return !slices.Contains(now, p) }); moved || len(now) != 2 {
				t.Errorf("a relay had the partitions %v and has %v", before[i], now)
			}
		}
	})
}

// listener subscribes to a subject as an operator.
func listener(t *testing.T, srv *natsserver.Server, subject string) <-chan string {
	t.Helper()
	nc, _ := operatorOf(t, srv)
	heard := make(chan string, 1<<10)
	must.Get(nc.Subscribe(subject, func(m *nats.Msg) { heard <- string(m.Data) }))(t)
	must.Do(t, nc.Flush())
	return heard
}

// TestRelayedElsewhere asks a process that relays nothing for the watermark of the lineage.
func TestRelayedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		a := startRelay(t, srv, nil)
		within(t, time.Second, "one relay has all", spread(4, a))
		opts := options(srv, t)
		opts.Partitions = relayPartitions
		other := must.Get(api.Connect(t.Context(), opts))(t)
		n := &node{t: t, srv: srv, conn: other}
		for i := range 20 {
			turns(t, other.Logs.Log(), session.Key{Tenant: session.DefaultTenant, ID: other.Logs.Minter().ID(fmt.Sprintf("s%d", i))}, 5, true)
			must.Do(t, other.Projections.WaitCaughtUp(t.Context()))
			if have, want := n.records(t); len(have) != len(want) {
				t.Fatalf("%d of %d records are published", len(have), len(want))
			}
		}
		a.leave()
		if err := other.Projections.WaitCaughtUp(t.Context()); err != nil {
			t.Errorf("with nobody who relays: %v", err)
		}
		must.Report(t, other.Conn.Close())
	})
}

// TestRelayDenied gives a relay credentials that may not reach other relays: it reports the
// missing permissions.
func TestRelayDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		r := startRelay(t, srv, nil)
		r.leave()
		opts := options(srv, t)
		opts.Dialer = deaf(opts.Dialer, "SUB rath.node.relay.")
		c, err := api.Connect(t.Context(), opts)
		must.Do(t, err)
		defer c.Conn.Close()
		err = c.Dispatch.StartRelay(t.Context(), nil).Wait()
		if err == nil || !strings.Contains(err.Error(), "permission") || !strings.Contains(err.Error(), "rath.node.") {
			t.Errorf("error %v, want one that names the permission", err)
		}
	})
}

// spokesmen are the processes that report in a second that they relay, or could.
func spokesmen(t *testing.T, beats <-chan string) (said int, names map[string]bool) {
	t.Helper()
	for len(beats) > 0 {
		<-beats
	}
	time.Sleep(time.Second)
	names = map[string]bool{}
	for len(beats) > 0 {
		var b struct{ Relay string }
		must.Do(t, json.Unmarshal([]byte(<-beats), &b))
		said++
		names[b.Relay] = true
	}
	return said, names
}

// TestRosterOfMany has many more processes than partitions: the processes that hold one
// send heartbeats, and so do two spares, which take over as soon as with few processes. The
// others are silent until they are needed, even if all speakers die at once.
func TestRosterOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, speak = 30, relayPartitions + 2
		srv := natstest.Start(t, nil)
		relays := map[string]*relayer{}
		for i := range many {
			name := fmt.Sprintf("r%02d", i)
			relays[name] = startRelay(t, srv, &dispatch.RelayOptions{Incarnation: name})
		}
		all := func() []*relayer { return slices.Collect(maps.Values(relays)) }
		beats := listener(t, srv, "rath.node.relay.>")
		settled := func(what string) map[string]bool {
			t.Helper()
			within(t, 10*time.Second, what+": each partition on a process of its own", spread(1, all()...))
			var names map[string]bool
			within(t, 10*time.Second, what+": few speak", func() bool {
				said, now := spokesmen(t, beats)
				names = now
				return said == 2*speak && len(now) == speak
			})
			for name, r := range relays {
				if len(r.conn.Relays()) > 0 && !names[name] {
					t.Errorf("%s: %s has %v and says nothing", what, name, r.conn.Relays())
				}
			}
			return names
		}
		settled("at the start")
		crash := func(name string) {
			relays[name].crash()
			delete(relays, name)
		}
		for range 3 {
			for name, r := range relays {
				if len(r.conn.Relays()) > 0 {
					crash(name)
					break
				}
			}
			if d := within(t, 5*time.Second, "another one has the partition", spread(1, all()...)); d > 3100*time.Millisecond {
				t.Errorf("the part of one who crashed was taken over after %v", d)
			}
			settled("after a crash")
		}
		for name := range settled("before all who speak crash") {
			crash(name)
		}
		if d := within(t, 5*time.Second, "others have the partitions", spread(relayPartitions, all()...)); d > 3500*time.Millisecond {
			t.Errorf("the part of all who spoke was taken over after %v", d)
		}
		settled("after all who spoke have crashed")
		for name, r := range relays {
			if len(r.conn.Relays()) > 0 {
				r.leave()
				delete(relays, name)
				break
			}
		}
		if d := within(t, time.Second, "another one has the partition", spread(relayPartitions, all()...)); d > 500*time.Millisecond {
			t.Errorf("the part of one who left was taken over after %v", d)
		}
		settled("after one has left")
	})
}

// TestTwoGossips has two relays on the same streams whose gossips do not know each other:
// both report it after half a minute, and stop when they share one. A relay that died or
// has no gossip is no stranger.
func TestTwoGossips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		var joined atomic.Bool
		reports := map[string]*atomic.Pointer[[]string]{}
		relay := func(name string) *relayer {
			last := &atomic.Pointer[[]string]{}
			reports[name] = last
			return startRelay(t, srv, &dispatch.RelayOptions{
				Incarnation: name, Known: func(id string) (alive, known bool) { return id == name || joined.Load(), true },
				Strangers: func(all []string) { last.Store(&all) },
			})
		}
		reported := func(name string) []string {
			if p := reports[name].Load(); p != nil {
				return *p
			}
			return nil
		}
		a := relay("a")
		startRelay(t, srv, &dispatch.RelayOptions{Incarnation: "without"})
		within(t, 5*time.Second, "two relays share", func() bool { return len(a.conn.Relays()) == 2 })
		died := relay("died")
		time.Sleep(5 * time.Second)
		died.crash()
		time.Sleep(40 * time.Second)
		if got := reported("a"); len(got) > 0 {
			t.Errorf("without another gossip: %v", got)
		}
		relay("b")
		time.Sleep(20 * time.Second)
		if got := reported("a"); len(got) > 0 {
			t.Errorf("at the start: %v", got)
		}
		within(t, 15*time.Second, "each reports the other", func() bool {
			return slices.Equal(reported("a"), []string{"b"}) && slices.Equal(reported("b"), []string{"a"})
		})
		joined.Store(true)
		within(t, 2*time.Second, "they share a gossip", func() bool { return len(reported("a"))+len(reported("b")) == 0 })
	})
}
