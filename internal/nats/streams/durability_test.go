package streams_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
)

func TestLevels(t *testing.T) {
	always := func(context.Context) ([]streams.SyncState, error) {
		return []streams.SyncState{{Server: "a", Always: true, Interval: 0}, {Server: "b", Always: true, Interval: 0}}, nil
	}
	mixed := func(context.Context) ([]streams.SyncState, error) {
		return []streams.SyncState{{Server: "a", Always: true, Interval: 0}, {Server: "b", Always: false, Interval: 2 * time.Minute}}, nil
	}
	silent := func(context.Context) ([]streams.SyncState, error) { return nil, nil }
	broken := func(context.Context) ([]streams.SyncState, error) { return nil, errors.New("connection refused") }
	tests := map[string]struct {
		opts  streams.Options
		names []string // of the refusal; none: accepted
	}{
		"fsync":                {streams.Options{Probe: always}, nil},
		"one server is lazy":   {streams.Options{Probe: mixed}, []string{"fsync", "b syncs every 2m0s", "sync_interval: always", "lazy"}},
		"nobody answers":       {streams.Options{Probe: silent}, []string{"no server answered", "monitoring", "lazy"}},
		"cannot ask":           {streams.Options{Probe: broken}, []string{"connection refused", "monitoring", "lazy"}},
		"no way to ask":        {streams.Options{}, []string{"no way to ask", "replicated", "lazy"}},
		"lazy accepted":        {streams.Options{Level: streams.Lazy}, nil},
		"lazy needs no answer": {streams.Options{Level: streams.Lazy, Probe: broken}, nil},
		"replicated":           {streams.Options{Level: streams.Replicated, Replicas: 3}, nil},
		"replicated alone":     {streams.Options{Level: streams.Replicated}, []string{"replicated", "1 replica", "lazy"}},
	}
	srv := natstest.Start(t, &natsserver.Options{Open: true})
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.opts.Dialer = srv.Dial
			c, err := streams.OpenStore(t.Context(), &tc.opts)
			if err == nil {
				defer c.Conn.Close()
			}
			if len(tc.names) == 0 {
				must.Do(t, err)
				want := tc.opts.Level
				if want == "" {
					want = streams.Fsync
				}
				if c.Level() != want {
					t.Errorf("level %s, want %s", c.Level(), want)
				}
				return
			}
			if _, ok := errors.AsType[*streams.DurabilityError](err); !ok || !errors.Is(err, streams.ErrDurability) {
				t.Fatalf("got %v, want a DurabilityError", err)
			}
			for _, want := range tc.names {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not name %q", err, want)
				}
			}
		})
	}
}

// TestRealServer asks the server itself, in both modes.
func TestRealServer(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		srv := natstest.Start(t, &natsserver.Options{Lazy: lazy})
		c, err := streams.OpenStore(t.Context(), streamstest.NodeOptions(srv))
		if err == nil {
			err = c.Conn.Close()
		}
		if lazy != errors.Is(err, streams.ErrDurability) || !lazy && err != nil {
			t.Errorf("lazy %v: %v", lazy, err)
		}
	}
}

func TestMonitorProbe(t *testing.T) {
	serve := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/varz" {
				http.NotFound(w, r)
				return
			}
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	good := serve(200, `{"server_name":"n0","jetstream":{"config":{"sync_always":true,"sync_interval":120000000000}}}`)
	lazy := serve(200, `{"server_name":"n1","jetstream":{"config":{"sync_interval":120000000000}}}`)
	states, err := streams.MonitorProbe(good+"/", lazy)(t.Context())
	must.Do(t, err)
	want := []streams.SyncState{{Server: "n0", Always: true, Interval: 2 * time.Minute}, {Server: "n1", Always: false, Interval: 2 * time.Minute}}
	if len(states) != 2 || states[0] != want[0] || states[1] != want[1] {
		t.Errorf("got %v, want %v", states, want)
	}
	// A server that failed is left out while the others are a majority.
	states, err = streams.MonitorProbe(good, "http://127.0.0.1:1", lazy)(t.Context())
	if err != nil || len(states) != 2 || states[0] != want[0] || states[1] != want[1] {
		t.Errorf("one of three is gone: %v, %v", states, err)
	}
	for name, bad := range map[string]string{
		"no JetStream": serve(200, `{"server_name":"n2","jetstream":{}}`),
		"not found":    serve(404, ""),
		"not JSON":     serve(200, "<html>"),
		"gone":         "http://127.0.0.1:1",
	} {
		if states, err := streams.MonitorProbe(good, bad)(t.Context()); err == nil {
			t.Errorf("%s: got %v", name, states)
		}
	}
}

// TestProbeFailsForAMoment writes right after a reconnect, while the servers
// cannot be asked yet: the writer waits instead of failing.
func TestProbeFailsForAMoment(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *streams.Streams, w *natstest.Wire) {
		l := eventlog.NewLogs(c).Log()
		k := sessiontest.Key("s")
		at := sessiontest.Grow(t, l, k, commitlog.Position{}, 1)
		ask, down := c.O.Probe, time.Now().Add(10*time.Second)
		c.O.Probe = func(ctx context.Context) ([]streams.SyncState, error) {
			if time.Now().Before(down) {
				return nil, errors.New("connection refused")
			}
			return ask(ctx)
		}
		hook, _ := natstest.Once("PING", natstest.Drop)
		w.Set(nil, hook)
		if err := c.Conn.NC.FlushWithContext(shortly(t)); err == nil {
			t.Fatal("the connection was not cut")
		}
		w.Set(nil, nil)
		time.Sleep(2 * time.Second)
		at = sessiontest.Grow(t, l, k, at, 1)
		if time.Now().Before(down) {
			t.Error("appended before the servers were asked")
		}

		down = time.Now().Add(time.Hour)
		hook, _ = natstest.Once("PING", natstest.Drop)
		w.Set(nil, hook)
		if err := c.Conn.NC.FlushWithContext(shortly(t)); err == nil {
			t.Fatal("the connection was not cut")
		}
		w.Set(nil, nil)
		time.Sleep(2 * time.Second)
		start := time.Now()
		_, err := l.Append(t.Context(), at, sessiontest.Commit(k, at, "x"))
		if d := time.Since(start); !errors.Is(err, streams.ErrDurability) || d < 20*time.Second || d > 40*time.Second {
			t.Errorf("after %v: %v", d, err)
		}
	})
}

// shortly is for a request that the server refuses by not answering it.
func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// layer connects in the tests.
var layer = streamstest.Layer[*streams.Streams](func(s *streams.Streams) *streams.Streams { return s })
