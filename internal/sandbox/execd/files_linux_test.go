package execd

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/rathcluster/rath/internal/sandbox/mirror"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// startUpgraded starts a daemon with WebSockets, as in a sandbox of a service.
func startUpgraded(ctx context.Context, workspace string, o Opening, ended chan<- error) (*Client, error) {
	keys, err := NewKeys()
	if err != nil {
		return nil, err
	}
	config, err := daemonEnd(keys.Daemon)
	if err != nil {
		return nil, err
	}
	dir, err := stateDir()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &server{state: filepath.Join(dir, "state"), workspace: workspace, oomKills: func() int { return 0 }}
	go d.live(dir, ended, func() error { return d.accept(listenUpgraded(l, config), lease) })
	c, err := DialUpgraded(ctx, keys, lease, func(ctx context.Context) (*websocket.Conn, error) {
		ws, _, err := websocket.Dial(ctx, "ws://"+l.Addr().String(), nil)
		return ws, err
	})
	if err != nil {
		return nil, err
	}
	if _, err := c.Open(ctx, o); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// TestFiles has commands work on a workspace that is not a directory of the client, over
// each kind of connection to a daemon, as another user if this user may give files away.
func TestFiles(t *testing.T) {
	for name, begin := range map[string]func(context.Context, string, Opening, chan<- error) (*Client, error){"socket": start, "pod": startPod, "service": startUpgraded} {
		t.Run(name, func(t *testing.T) {
			var o Opening
			elsewhere := t.TempDir()
			if os.Geteuid() == 0 {
				o.UID, o.GID = 1<<30+1, 1<<30+1
				must.Do(t, errors.Join(os.Chown(elsewhere, o.UID, o.GID), os.Chmod(filepath.Dir(elsewhere), 0o755)))
			}
			ended := make(chan error, 1)
			c, err := begin(t.Context(), elsewhere, o, ended)
			must.Do(t, err)
			dir := t.TempDir()
			here, err := mirror.Open(dir, nil)
			must.Do(t, err)
			defer here.Close()
			m := mirror.New(here, c.Files(), mirror.Limits{})
			sh := func(script string) (sandbox.Exit, error) {
				return m.Exec(t.Context(), func(ctx context.Context) (sandbox.Exit, error) {
					return c.Exec(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", script}})
				})
			}
			must.Do(t, os.WriteFile(filepath.Join(dir, "in"), []byte(strings.Repeat("from here\n", 100_000)), 0o644))
			e, err := sh("mkdir -p a/b && sort -u in > a/b/out && ln -s a/b l && echo added >> in && chmod 0 a/b/out && echo new > top")
			if err != nil || e.Code != 0 {
				t.Fatalf("%v, %+v", err, e)
			}
			for name, want := range map[string]string{"a/b/out": "from here\n", "l/out": "from here\n", "in": strings.Repeat("from here\n", 100_000) + "added\n", "top": "new\n"} {
				if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
					t.Errorf("%s: %.40q, %v", name, data, err)
				}
			}
			must.Do(t, os.RemoveAll(filepath.Join(dir, "a")))
			if e, err := sh("ls -A; rm l"); err != nil || string(e.Stdout.Bytes()) != "in\nl\ntop\n" {
				t.Errorf("%v, %+v", err, e)
			}
			// A daemon that ends takes the files with it, and no request waits for it.
			must.Do(t, c.Close())
			<-ended
			if _, err := sh("true"); err == nil {
				t.Error("a closed daemon has files")
			}
		})
	}
}
