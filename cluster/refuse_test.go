package cluster

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A node that does not fit is rejected and gets the reason and the remedy; the nodes
// that reject it log that too.
func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Config)
		says   []string // parts of the rejected node's error
		logged []string // parts of the others' log lines
	}{
		"key":      {func(c *Config) { c.Key = Key("another key 0123") }, []string{keyDiffers, "give this node the key"}, []string{"WARN", keyDiffers, "from=10.0.0."}},
		"label":    {func(c *Config) { c.Label = "other" }, []string{labelDiffers, `"other"`}, []string{"WARN", labelDiffers, "from=10.0.0."}},
		"protocol": {func(c *Config) { c.Protocol = 2 }, []string{protocolDiffers, "this node speaks 2 and accepts 2 or newer", "speaks 1"}, []string{"WARN", protocolDiffers, "node node-9", "speaks 2"}},
		"old":      {func(c *Config) { c.Protocol, c.OldestProtocol = 4, 3 }, []string{protocolDiffers, "accepts 3 or newer"}, []string{"WARN", protocolDiffers, "node node-9"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				nodes := f.upTo(3)
				cfg := f.config(9)
				mine := &logged{}
				tc.change(&cfg)
				cfg.Logger = newLogger(mine)
				began := time.Now()
				_, err := f.try(cfg)
				if !errors.Is(err, ErrRefused) {
					t.Fatalf("started with %v after %v", err, time.Since(began))
				}
				for _, s := range append(tc.says, "10.0.0.") {
					if !strings.Contains(err.Error(), s) {
						t.Errorf("the error does not say %q:\n%v", s, err)
					}
				}
				if !mine.has("ERROR", "refused") {
					t.Errorf("it logged:\n%s", mine)
				}
				if !f.logs.has(tc.logged...) {
					t.Errorf("no node logged %q:\n%s", tc.logged, f.logs)
				}
				if strings.Contains(err.Error()+mine.String()+f.logs.String(), "another key 0123") {
					t.Error("a key is shown")
				}
				time.Sleep(time.Minute)
				f.see(0, nodes, nodes)
			})
		})
	}
}

// The first node is not rejected; when the others start, both sides log it, and neither
// adds the other to its list.
func TestRefusedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		cfg := f.config(9)
		cfg.Key = NewKey()
		odd := f.start(cfg)
		if _, err := f.try(f.config(0)); !errors.Is(err, ErrRefused) {
			t.Fatalf("the second started with %v", err)
		}
		// Two that find each other ignore the third.
		plain := f.config(0)
		plain.Join = []string{addrOf(1)}
		a, b := f.start(plain), f.start(f.config(1))
		pair := []*member{a, b}
		f.see(5*time.Second, pair, pair)
		time.Sleep(2 * RejoinEvery)
		if err := odd.Err(); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), keyDiffers) {
			t.Errorf("the odd one says %v", err)
		}
		if err := b.Err(); !errors.Is(err, ErrRefused) {
			t.Errorf("one that tries to join the odd one says %v", err)
		}
		f.see(0, pair, pair)
		f.see(0, []*member{odd}, []*member{odd})
		if n := strings.Count(f.logs.String(), "this node is refused"); n > 4 {
			t.Errorf("%d lines of the same refusal:\n%s", n, f.logs)
		}
		// It gets the right key at its next start.
		f.crash(odd)
		cfg.Key, cfg.Incarnation = testKey, "node-9-b"
		all := []*member{a, b, f.start(cfg)}
		f.see(5*time.Second, all, all)
		time.Sleep(RejoinEvery + time.Second)
		if b.Err() != nil {
			t.Errorf("all is well, but %v", b.Err())
		}
	})
}

// Releases overlap: 1 and 2 understand 1, 3 only itself and 2.
func TestProtocolsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		start := func(n, protocol, oldest int) *member {
			cfg := f.config(n)
			cfg.Protocol, cfg.OldestProtocol = protocol, oldest
			return f.start(cfg)
		}
		one, two, three := start(0, 1, 1), start(1, 2, 1), start(2, 3, 2)
		time.Sleep(2 * RejoinEvery)
		f.see(0, []*member{one}, []*member{one, two})
		f.see(0, []*member{two}, []*member{one, two, three})
		f.see(0, []*member{three}, []*member{two, three})
		if !f.logs.has("WARN", protocolDiffers, "node-0") || !f.logs.has("WARN", protocolDiffers, "node-2") {
			t.Errorf("logged:\n%s", f.logs)
		}
	})
}

// A key is changed by three rolling restarts, and all nodes see each other all
// the time.
func TestKeyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		nodes := f.upTo(3)
		next := Key("fedcba9876543210fedcba9876543210")
		for step, keys := range [][]Key{{testKey, next}, {next, testKey}, {next}} {
			for i, m := range nodes {
				m.Close()
				f.crash(m)
				cfg := f.config(i)
				cfg.Incarnation = m.cfg.Name + "-" + string(rune('b'+step))
				cfg.Key, cfg.AcceptKeys = keys[0], keys[1:]
				nodes[i] = f.start(cfg)
				f.see(5*time.Second, nodes, nodes)
			}
		}
	})
}
