package dispatch

import (
	"bytes"
	"context"
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

// TestStartWithLostStream starts a node whose cluster lists a stream in memory without a
// leader. The stream is recreated; a stream of the truth never is.
func TestStartWithLostStream(t *testing.T) {
	for stream, made := range map[string]bool{"KV_NODE": true, streams.StreamResult: false} {
		t.Run(stream, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := natstest.Start(t, nil)
				d := natstest.StartDeputy(t, layer.Operator(t, srv).conn.NC)
				first := layer.Dial(t, streamstest.NodeOptions(srv))
				must.Do(t, first.streams.Provision(t.Context()))
				var removed atomic.Bool
				d.Set(func(subject string) (string, bool) {
					if strings.Contains(subject, "STREAM.DELETE.") {
						removed.Store(true)
						if !strings.HasSuffix(subject, stream) {
							t.Errorf("asked for %s", subject)
						}
					}
					return leaderless(stream), !removed.Load() && strings.HasSuffix(subject, "STREAM.INFO."+stream)
				})
				o := streamstest.NodeOptions(srv)
				o.Dialer, o.User, o.Password, o.Partitions = d.InProcessConn, "", "", 0
				began := time.Now()
				s, err := streams.OpenStore(t.Context(), o)
				if err == nil {
					defer s.Conn.Close()
					err = s.Provision(t.Context())
				}
				took := time.Since(began)
				if removed.Load() != made || made != (err == nil) {
					t.Errorf("removed: %v, %v", removed.Load(), err)
				}
				if !made && !strings.Contains(err.Error(), stream+": ") {
					t.Errorf("the error does not name the stream: %v", err)
				}
				if took < conn.RetryBudget || took > 2*conn.RetryBudget {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestStartWithLostAndFound starts a node that finds a stream or a consumer lost, and
// continues with others. Meanwhile another node recreates it: it is not removed again.
func TestStartWithLostAndFound(t *testing.T) {
	for lost, after := range map[string]string{"STREAM.INFO.KV_NODE": "CONSUMER.INFO." + streams.StreamTasks} {
		t.Run(lost, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := natstest.Start(t, nil)
				d := natstest.StartDeputy(t, layer.Operator(t, srv).conn.NC)
				must.Do(t, layer.Dial(t, streamstest.NodeOptions(srv)).streams.Provision(t.Context()))
				var found atomic.Bool
				began := time.Now()
				d.Set(func(subject string) (string, bool) {
					if strings.Contains(subject, ".DELETE.") {
						t.Errorf("asked for %s", subject)
					}
					if strings.Contains(subject, after) {
						found.Store(true)
					}
					return "", !found.Load() && strings.HasSuffix(subject, lost)
				})
				o := streamstest.NodeOptions(srv)
				o.Dialer, o.User, o.Password = d.InProcessConn, "", ""
				must.Report(t, layer.Dial(t, o).streams.Provision(t.Context()))
				if took := time.Since(began); took < conn.RetryBudget {
					t.Errorf("nothing was lost: it took %v", took)
				}
			})
		})
	}
}

// TestOpenLostQueue opens the consumer of a work queue that no server serves, again and
// again, while its stream has no leader for longer than one search takes.
func TestOpenLostQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		d := natstest.StartDeputy(t, layer.Operator(t, srv).conn.NC)
		must.Do(t, layer.Dial(t, streamstest.NodeOptions(srv)).streams.Provision(t.Context()))
		o := streamstest.NodeOptions(srv)
		o.Dialer, o.User, o.Password = d.InProcessConn, "", ""
		c, queue := layer.Dial(t, o), streams.TasksQueue()
		const back = 2*conn.RetryBudget + 10*time.Second
		began := time.Now()
		var removed atomic.Int64
		d.Set(func(subject string) (string, bool) {
			at := time.Since(began)
			switch {
			case strings.Contains(subject, "CONSUMER.DELETE."):
				removed.Store(int64(at))
			case strings.Contains(subject, "CONSUMER.INFO."):
				return "", removed.Load() == 0
			case strings.HasSuffix(subject, "STREAM.INFO."+queue.Stream):
				return leaderless(queue.Stream), at < back
			}
			return "", false
		})
		var e streams.Lookup
		times := 0
		for err := error(conn.ErrLeaderless); err != nil && times < 10; times++ {
			_, err = c.streams.Reconciler.OpenQueue(t.Context(), &e, queue)
		}
		if at := time.Duration(removed.Load()); at < back+streams.ElectionMost || at > back+streams.ElectionMost+3*conn.RequestTimeout {
			t.Errorf("created again after %v and %d searches", at, times)
		}
	})
}

// leaderless is a cluster's answer for a stream that exists and has no leader.
func leaderless(stream string) string {
	return `{"type":"io.nats.jetstream.v1.stream_info_response","config":{"name":"` + stream + `"},"cluster":{"name":"c"}}`
}

