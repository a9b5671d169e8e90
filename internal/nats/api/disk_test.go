package api_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestDiskFillsUp fills the disk of the store while runs are at work: first no run begins,
// then none makes a step, then no write succeeds and all writers get an error at once. With
// room again everything resumes by itself.
func TestDiskFillsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		var free atomic.Int64
		free.Store(1000 * mib)
		space := func(string) (natsserver.Space, error) {
			return natsserver.Space{Free: free.Load(), Total: 2000 * mib}, nil // 100 are kept
		}
		srv := natstest.Start(t, &natsserver.Options{Space: space})
		gates := []chan struct{}{make(chan struct{}), make(chan struct{})}
		reached := make(chan int, 64)
		n := startNodeWith(t, srv, "node-1", &spec{
			more: []flow.Registration{steps(gates, func(i int) { reached <- i })},
			disk: func() streams.Disk {
				d := srv.Disk()
				return streams.Disk{Free: d.Free, Total: d.Total, Kept: d.Kept(), Failed: d.Failed}
			},
		})
		nc, js := operatorOf(t, srv)
		f := &filler{t, n, nc, js}
		left := func(bytes int64) {
			free.Store(bytes)
			time.Sleep(13700 * time.Millisecond) // a node renews its entry
		}
		shown := func(room string) {
			t.Helper()
			nodes, err := n.conn.Nodes(t.Context())
			if err != nil || len(nodes) != 1 || len(nodes[0].Full) != 1 || nodes[0].Full[0].Stream != messages.FullDisk || nodes[0].Full[0].Room != room {
				t.Errorf("the node is shown as %+v, %v", nodes, err)
			}
			if err := n.conn.Streams.Answering(t.Context()); !errors.Is(err, conn.ErrFull) || !strings.Contains(err.Error(), "the disk of the store has ") {
				t.Errorf("whether it can work is told as %v", err)
			}
		}
		if err := n.conn.Streams.Answering(t.Context()); err != nil {
			t.Errorf("with room: %v", err)
		}
		submit(t, nc, "hold", `{"id":"ends"}`)
		submit(t, nc, "hold", `{"id":"stopped"}`)
		submit(t, nc, "steps", `{"id":"open"}`)
		<-reached

		left(190 * mib)
		shown(messages.RoomOpen)
		had := f.commits()
		told, err := nc.SubscribeSync("rath.run.default.new.event")
		must.Do(t, err)
		submit(t, nc, "agent", `{"id":"new","input":"x"}`)
		time.Sleep(time.Minute)
		if have := f.commits(); have != had {
			t.Errorf("%d commits came", have-had)
		}
		if m, err := told.NextMsg(time.Second); err != nil {
			t.Errorf("that a task waits is not told: %v", err)
		} else if e := read(t, m.Data); e["kind"] != "held" || !strings.Contains(fmt.Sprint(e["reason"]), "190.0 MiB free") {
			t.Errorf("who watches a task that waits is told %v", e)
		}
		close(gates[0])
		if at := <-reached; at != 1 {
			t.Errorf("a run is at step %d", at)
		}

		left(90 * mib)
		shown(messages.RoomEnds)
		had = f.commits()
		close(gates[1])
		time.Sleep(time.Minute)
		if have := f.commits(); have != had {
			t.Errorf("below the reserve %d commits came", have-had)
		}
		if a := ask(t, nc, "rath.ctl.default.anonymous.stopped.cancel", `{"id":"c1","reason":"enough"}`); a["error"] != nil {
			t.Errorf("a cancel is answered with %v", a)
		}
		if r := resultOf(t, nc, "stopped"); r["state"] != "cancelled" {
			t.Errorf("who was cancelled: %v", r)
		}

		left(40 * mib)
		shown(messages.RoomNone)
		client, err := api.Connect(t.Context(), &streams.Options{Options: conn.Options{Dialer: srv.Dial}, Client: true})
		must.Do(t, err)
		defer client.Conn.Close()
		began := time.Now()
		_, err = client.Requests.Submit(t.Context(), session.DefaultTenant, "agent", "", []byte(`{"id":"none","input":"x"}`))
		if !errors.Is(err, conn.ErrFull) || !strings.Contains(err.Error(), "disk") || time.Since(began) > 0 {
			t.Errorf("who submits is told %v after %v", err, time.Since(began))
		}
		had = f.commits()
		close(n.hold)
		if a := ask(t, nc, "rath.ctl.default.anonymous.ends.message", `{"id":"m1","text":"x"}`); a["error"] == nil {
			t.Errorf("a message is answered with %v", a)
		}
		if have := f.commits(); have != had {
			t.Errorf("without room %d commits came", have-had)
		}

		left(1000 * mib)
		succeeded(t, nc, "ends", "open", "new")
		if err := n.conn.Streams.Answering(t.Context()); err != nil {
			t.Errorf("with room again: %v", err)
		}
		if s, err := n.conn.Projections.Result(t.Context(), session.DefaultTenant, run.ID("none")); !errors.Is(err, run.ErrUnknownRun) {
			t.Errorf("what was refused is there: %+v, %v", s, err)
		}
		n.stop()
	})
}
