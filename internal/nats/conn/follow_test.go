package conn_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// TestFollowUnheard follows a stream on a server that learns of the new consumer a moment
// after its creation, like a server of a cluster: earlier requests to it are lost. The
// messages arrive as soon as the server has the consumer, all of them.
func TestFollowUnheard(t *testing.T) {
	for name, deaf := range map[string]time.Duration{"at once": 0, "soon": 30 * time.Millisecond, "late": 400 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *conn.Conn, w *natstest.Wire) {
				// The messages of one request. More need a second one, which nats.go makes
				// two heartbeats late if these are read before the goroutine that wrote the
				// first one continues (fetchInProgress in its checkPending).
				const messages = conn.FollowAhead
				for range messages {
					must.Get(c.Messages.Publish(t.Context(), &nats.Msg{Subject: streams.PrefixEvent + "1.0.default.s", Data: []byte("x")}))(t)
				}
				var made time.Time
				lost := 0
				w.Set(nil, func(b []byte) bool {
					if made.IsZero() && bytes.Contains(b, []byte("$JS.API.CONSUMER.CREATE.EV_1_0")) {
						made = time.Now()
					}
					if !made.IsZero() && time.Since(made) < deaf {
						lost += bytes.Count(b, []byte("$JS.API.CONSUMER.MSG.NEXT.EV_1_0"))
						copy(b, bytes.ReplaceAll(b, []byte("$JS.API.CONSUMER.MSG.NEXT.EV_1_0"), []byte("$JS.API.CONSUMER.MSG.LOST.EV_1_0")))
					}
					return true
				})
				ctx, cancel := context.WithCancel(t.Context())
				in := make(chan conn.Message, messages)
				done := make(chan error, 1)
				began := time.Now()
				go func() { done <- c.Messages.Follow(ctx, streams.EventStream(1, 0), ">", 1, in) }()
				for want := uint64(1); want <= messages; want++ {
					if m := <-in; m.Seq != want {
						t.Errorf("message %d, want %d", m.Seq, want)
					}
				}
				if d := time.Since(began); d > 2*deaf+20*time.Millisecond {
					t.Errorf("the messages came after %v, the server was deaf for %v", d, deaf)
				}
				cancel()
				if err := <-done; err == nil || !strings.Contains(err.Error(), "canceled") {
					t.Error(err)
				}
				w.Set(nil, nil)
				if (lost > 0) != (deaf > 0) {
					t.Errorf("%d requests were lost", lost)
				}
			})
		})
	}
}

// TestFollowWithoutServer: while no server is reached, a follower logs that once, and
// follows when there is one again. Other requests fail with the missing connection.
func TestFollowWithoutServer(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *conn.Conn, w *natstest.Wire) {
		var said bytes.Buffer
		c.Logger = slog.New(slog.NewTextHandler(&said, nil))
		in := make(chan conn.Message, conn.FollowAhead)
		following, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Messages.Follow(following, streams.EventStream(1, 0), ">", 1, in) }()
		publish := func(want uint64) {
			t.Helper()
			must.Get(c.Messages.Publish(t.Context(), &nats.Msg{Subject: streams.PrefixEvent + "1.0.default.s", Data: []byte("x")}))(t)
			if m := <-in; m.Seq != want {
				t.Errorf("message %d, want %d", m.Seq, want)
			}
		}
		publish(1)
		cut := func([]byte) bool { return false }
		w.Set(cut, cut)
		time.Sleep(time.Minute)
		if _, err := c.Request(t.Context(), &nats.Msg{Subject: "rath.query.default.runs"}); err == nil || err.Error() != "no connection to NATS" {
			t.Errorf("a request without a server: %v", err)
		}
		w.Set(nil, nil)
		time.Sleep(time.Minute)
		publish(2)
		stop()
		<-done
		if n := strings.Count(said.String(), "following a stream again"); n != 1 {
			t.Errorf("it is said %d times that the stream is followed again, want 1:\n%.600s", n, said.String())
		}
	})
}

// layer connects in the tests.
var layer = streamstest.Layer[*conn.Conn](func(s *streams.Streams) *conn.Conn { return s.Conn })

func TestMain(m *testing.M) { natstest.Main(m) }
