package natstest_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m) }

type dialer func() (net.Conn, error)

func (d dialer) InProcessConn() (net.Conn, error) { return d() }

func connect(t *testing.T, srv *natsserver.Server) *nats.Conn {
	t.Helper()
	user, password := srv.Node()
	nc := must.Get(nats.Connect("", nats.InProcessServer(dialer(srv.Dial)), nats.UserInfo(user, password)))(t)
	return nc
}

// TestVirtualTime is the canary: if nats-server changes its state per process, this test
// hangs, and so do the other bubble tests.
func TestVirtualTime(t *testing.T) {
	for _, storage := range []jetstream.StorageType{jetstream.FileStorage, jetstream.MemoryStorage} {
		t.Run(storage.String(), func(t *testing.T) {
			real := outside()
			synctest.Test(t, func(t *testing.T) {
				redeliver(t, storage)
			})
			if d := real(); d > 20*time.Second {
				t.Errorf("31 virtual seconds took %v: JetStream does not run in virtual time", d)
			}
		})
	}
}

// TestSlowLogin has a client send its credentials when its machine lets it, 5 s late.
func TestSlowLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		c := must.Get(srv.Dial())(t)
		defer c.Close()
		from := bufio.NewReader(c)
		if line, err := from.ReadString('\n'); err != nil || !strings.HasPrefix(line, "INFO ") {
			t.Fatalf("the server says %q, %v", line, err)
		}
		time.Sleep(5 * time.Second)
		user, password := srv.Operator()
		must.Get(fmt.Fprintf(c, "CONNECT {\"user\":%q,\"pass\":%q,\"verbose\":false}\r\nPING\r\n", user, password))(t)
		for {
			line, err := from.ReadString('\n')
			if err != nil {
				t.Fatalf("no answer to a login after 5 s: %v", err)
			}
			if line == "PONG\r\n" {
				return
			}
		}
	})
}

// TestDrainsAtTheEnd ends with a subscription that drains: nats.go notices that its
// connection is closed a little later.
func TestDrainsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc := connect(t, natstest.Start(t, nil))
		defer nc.Close()
		sub, err := nc.SubscribeSync("x")
		if err == nil {
			err = errors.Join(nc.Publish("x", nil), nc.Flush())
		}
		if err == nil {
			err = sub.Drain()
		}
		must.Do(t, err)
		synctest.Wait()
	})
}

// outside measures real time; it is called outside the bubble.
func outside() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

func redeliver(t *testing.T, storage jetstream.StorageType) {
	ctx := t.Context()
	srv := natstest.Start(t, nil)
	nc := connect(t, srv)
	defer nc.Close()
	js := must.Get(jetstream.New(nc))(t)
	s := must.Get(js.CreateStream(ctx, jetstream.StreamConfig{Name: "T", Subjects: []string{"t.>"}, Storage: storage}))(t)
	c := must.Get(s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second}))(t)
	must.Get(js.Publish(ctx, "t.a", []byte("x")))(t)
	start := time.Now()
	must.Get(c.Next())(t)
	m := must.Get(c.Next(jetstream.FetchMaxWait(time.Minute)))(t)
	meta := must.Get(m.Metadata())(t)
	if d := time.Since(start); meta.NumDelivered != 2 || d < 30*time.Second || d > 31*time.Second {
		t.Errorf("delivery %d after %v, want the second after 30s", meta.NumDelivered, d)
	}
	must.Report(t, m.DoubleAck(ctx))
}

// TestRestart starts a second server on the directory of the first, both in one bubble, and
// finds the stored data.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		opts := &natsserver.Options{StoreDir: t.TempDir()}
		first := natstest.Start(t, opts)
		nc := connect(t, first)
		js, err := jetstream.New(nc)
		must.Do(t, err)
		must.Get(js.CreateStream(ctx, jetstream.StreamConfig{Name: "T", Subjects: []string{"t.>"}}))(t)
		must.Get(js.Publish(ctx, "t.a", []byte("kept")))(t)
		nc.Close()
		must.Do(t, first.Shutdown(ctx))

		nc = connect(t, natstest.Start(t, opts))
		defer nc.Close()
		js, err = jetstream.New(nc)
		must.Do(t, err)
		s, err := js.Stream(ctx, "T")
		must.Do(t, err)
		m, err := s.GetLastMsgForSubject(ctx, "t.a")
		if err != nil || string(m.Data) != "kept" {
			t.Errorf("after the restart: %v, %v", m, err)
		}
	})
}
