package cluster

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// Real sockets on loopback: nodes meet, reject misfits, leave, and end everything that
// they began.
func TestSockets(t *testing.T) {
	before := runtime.NumGoroutine()
	logs := &logged{}
	config := func(name string, join ...string) Config {
		return Config{
			Name: name, Incarnation: name + "-1", Bind: "127.0.0.1:0", Join: join, Key: testKey, Protocol: 1,
			About: func() Node { return Node{Slots: 7} }, Logger: newLogger(logs),
		}
	}
	a := open(t, config("a"))
	b := open(t, config("b", a.Addr()))
	c := open(t, config("c", "localhost:"+portOf(a.Addr()), b.Addr()))
	all := []*Members{a, b, c}
	for _, m := range all {
		await(t, m, 10*time.Second, func(ns []Node) bool { return len(ns) == 3 })
		if n := m.List()[1]; n.Name != "b" || n.Addr != b.Addr() || n.Slots != 7 {
			t.Errorf("seen as %+v", n)
		}
	}

	var odd sync.WaitGroup
	for what, change := range map[string]func(*Config){
		keyDiffers:      func(c *Config) { c.Key = NewKey() },
		labelDiffers:    func(c *Config) { c.Label = "other" },
		protocolDiffers: func(c *Config) { c.Protocol = 5 },
	} {
		odd.Go(func() {
			cfg := config("odd", a.Addr())
			change(&cfg)
			m, err := Start(t.Context(), cfg)
			if err == nil {
				m.Close()
			}
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v", what, err)
			}
			// The other one may find out later than this one.
			for end := time.Now().Add(10 * time.Second); !logs.has("WARN", what, "from=127.0.0.1:"); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Errorf("no node logged %q:\n%s", what, logs)
					break
				}
			}
		})
	}
	odd.Wait()

	// The port of another program, and a port in use.
	busy := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer busy.Close()
	cfg := config("d")
	cfg.Bind = busy.Addr().String()
	if m, err := Start(t.Context(), cfg); err == nil {
		m.Close()
		t.Error("two programs listen on one port")
	} else if !strings.Contains(err.Error(), cfg.Bind) || !strings.Contains(err.Error(), "in use") {
		t.Error(err)
	}

	must.Report(t, c.Leave(t.Context()))
	for _, m := range all[:2] {
		await(t, m, 5*time.Second, func(ns []Node) bool { return len(ns) == 2 })
		if m.Alive("c-1") {
			t.Error("a node that left is said to live")
		}
	}
	for _, m := range all {
		must.Report(t, m.Close())
		must.Report(t, m.Close())
	}
	for end := time.Now().Add(15 * time.Second); runtime.NumGoroutine() > before; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}

// A node on loopback cannot be reached by others, and Err names the remedy.
func TestLoopbackElsewhere(t *testing.T) {
	cfg := Config{Name: "a", Incarnation: "a-1", Bind: "127.0.0.1:0", Join: []string{"192.0.2.1:7946"}, Key: testKey, Protocol: 1}
	m := open(t, cfg)
	defer m.Close()
	if err := m.Err(); err == nil || !strings.Contains(err.Error(), "bind to 0.0.0.0") {
		t.Errorf("it says %v", err)
	}
}

func open(t testing.TB, cfg Config) *Members {
	t.Helper()
	m := must.Get(Start(t.Context(), cfg))(t)
	return m
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// await waits until a node's list is as wanted, and returns the time.
func await(t testing.TB, m *Members, within time.Duration, ok func([]Node) bool) time.Time {
	t.Helper()
	end := time.After(within)
	for {
		changed := m.Changed()
		if ok(m.List()) {
			return time.Now()
		}
		select {
		case <-changed:
		case <-end:
			t.Fatalf("not within %v: %+v", within, m.List())
		}
	}
}
