package natstest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// Configured is a server with the configuration of an operator, in this process.
type Configured struct {
	srv        *server.Server
	main, part string // files
}

// StartConfigured starts a server that reads a part of its configuration, such as its
// accounts, from a text, with variables of the environment, as nats-server does. It
// listens on a free port of 127.0.0.1, stores in the test's temporary directory, and is
// shut down when the test ends.
func StartConfigured(tb testing.TB, text string) *Configured {
	tb.Helper()
	enter(tb)
	dir := tb.TempDir()
	c := &Configured{main: filepath.Join(dir, "server.conf"), part: filepath.Join(dir, "part.conf")}
	config := fmt.Sprintf("listen: 127.0.0.1:%d\njetstream { store_dir: %q, max_file_store: %d }\ninclude part.conf\n", FreePort(tb), filepath.Join(dir, "store"), maxStore)
	must.Do(tb, errors.Join(os.WriteFile(c.main, []byte(config), 0o600), os.WriteFile(c.part, []byte(text), 0o600)))
	c.start(tb)
	tb.Cleanup(c.stop)
	return c
}

func (c *Configured) start(tb testing.TB) {
	tb.Helper()
	o := must.Get(server.ProcessConfigFile(c.main))(tb)
	o.NoSigs, o.NoLog = true, true
	c.srv = must.Get(server.NewServer(o))(tb)
	c.srv.Start()
	if !c.srv.ReadyForConnections(30 * time.Second) {
		tb.Fatal("the NATS server does not listen")
	}
}

func (c *Configured) stop() {
	c.srv.Shutdown()
	c.srv.WaitForShutdown()
}

// Restart stops the server and starts it at the same address, with its stored data and its
// last configuration.
func (c *Configured) Restart(tb testing.TB) {
	tb.Helper()
	c.stop()
	c.start(tb)
}

// URL is where it listens.
func (c *Configured) URL() string { return c.srv.ClientURL() }

// Reload applies another text, as after a signal. If the server rejects it, the server
// continues unchanged.
func (c *Configured) Reload(text string) error {
	if err := os.WriteFile(c.part, []byte(text), 0o600); err != nil {
		return fmt.Errorf("natstest: %w", err)
	}
	if err := c.srv.Reload(); err != nil {
		return fmt.Errorf("natstest: reload: %w", err)
	}
	return nil
}
