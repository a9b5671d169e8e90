package eventlog

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/session"
)

// TestAppendSurvives disturbs the connection during one append. The commit is
// stored exactly once and the caller learns its position. Where the connection is
// lost it does not wait for an answer that cannot come.
func TestAppendSurvives(t *testing.T) {
	const ack = `{"stream":"EV_1`
	tests := map[string]struct {
		fromServer, toServer string // the mark that the fault waits for
		act                  func(b []byte) bool
	}{
		"lost publish": {toServer: "rath.ev.", act: natstest.Drop},
		"lost ack":     {fromServer: ack, act: natstest.Drop},
		"stored, told 10164": {fromServer: ack, act: func(b []byte) bool {
			i := strings.Index(string(b), ack)
			j := i + strings.Index(string(b[i:]), "}") + 1
			return natstest.Replace(string(b[i:j]), `{"error":{"err_code":10164}}`)(b)
		}},
		"false conflict": {
			toServer: conn.HeaderExpectLast + ": ",
			act:      natstest.Replace(conn.HeaderExpectLast+": ", conn.HeaderExpectLast+":9"),
		},
		"garbled ack": {fromServer: ack, act: natstest.Replace(ack, `{"stream":"EV"!`)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Logs, w *natstest.Wire) {
				l := c.Log()
				k := sessiontest.Key("s")
				at := sessiontest.Grow(t, l, k, commitlog.Position{}, 1)
				var fired func() bool
				var hook func([]byte) bool
				if tc.toServer != "" {
					hook, fired = natstest.Once(tc.toServer, tc.act)
					w.Set(nil, hook)
				} else {
					hook, fired = natstest.Once(tc.fromServer, tc.act)
					w.Set(hook, nil)
				}
				began := time.Now()
				end := sessiontest.Grow(t, l, k, at, 2)
				if !fired() {
					t.Fatal("the fault did not happen")
				}
				if took := time.Since(began); took >= conn.RequestTimeout {
					t.Errorf("the appends took %v", took)
				}
				entries := sessiontest.ReadAll(t, l, k, commitlog.Position{})
				if len(entries) != 3 || entries[2].At != end {
					t.Errorf("%d commits, want 3 up to %v", len(entries), end)
				}
				if n := stored64(t, c, k); n != 3 {
					t.Errorf("%d messages stored, want 3", n)
				}
			})
		})
	}
}

// stored64 counts the messages in a session's event stream.
func stored64(t *testing.T, c *Logs, k session.Key) uint64 {
	t.Helper()
	name, _ := must.Pair(EventSubject(k))(t)
	s := must.Get(c.conn.JS.Stream(t.Context(), name))(t)
	return s.CachedInfo().State.Msgs
}

// TestAppendLostAckToOther loses the acknowledgement of a commit that another
// writer then extends: it is stored, and the writer learns that.
func TestAppendLostAckToOther(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Logs, w *natstest.Wire) {
		ctx := t.Context()
		l := c.Log()
		k := sessiontest.Key("s")
		stream, subject := must.Pair(EventSubject(k))(t)
		hook, fired := natstest.Once(`{"stream":"EV_1`, natstest.Drop)
		w.Set(hook, nil)
		first := sessiontest.Commit(k, commitlog.Position{}, "mine")
		done := make(chan error, 1)
		go func() {
			_, err := l.Append(ctx, commitlog.Position{}, first)
			done <- err
		}()
		time.Sleep(3 * time.Second) // connected again, not yet asking
		if !fired() {
			t.Fatal("the fault did not happen")
		}
		m := must.Get(c.messages.LeaderLast(ctx, stream, subject))(t)
		at := commitlog.Position{Seq: 1, Token: m.Seq, Hash: commitlog.HashOf(m.Data)}
		must.Get(l.Append(ctx, at, sessiontest.Commit(k, at, "another's")))(t)
		if err := <-done; err != nil {
			t.Errorf("got %v", err)
		}
	})
}

// TestAppendThroughOutage restarts the server while a commit is on its way.
func TestAppendThroughOutage(t *testing.T) {
	for _, outage := range []time.Duration{9 * time.Second, 20 * time.Second, time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				opts := &natsserver.Options{StoreDir: t.TempDir(), NodePassword: "fixed"}
				srv := natstest.Start(t, opts)
				var now atomic.Pointer[natsserver.Server]
				now.Store(srv)
				o := streamstest.NodeOptions(srv)
				o.Dialer = func() (net.Conn, error) { return now.Load().Dial() }
				o.Probe = func(ctx context.Context) ([]streams.SyncState, error) { return streamstest.Probe(now.Load())(ctx) }
				c := layer.Dial(t, o)
				must.Do(t, c.streams.Provision(ctx))
				l := c.Log()
				k := sessiontest.Key("s")
				at := sessiontest.Grow(t, l, k, commitlog.Position{}, 1)
				must.Do(t, srv.Shutdown(ctx))
				start := time.Now()
				done := make(chan error, 1)
				go func() {
					_, err := l.Append(ctx, at, sessiontest.Commit(k, at, "through"))
					done <- err
				}()
				time.Sleep(outage)
				now.Store(natstest.Start(t, opts))
				err := <-done
				if outage < conn.RetryBudget {
					if err != nil {
						t.Fatalf("after %v: %v", time.Since(start), err)
					}
				} else if d := time.Since(start); !errors.Is(err, session.ErrUnavailable) || d < 20*time.Second {
					t.Fatalf("after %v: %v, want ErrUnavailable after 20s or more", d, err)
				}
				want := 2
				if err != nil {
					want = 1
				}
				time.Sleep(5 * time.Second) // connected again
				if n := len(sessiontest.ReadAll(t, l, k, commitlog.Position{})); n != want {
					t.Errorf("%d commits, want %d", n, want)
				}
			})
		})
	}
}

// TestAppendContext ends the context before and while the outcome is open.
func TestAppendContext(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		c := layer.Open(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		k := sessiontest.Key("s")
		if _, err := c.Log().Append(ctx, commitlog.Position{}, sessiontest.Commit(k, commitlog.Position{}, "x")); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if n := stored64(t, c, k); n != 0 {
			t.Errorf("%d messages stored", n)
		}
	})
	t.Run("ack lost", func(t *testing.T) {
		layer.InBubble(t, func(t *testing.T, c *Logs, w *natstest.Wire) {
			hook, _ := natstest.Once(`{"stream":"EV_1`, natstest.Drop)
			w.Set(hook, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			k := sessiontest.Key("s")
			pos, err := c.Log().Append(ctx, commitlog.Position{}, sessiontest.Commit(k, commitlog.Position{}, "x"))
			if err != nil || pos.Seq != 1 {
				t.Errorf("got %v, %v: the commit is stored", pos, err)
			}
		})
	})
}
