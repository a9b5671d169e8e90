package natsbus

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/internal/natstest"
)

// TestStartWithLostStream starts a node whose cluster knows a stream in memory
// that none of its servers leads. It is made anew; a stream of the truth never
// is.
func TestStartWithLostStream(t *testing.T) {
	for stream, made := range map[string]bool{"KV_NODE": true, StreamResult: false} {
		t.Run(stream, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := natstest.Start(t, nil)
				user, password := srv.Operator()
				principal, err := nats.Connect("", nats.InProcessServer(inProcess(srv.Dial)), nats.UserInfo(user, password), nats.CustomInboxPrefix(NodeInbox))
				if err != nil {
					t.Fatal(err)
				}
				defer principal.Close()
				first := dial(t, nodeOptions(srv))
				if err := first.Provision(t.Context()); err != nil {
					t.Fatal(err)
				}
				d := startDeputy(t, principal)
				var removed atomic.Bool
				d.set(func(subject string) (string, bool) {
					if strings.Contains(subject, "STREAM.DELETE.") {
						removed.Store(true)
						if !strings.HasSuffix(subject, stream) {
							t.Errorf("asked for %s", subject)
						}
					}
					leaderless := !removed.Load() && strings.HasSuffix(subject, "STREAM.INFO."+stream)
					return `{"type":"io.nats.jetstream.api.v1.stream_info_response","config":{"name":"` + stream + `"},"cluster":{"name":"c"}}`, leaderless
				})
				o := nodeOptions(srv)
				o.Dialer, o.User, o.Password, o.Partitions = d.InProcessConn, "", "", 0
				began := time.Now()
				c, err := Connect(t.Context(), o)
				if err == nil {
					defer c.Close()
					err = c.Provision(t.Context())
				}
				took := time.Since(began)
				if removed.Load() != made || made != (err == nil) {
					t.Errorf("removed: %v, %v", removed.Load(), err)
				}
				if !made && !strings.Contains(err.Error(), stream+": ") {
					t.Errorf("the error does not name the stream: %v", err)
				}
				if took < patience || took > 2*patience {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestTendOneServer: a server that is alone keeps its streams in memory while it
// runs, so that the relay asks for them once. When it starts again it has none,
// and the relay makes them.
func TestTendOneServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := &natsserver.Options{StoreDir: t.TempDir(), NodePassword: "fixed"}
		srv := natstest.Start(t, opts)
		var now atomic.Pointer[natsserver.Server]
		now.Store(srv)
		w, asked := &wire{}, atomic.Int64{}
		o := nodeOptions(srv)
		o.Dialer = func() (netConn, error) { return now.Load().Dial() }
		o.Probe = nil
		o.Level = Lazy
		c := w.dial(t, o)
		if err := c.Provision(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.set(nil, func(b []byte) bool {
			asked.Add(int64(bytes.Count(b, []byte("PUB "+apiStreamInfo+"KV_"+BucketNode))))
			return true
		})
		stop := background(t, func(ctx context.Context) error { return c.StartRelay(ctx, nil).Wait() })
		time.Sleep(20 * tendEvery)
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times for a stream in memory", n)
		}
		if err := srv.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		now.Store(natstest.Start(t, opts))
		asked.Store(0)
		time.Sleep(20 * tendEvery)
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times after the restart", n)
		}
		if info, err := c.lookStream(t.Context(), "KV_"+BucketNode); err != nil || info == nil {
			t.Errorf("the stream in memory after the restart: %v, %v", info, err)
		}
		stop()
	})
}