// TestTendThroughOutage looks after a stream in memory without a leader, while
// the truth has no leader for a while. The stream is created again once patience is
// over and the truth is led for as long as an election takes, and not if its own
// election is the later one.
func TestTendThroughOutage(t *testing.T) {
	const begun = streams.ReconcileEvery + conn.RetryBudget // the end of patience
	tests := map[string]struct {
		away, back time.Duration // of the truth's leader
		elected    time.Duration // of the stream's, zero: never
		again      time.Duration // the connection is made again
		made       time.Duration // the stream, zero: never
	}{
		"the truth is led":            {made: begun},
		"not when patience is over":   {away: begun - 3*time.Second, back: begun + 3*time.Second, made: begun + 3*time.Second + streams.ElectionMost},
		"not for two searches":        {away: begun - 3*time.Second, back: begun + conn.RetryBudget + 3*time.Second, made: begun + conn.RetryBudget + 3*time.Second + streams.ElectionMost},
		"over another connection":     {away: begun - 3*time.Second, back: begun + conn.RetryBudget + 3*time.Second, again: begun + conn.RetryBudget - time.Second, made: begun + 2*conn.RetryBudget},
		"the stream is elected later": {away: begun - 3*time.Second, back: begun + 3*time.Second, elected: begun + streams.ElectionMost},
		"so after two searches":       {away: begun - 3*time.Second, back: begun + conn.RetryBudget + 3*time.Second, elected: begun + conn.RetryBudget + streams.ElectionMost},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := natstest.Start(t, nil)
				d := natstest.StartDeputy(t, layer.Operator(t, srv).conn.NC)
				must.Do(t, layer.Dial(t, streamstest.NodeOptions(srv)).streams.Provision(t.Context()))
				o := streamstest.NodeOptions(srv)
				o.Dialer, o.User, o.Password = d.InProcessConn, "", ""
				c := layer.Dial(t, o)
				truth, stream := streams.EventStream(c.streams.Generation(), 0), "KV_"+streams.BucketNode
				began := time.Now()
				var removed atomic.Int64
				d.Set(func(subject string) (string, bool) {
					at := time.Since(began)
					switch {
					case strings.HasSuffix(subject, "STREAM.DELETE."+stream):
						removed.CompareAndSwap(0, int64(at))
					case strings.HasSuffix(subject, "STREAM.INFO."+stream):
						return leaderless(stream), removed.Load() == 0 && (tc.elected == 0 || at < tc.elected)
					case strings.HasSuffix(subject, "STREAM.INFO."+truth):
						return leaderless(truth), at >= tc.away && at < tc.back
					}
					return "", false
				})
				stop := natstest.Background(t, c.streams.Reconciler.ReconcileStreams)
				if tc.again != 0 {
					time.Sleep(tc.again)
					must.Do(t, c.conn.NC.ForceReconnect())
				}
				time.Sleep(time.Until(began.Add(4 * conn.RetryBudget)))
				made := time.Duration(removed.Load())
				if tc.made == 0 && made != 0 || made < tc.made || made > tc.made+2*time.Second {
					t.Errorf("created again after %v, want %v", made, tc.made)
				}
				if info, err := c.streams.Reconciler.LookStream(t.Context(), stream); err != nil || info == nil {
					t.Errorf("the stream: %v, %v", info, err)
				}
				stop()
			})
		})
	}
}

// TestTendOneServer: a server without others keeps its streams in memory while it runs, so
// the relay checks them once. After a restart it has none, and the relay creates them.
func TestTendOneServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := &natsserver.Options{StoreDir: t.TempDir(), NodePassword: "fixed"}
		srv := natstest.Start(t, opts)
		var now atomic.Pointer[natsserver.Server]
		now.Store(srv)
		w, asked := &natstest.Wire{}, atomic.Int64{}
		o := streamstest.NodeOptions(srv)
		o.Dialer = func() (netConn, error) { return now.Load().Dial() }
		o.Probe = nil
		o.Level = streams.Lazy
		c := layer.DialThrough(t, w, o)
		must.Do(t, c.streams.Provision(t.Context()))
		w.Set(nil, func(b []byte) bool {
			asked.Add(int64(bytes.Count(b, []byte("PUB "+conn.APIStreamInfo+"KV_"+streams.BucketNode))))
			return true
		})
		stop := natstest.Background(t, func(ctx context.Context) error { return c.StartRelay(ctx, nil).Wait() })
		time.Sleep(20 * streams.ReconcileEvery)
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times for a stream in memory", n)
		}
		must.Do(t, srv.Shutdown(t.Context()))
		time.Sleep(time.Second)
		now.Store(natstest.Start(t, opts))
		asked.Store(0)
		time.Sleep(20 * streams.ReconcileEvery)
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times after the restart", n)
		}
		if info, err := c.streams.Reconciler.LookStream(t.Context(), "KV_"+streams.BucketNode); err != nil || info == nil {
			t.Errorf("the stream in memory after the restart: %v, %v", info, err)
		}
		stop()
	})
}
