package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
)

var testKey = Key("0123456789abcdef0123456789abcdef")

// fleet holds the nodes of one test, in one bubble.
type fleet struct {
	t     *testing.T
	net   *network
	nodes map[string]*member
	logs  *logged
}

// member is a node with its address and its description.
type member struct {
	*Members
	addr  string
	about atomic.Pointer[Node]
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, net: newNetwork(1), nodes: map[string]*member{}, logs: &logged{}}
	t.Cleanup(func() {
		for _, m := range f.nodes {
			must.Report(t, m.Close())
		}
		// The library's goroutines end within its timeouts; time stops once the
		// bubble's first goroutine has ended.
		time.Sleep(10 * time.Second)
	})
	return f
}

func addrOf(n int) string { return fmt.Sprintf("10.0.%d.%d:7946", n/250, n%250+1) }

// config returns the configuration of a node that finds the others through the name
// "fleet".
func (f *fleet) config(n int) Config {
	addr := addrOf(n)
	return Config{
		Name: fmt.Sprintf("node-%d", n), Incarnation: fmt.Sprintf("node-%d-a", n), Bind: addr, Join: []string{"fleet"},
		Key: testKey, Protocol: 1, Logger: newLogger(f.logs),
		resolve: f.resolve,
	}
}

// resolve returns the addresses in use, as a headless service does.
func (f *fleet) resolve(_ context.Context, host string) ([]netip.Addr, error) {
	if host != "fleet" {
		return nil, fmt.Errorf("lookup %s: no such host", host)
	}
	f.net.mu.Lock()
	defer f.net.mu.Unlock()
	var out []netip.Addr
	for a := range f.net.ports {
		out = append(out, netip.MustParseAddrPort(a).Addr())
	}
	return out, nil
}

// try starts a node at the address that it binds to.
func (f *fleet) try(cfg Config) (*member, error) {
	m := &member{addr: cfg.Bind}
	m.about.Store(&Node{Pools: []string{"default"}, Slots: 4, FreeSlots: 4})
	if cfg.About == nil {
		cfg.About = func() Node { return *m.about.Load() }
	}
	cfg.transport = f.net.attach(cfg.Bind)
	var err error
	if m.Members, err = Start(f.t.Context(), cfg); err != nil {
		f.net.crash(cfg.Bind)
		return nil, err
	}
	f.nodes[cfg.Incarnation] = m
	return m, nil
}

func (f *fleet) start(cfg Config) *member {
	f.t.Helper()
	m := must.Get(f.try(cfg))(f.t)
	return m
}

// upTo starts nodes 0 to n-1 at the same time and waits until all of them see each
// other.
func (f *fleet) upTo(n int) []*member {
	f.t.Helper()
	out := make([]*member, n)
	for i := range n {
		out[i] = f.start(f.config(i))
	}
	f.see(10*time.Second, out, out)
	return out
}

// crash kills a node without an announcement.
func (f *fleet) crash(m *member) {
	f.net.crash(m.addr)
	delete(f.nodes, m.cfg.Incarnation)
	m.shut()
}

// see waits until each of some nodes has exactly the given ones in its list and returns
// how long it took.
func (f *fleet) see(within time.Duration, who, whom []*member) time.Duration {
	f.t.Helper()
	var want []string
	for _, m := range whom {
		want = append(want, m.cfg.Incarnation)
	}
	slices.Sort(want)
	began := time.Now()
	for _, m := range who {
		for {
			changed := m.Changed()
			var got []string
			for _, n := range m.List() {
				got = append(got, n.Incarnation)
			}
			slices.Sort(got)
			if slices.Equal(got, want) {
				break
			}
			left := within - time.Since(began)
			if left <= 0 {
				f.t.Fatalf("%s sees %v after %v, want %v\n%s", m.cfg.Incarnation, got, within, want, f.logs)
			}
			select {
			case <-changed:
			case <-time.After(left):
			}
		}
	}
	took := time.Since(began)
	synctest.Wait() // for the log lines about it
	return took
}

// logged collects log lines.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func newLogger(l *logged) *slog.Logger { return slog.New(l) }

func (l *logged) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *logged) WithGroup(string) slog.Handler                    { return l }

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// has finds a line that contains all parts.
func (l *logged) has(parts ...string) bool {
	return slices.ContainsFunc(strings.Split(l.String(), "\n"), func(line string) bool {
		return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) })
	})
}

func TestJoinDescribeLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		nodes := f.upTo(3)
		a, b, c := nodes[0], nodes[1], nodes[2]
		time.Sleep(grace)
		if a.Err() != nil {
			t.Errorf("joined with %v", a.Err())
		}
		want := Node{
			Name: "node-1", Incarnation: "node-1-a", Addr: addrOf(1), Protocol: 1, Pools: []string{"default"}, Slots: 4, FreeSlots: 4,
		}
		if got := a.List()[1]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("seen as %+v, want %+v", got, want)
		}

		// A node's description reaches the others, with or without Update.
		b.about.Store(&Node{Pools: []string{"gpu", "default"}, Slots: 4, FreeSlots: 1, Isolation: "kernel", Version: "v1.2.3"})
		must.Do(t, b.Update())
		f.until(time.Second, a, func() bool { n := a.List()[1]; return n.FreeSlots == 1 && n.Isolation == "kernel" })
		if got := a.List()[1].Pools; !slices.Equal(got, []string{"default", "gpu"}) {
			t.Errorf("pools are %v", got)
		}
		b.about.Store(&Node{Pools: []string{"default"}, Slots: 4, FreeSlots: 3})
		f.until(3*time.Second, c, func() bool { return c.List()[1].FreeSlots == 3 })
		b.about.Store(&Node{Pools: []string{"default"}, Slots: 4, Draining: true})
		b.Update()
		f.until(time.Second, c, func() bool { return c.List()[1].Draining })

		// A node that leaves is dead at once, and marked as having left.
		must.Report(t, c.Leave(t.Context()))
		if took := f.see(time.Second, nodes[:2], nodes[:2]); took > 500*time.Millisecond {
			t.Errorf("a node that left was in the list for %v more", took)
		}
		must.Report(t, c.Close())
		if a.Alive("node-2-a") {
			t.Error("a node that left is said to live")
		}
		time.Sleep(time.Minute)
		f.see(0, nodes[:2], nodes[:2])
		if !f.logs.has("INFO", "a node left", "name=node-2") || f.logs.has("a node is gone") {
			t.Errorf("logged:\n%s", f.logs)
		}
	})
}

// until waits for a change of a node's list that makes ok true.
func (f *fleet) until(within time.Duration, m *member, ok func() bool) {
	f.t.Helper()
	end := time.After(within)
	for {
		changed := m.Changed()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-end:
			f.t.Fatalf("not within %v; %s sees %+v", within, m.cfg.Incarnation, m.List())
		}
	}
}

func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		nodes := f.upTo(3)
		time.Sleep(grace)
		f.crash(nodes[2])
		took := f.see(3*time.Second, nodes[:2], nodes[:2])
		t.Logf("seen dead after %v", took)
		if alive, known := nodes[0].Known("node-2-a"); alive || !known {
			t.Errorf("a dead node: alive %v, known %v", alive, known)
		}
		if !f.logs.has("WARN", "a node is gone", "name=node-2") {
			t.Errorf("logged:\n%s", f.logs)
		}

		// The pod is back as another incarnation, at another address.
		cfg := f.config(7)
		cfg.Name, cfg.Incarnation = "node-2", "node-2-b"
		again := f.start(cfg)
		all := []*member{nodes[0], nodes[1], again}
		f.see(2*time.Second, all, all)
		if nodes[0].Alive("node-2-a") || !nodes[0].Alive("node-2-b") {
			t.Error("the dead incarnation and the live one are mixed up")
		}
	})
}

// A partition longer than the time in which gossip still goes to the dead heals by
// joining again, and the same incarnations live again.
func TestPartitionHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		nodes := f.upTo(5)
		time.Sleep(grace)
		f.net.partition(addrOf(0), addrOf(1))
		f.see(10*time.Second, nodes[:2], nodes[:2])
		f.see(10*time.Second, nodes[2:], nodes[2:])
		if nodes[0].Alive("node-3-a") || nodes[3].Alive("node-0-a") {
			t.Error("the other side of a partition is said to live")
		}
		time.Sleep(2 * time.Minute)
		f.net.heal()
		took := f.see(RejoinEvery+10*time.Second, nodes, nodes)
		t.Logf("healed after %v", took)
		if !nodes[0].Alive("node-3-a") {
			t.Error("a node that came back is said to be dead")
		}
	})
}

