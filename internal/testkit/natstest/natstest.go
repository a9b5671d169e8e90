// Package natstest starts NATS servers for tests, inside or outside a
// testing/synctest bubble.
//
// In a bubble JetStream runs in virtual time: an acknowledgement wait of 30 s,
// a lease of 30 s or a backoff takes milliseconds and no test sleeps. Four
// rules make it work:
//
//   - The test binary calls [Main] from its TestMain. It starts, outside every
//     bubble, the one goroutine that nats-server keeps per process; started
//     inside a bubble it would stop virtual time for ever.
//   - The server starts inside the bubble that uses it and is reached with
//     Dial: sockets are not durably blocked, and a server from outside ends
//     the whole test process.
//   - Clients are closed before the test function returns; the server is shut
//     down by the test's cleanup.
//   - Tests with a server do not run in parallel: the NATS client pools its
//     timers per process, and a timer of one bubble used in another ends the
//     process. Start and its cleanup empty the pools.
//
// So a test file looks like this:
//
//	func TestMain(m *testing.M) { natstest.Main(m) }
//
//	func TestLease(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			srv := natstest.Start(t, nil)
//			// connect with srv.Dial; time.Sleep(time.Hour) takes no time
//		})
//	}
//
// Virtual time does not make scheduling deterministic, and servers that route
// to each other need sockets: a cluster is tested in real time.
package natstest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"

	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/platform/scratch"
)

// maxStore bounds the reservations of streams. Nothing is allocated, so the tests do not
// depend on free disk space.
const maxStore = 64 << 30

// Main runs the tests of a package and exits. Call it from TestMain.
func Main(m *testing.M) {
	scratch.InMemory()
	Register()
	os.Exit(m.Run())
}

// Register does the setup of Main, for a TestMain with more to do. Call it once, outside
// every bubble.
func Register() { ats.Register() }

// Start starts a server with a store in the test's temporary directory and
// shuts it down when the test ends. opts may be nil; its zero StoreDir,
// MaxStore and Logger get values fit for a test. A test that restarts a
// server passes the same StoreDir twice and calls Shutdown in between.
func Start(tb testing.TB, opts *natsserver.Options) *natsserver.Server {
	tb.Helper()
	enter(tb)
	var o natsserver.Options
	if opts != nil {
		o = *opts
	}
	if o.StoreDir == "" {
		o.StoreDir = tb.TempDir()
	}
	if o.MaxStore == 0 {
		o.MaxStore = maxStore
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	srv, err := natsserver.Start(tb.Context(), &o)
	if err != nil {
		tb.Fatalf("start a NATS server: %v", err)
	}
	tb.Cleanup(func() {
		// The test's own context has ended here.
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			tb.Errorf("shut down the NATS server: %v", err)
		}
		if virtual() {
			// nats.go looks every 100 ms whether a subscription that drains has become
			// empty, and only then sees that its connection is closed.
			time.Sleep(time.Second)
		}
	})
	return srv
}

// virtual reports whether this is a bubble of testing/synctest, whose time begins in 2000.
func virtual() bool { return time.Now().Year() < 2020 }

// CheckConfig parses a configuration as a server does and returns its error. Variables in
// it are those of the environment.
func CheckConfig(text string) error {
	if err := new(server.Options).ProcessConfigString(text); err != nil {
		return fmt.Errorf("natstest: configuration: %w", err)
	}
	return nil
}

// bubble is the last test that started a server in virtual time, nil after one outside.
var bubble atomic.Pointer[testing.TB]

// enter runs before a test's first server: no timer or channel may enter or leave a bubble,
// and sync.Pools pass them from test to test. A bubble leaves the pools empty, so enter
// empties them before one only if the last server was outside a bubble. Outside of bubbles
// the pools may keep their contents.
func enter(tb testing.TB) {
	if !virtual() {
		if bubble.Swap(nil) != nil {
			emptyPools()
		}
		return
	}
	last := bubble.Swap(&tb)
	if last != nil && *last == tb {
		return
	}
	if last == nil {
		emptyPools()
	}
	tb.Cleanup(emptyPools)
}

// emptyPools empties all sync.Pools: the first collection moves their contents aside, the
// second frees them.
func emptyPools() {
	runtime.GC()
	runtime.GC()
}
