package api

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// layer connects in the tests.
var layer = streamstest.Layer[*Conn](Over)

func TestMain(m *testing.M) { natstest.Main(m) }

func TestConnectErrors(t *testing.T) {
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	tests := map[string]struct {
		opts  streams.Options
		is    error
		names []string
		not   string
	}{
		"nobody there": {
			streams.Options{Options: conn.Options{URL: "nats://user:secret@127.0.0.1:1"}, Client: true},
			conn.ErrUnreachable,
			[]string{"127.0.0.1:1", "start a server"},
			"secret",
		},
		"nobody there, without a scheme": {
			streams.Options{Options: conn.Options{URL: "user:secret@127.0.0.1:1,other:secret@127.0.0.1:2"}, Client: true},
			conn.ErrUnreachable,
			[]string{"127.0.0.1:1, ", "127.0.0.1:2"},
			"secret",
		},
		"wrong password": {
			streams.Options{Options: conn.Options{URL: srv.URL(), User: "operator", Password: "secret"}, Client: true},
			conn.ErrDenied,
			[]string{strings.TrimPrefix(srv.URL(), "nats://"), "credentials"},
			"secret",
		},
		"not a URL":         {streams.Options{Options: conn.Options{URL: "nats://user:secret@[::1"}, Client: true}, nil, []string{"nats://host:4222"}, "secret"},
		"a bad user":        {streams.Options{Options: conn.Options{URL: "user:a secret@127.0.0.1:1"}, Client: true}, nil, []string{"nats://host:4222"}, "secret"},
		"two replicas":      {streams.Options{Options: conn.Options{URL: srv.URL()}, Replicas: 2}, nil, []string{"1, 3 or 5"}, ""},
		"many partitions":   {streams.Options{Options: conn.Options{URL: srv.URL()}, Partitions: 1000}, nil, []string{"1000", "64"}, ""},
		"unknown level":     {streams.Options{Options: conn.Options{URL: srv.URL()}, Level: "sync"}, nil, []string{`"sync"`, "fsync, replicated or lazy"}, ""},
		"no such nkey file": {streams.Options{Options: conn.Options{URL: srv.URL(), NKeyFile: "absent.nk"}}, nil, []string{"absent.nk"}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := Connect(t.Context(), &tc.opts)
			if err == nil {
				_ = c.Conn.Close()
				t.Fatal("connected")
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("got %v, want %v", err, tc.is)
			}
			for _, want := range tc.names {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not name %q", err, want)
				}
			}
			if tc.not != "" && strings.Contains(err.Error(), tc.not) {
				t.Errorf("error %q holds the password", err)
			}
		})
	}
}

func TestConnectEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Connect(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestClientDoesNotStore(t *testing.T) {
	srv := natstest.Start(t, nil)
	c := layer.Dial(t, &streams.Options{Options: conn.Options{Dialer: srv.Dial}, Client: true})
	if err := c.Streams.Provision(t.Context()); !errors.Is(err, streams.ErrClientOnly) {
		t.Errorf("Provision: %v", err)
	}
	if _, err := c.Logs.Blobs("default").Put(t.Context(), strings.NewReader("x")); !errors.Is(err, streams.ErrClientOnly) {
		t.Errorf("Put: %v", err)
	}
}

// TestCloseIsBounded closes a connection whose subscriber never finishes its messages.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		o := streamstest.NodeOptions(srv)
		o.DrainTimeout = 3 * time.Second
		c := must.Get(Connect(t.Context(), o))(t)
		stuck := make(chan struct{})
		received := make(chan struct{}, 2)
		must.Get(c.Conn.NC.Subscribe("x", func(_ *natsMsg) { received <- struct{}{}; <-stuck }))(t)
		for range 2 {
			must.Do(t, c.Conn.NC.Publish("x", nil))
		}
		<-received
		start := time.Now()
		if err := c.Conn.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if d := time.Since(start); d < 3*time.Second || d > 8*time.Second {
			t.Errorf("Close took %v, want about the drain timeout of 3s", d)
		}
		close(stuck)
		if err := c.Conn.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		<-c.Conn.Closed()
		// The client looks every 100 ms whether the subscriber has ended.
		time.Sleep(time.Second)
	})
}

// TestCloseDelivers shows that Close is a drain: received messages are handled and answers
// are sent.
func TestCloseDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		asker := layer.Dial(t, streamstest.NodeOptions(srv))
		c := must.Get(Connect(t.Context(), streamstest.NodeOptions(srv)))(t)
		must.Get(c.Conn.NC.Subscribe("x", func(m *natsMsg) {
			time.Sleep(time.Second)
			must.Report(t, m.Respond([]byte("done")))
		}))(t)
		must.Do(t, c.Conn.NC.Flush())
		answers := make(chan error, 3)
		for range cap(answers) {
			go func() {
				_, err := asker.Conn.NC.Request("x", nil, time.Minute)
				answers <- err
			}()
		}
		synctest.Wait() // all three are with c
		must.Report(t, c.Conn.Close())
		for range cap(answers) {
			if err := <-answers; err != nil {
				t.Errorf("a request was lost: %v", err)
			}
		}
	})
}

// TestReconnect restarts the server under an open connection, in virtual time.
func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		opts := &natsserver.Options{StoreDir: t.TempDir(), NodePassword: "fixed"}
		srv := natstest.Start(t, opts)
		var now atomic.Pointer[natsserver.Server]
		now.Store(srv)
		o := streamstest.NodeOptions(srv)
		o.Dialer = func() (netConn, error) { return now.Load().Dial() }
		probes := 0
		lazy := false
		o.Probe = func(context.Context) ([]streams.SyncState, error) {
			probes++
			return []streams.SyncState{{Server: "s", Always: !lazy, Interval: time.Minute}}, nil
		}
		c := layer.Dial(t, o)
		must.Do(t, c.Streams.Provision(ctx))
		put := func() error {
			_, err := c.Logs.Blobs("default").Put(ctx, strings.NewReader(time.Now().String()))
			return err
		}
		must.Do(t, errors.Join(put(), put()))
		if probes != 1 {
			t.Errorf("asked %d times on one connection, want once", probes)
		}
		must.Do(t, srv.Shutdown(ctx))
		time.Sleep(time.Minute)
		if c.Conn.Connected() {
			t.Error("connected to a server that is gone")
		}
		now.Store(natstest.Start(t, opts))
		if err := put(); err != nil {
			t.Errorf("after the restart: %v", err)
		}
		if probes != 2 {
			t.Errorf("asked %d times, want once more after the reconnect", probes)
		}

		lazy = true
		must.Do(t, now.Load().Shutdown(ctx))
		time.Sleep(time.Second)
		now.Store(natstest.Start(t, opts))
		if err := put(); !errors.Is(err, streams.ErrDurability) {
			t.Errorf("the restarted server does not sync any more: %v", err)
		}
	})
}