// A node that is cut off from all others cannot determine deaths.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		nodes := f.upTo(3)
		time.Sleep(grace)
		f.net.partition(addrOf(0))
		f.see(20*time.Second, nodes[:1], nodes[:1])
		f.see(10*time.Second, nodes[1:], nodes[1:])
		time.Sleep(10 * time.Second) // it tries to join
		for _, inc := range []string{"node-1-a", "node-2-a", "stranger"} {
			if alive, known := nodes[0].Known(inc); known || alive || !nodes[0].Alive(inc) {
				t.Errorf("cut off, it says of %s: alive %v, known %v", inc, alive, known)
			}
		}
		if nodes[1].Alive("node-0-a") || nodes[1].Alive("stranger") {
			t.Error("the majority does not know which nodes are dead")
		}
		if nodes[1].Err() != nil || nodes[0].Err() == nil {
			t.Errorf("errors: cut off %v, others %v", nodes[0].Err(), nodes[1].Err())
		}
		f.net.heal()
		f.see(RejoinEvery, nodes, nodes)
		if alive, known := nodes[0].Known("stranger"); alive || !known {
			t.Errorf("together again: alive %v, known %v", alive, known)
		}
	})
}

// Of two nodes, the remaining one calls the other dead; and a fleet that drains down to
// one node is not cut off.
func TestLastOneKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		nodes := f.upTo(4)
		time.Sleep(grace)
		nodes[3].Close()
		nodes[2].Close()
		f.see(2*time.Second, nodes[:2], nodes[:2])
		f.crash(nodes[1])
		f.see(3*time.Second, nodes[:1], nodes[:1])
		for _, inc := range []string{"node-1-a", "node-2-a", "stranger"} {
			if nodes[0].Alive(inc) {
				t.Errorf("%s is said to live", inc)
			}
		}
	})
}

// Until a node has met others it reports no deaths.
func TestKnowsNothingAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		var fail atomic.Bool
		fail.Store(true)
		cfg := f.config(0)
		cfg.resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			if fail.Load() {
				return nil, fmt.Errorf("lookup %s: no such host", host)
			}
			return f.resolve(ctx, host)
		}
		a := f.start(cfg) // an unresolved name is no error
		time.Sleep(2 * time.Minute)
		if alive, known := a.Known("stranger"); known || alive || !a.Alive("stranger") {
			t.Errorf("alone and lost: alive %v, known %v", alive, known)
		}
		if alive, known := a.Known("node-0-a"); !alive || !known {
			t.Errorf("itself: alive %v, known %v", alive, known)
		}
		if a.Err() == nil || !strings.Contains(a.Err().Error(), "no such host") || errors.Is(a.Err(), ErrRefused) {
			t.Errorf("the error is %v", a.Err())
		}
		// Another node finds this one.
		other := f.start(f.config(1))
		both := []*member{a, other}
		f.see(10*time.Second, both, both)
		time.Sleep(grace)
		fail.Store(false)
		if a.Alive("stranger") {
			t.Error("among others, a stranger is said to live")
		}

		// A node that finds only itself is alone, after a while.
		g := newFleet(t)
		b := g.start(g.config(9))
		if alive, known := b.Known("stranger"); alive || known {
			t.Errorf("at the start: alive %v, known %v", alive, known)
		}
		time.Sleep(grace + time.Second)
		if b.Alive("stranger") || b.Err() != nil {
			t.Errorf("alone: a stranger lives, or error %v", b.Err())
		}
	})
}

// The name of the fleet does not resolve at first; then it does.
func TestResolvesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		first := f.start(f.config(0))
		began := time.Now()
		cfg := f.config(1)
		cfg.resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			if time.Since(began) < 20*time.Second {
				return nil, fmt.Errorf("lookup %s: server misbehaving", host)
			}
			return f.resolve(ctx, host)
		}
		first.cfg.resolve = cfg.resolve
		second := f.start(cfg)
		both := []*member{first, second}
		took := f.see(20*time.Second+2*lastRetry, both, both)
		if took < 19*time.Second {
			t.Errorf("joined after %v, before the name resolved", took)
		}
		if !f.logs.has("WARN", "no other node reached yet", "server misbehaving") {
			t.Errorf("logged:\n%s", f.logs)
		}
	})
}

// Nodes join and leave every two seconds, under packet loss: the permanent nodes always
// see each other, and in the end the lists are right.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.net.set(func() { f.net.loss = 0.1 })
		nodes := f.upTo(3)
		falls := 0
		stable := func() {
			for _, m := range nodes {
				for _, o := range nodes {
					if _, ok := m.view.others()[o.cfg.Incarnation]; !ok && o != m {
						falls++
					}
				}
			}
		}
		for i := range 30 {
			cfg := f.config(3)
			cfg.Incarnation = fmt.Sprintf("node-3-%d", i)
			m := f.start(cfg)
			time.Sleep(2 * time.Second)
			stable()
			if i%2 == 0 {
				f.crash(m)
			} else {
				m.Close()
				delete(f.nodes, cfg.Incarnation)
				f.net.crash(m.addr)
			}
			time.Sleep(2 * time.Second)
			stable()
		}
		if falls > 0 {
			t.Errorf("%d looks at nodes that stayed did not find one", falls)
		}
		f.see(5*time.Second, nodes, nodes)
		for i := range 30 {
			if nodes[0].Alive(fmt.Sprintf("node-3-%d", i)) {
				t.Errorf("node-3-%d is said to live", i)
			}
		}
	})
}

func TestTwentyNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.net.set(func() { f.net.loss = 0.02 })
		nodes := f.upTo(20)
		time.Sleep(time.Minute)
		f.see(0, nodes, nodes)
		for _, m := range nodes[15:] {
			f.crash(m)
		}
		took := f.see(10*time.Second, nodes[:15], nodes[:15])
		t.Logf("five of twenty seen dead by all after %v", took)
		nodes[3].about.Store(&Node{Pools: []string{"default"}, Slots: 4, FreeSlots: 2})
		nodes[3].Update()
		// Gossip brings it to nearly all within a second; a node that missed every
		// packet of it gets it when two nodes exchange their full lists.
		f.until(2*pushPullEvery, nodes[9], func() bool {
			return slices.ContainsFunc(nodes[9].List(), func(n Node) bool { return n.Name == "node-3" && n.FreeSlots == 2 })
		})
	})
}

// A node that was cut off for less than gossipToDead is back at once.
func TestShortPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		nodes := f.upTo(3)
		time.Sleep(grace)
		f.net.partition(addrOf(2))
		f.see(10*time.Second, nodes[:2], nodes[:2])
		time.Sleep(gossipToDead / 2)
		f.net.heal()
		took := f.see(5*time.Second, nodes, nodes)
		t.Logf("back after %v", took)
	})
}

func TestTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		many := make([]string, 40)
		for i := range many {
			many[i] = fmt.Sprintf("a-pool-with-a-long-name-%02d", i)
		}
		cfg := f.config(0)
		cfg.About = func() Node { return Node{Pools: many} }
		_, err := f.try(cfg)
		if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "512") || !strings.Contains(err.Error(), "40") {
			t.Errorf("start: %v", err)
		}

		nodes := f.upTo(2)
		nodes[0].about.Store(&Node{Pools: many})
		if err := nodes[0].Update(); !errors.Is(err, ErrTooLarge) {
			t.Errorf("update: %v", err)
		}
		time.Sleep(5 * time.Second)
		if got := nodes[1].List()[0]; got.Slots != 4 {
			t.Errorf("the others do not keep what they knew: %+v", got)
		}
		if !f.logs.has("ERROR", "old description") {
			t.Errorf("logged:\n%s", f.logs)
		}
		nodes[0].about.Store(&Node{Slots: 9})
		f.until(3*time.Second, nodes[1], func() bool { return nodes[1].List()[0].Slots == 9 })
	})
}

func TestBadConfig(t *testing.T) {
	good := Config{Name: "n", Incarnation: "n-1", Bind: "127.0.0.1:0", Key: testKey, Protocol: 1}
	for name, tc := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"no key":         {func(c *Config) { c.Key = nil }, "openssl rand"},
		"short key":      {func(c *Config) { c.Key = Key("short") }, "5 bytes"},
		"bad old key":    {func(c *Config) { c.AcceptKeys = []Key{Key("x")} }, "1 bytes"},
		"no name":        {func(c *Config) { c.Name = "" }, "name"},
		"bad id":         {func(c *Config) { c.Incarnation = "a b" }, "incarnation"},
		"host name":      {func(c *Config) { c.Bind = "localhost:1" }, "IP"},
		"all interfaces": {func(c *Config) { c.Bind = "0.0.0.0:7946" }, "status.podIP"},
		"advertise all":  {func(c *Config) { c.Advertise = "::" }, "status.podIP"},
		"advertise name": {func(c *Config) { c.Advertise = "pod" }, "advertise"},
		"join port":      {func(c *Config) { c.Join = []string{"host:99999"} }, "host:99999"},
		"join empty":     {func(c *Config) { c.Join = []string{""} }, "join"},
		"join with name": {func(c *Config) { c.Join = []string{"name/host:1"} }, "name/host"},
		"label":          {func(c *Config) { c.Label = strings.Repeat("x", 256) }, "label"},
		"protocol":       {func(c *Config) { c.Protocol = 0 }, "protocol"},
		"oldest":         {func(c *Config) { c.OldestProtocol = 2 }, "oldest"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			tc.change(&cfg)
			m, err := Start(t.Context(), cfg)
			if err == nil {
				m.Close()
				t.Fatal("it started")
			}
			if !strings.HasPrefix(err.Error(), "cluster: ") || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("the error does not say %q: %v", tc.says, err)
			}
		})
	}
}
