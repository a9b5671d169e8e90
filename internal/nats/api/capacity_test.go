package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// steps is a workflow of steps, each of which may be made twice and waits for a gate. It
// calls at when it waits at one.
func steps(gates []chan struct{}, at func(step int)) flow.Registration {
	return flow.Registration{Name: "steps", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
			for i, gate := range gates {
				_, err := flow.Do(ctx, fmt.Sprint("step", i), func(ctx context.Context) (string, error) {
					at(i)
					select {
					case <-gate:
						return strings.Repeat("x", 1000), nil
					case <-ctx.Done():
						return "", context.Cause(ctx)
					}
				}, tool.ReadOnly)
				if err != nil {
					return v, err
				}
			}
			return v.With(session.UserText("made")), nil
		})
	}}
}

// filler fills event streams to a given level: it stores a message, and changes their
// limit.
type filler struct {
	t  *testing.T
	n  *node
	nc *nats.Conn
	js jetstream.JetStream
}

// store has a tenant hold some 100 kB for each run.
func (f *filler) store(tenant session.Tenant, runs int) {
	f.t.Helper()
	text := strings.Repeat("much ", 5000)
	for i := range runs {
		ask(f.t, f.nc, "rath.task."+string(tenant)+".operator.agent", fmt.Sprintf(`{"id":"fill%d","input":%q}`, i, text))
	}
	for i := range runs {
		tenantResult(f.t, f.n.conn, tenant, run.ID(fmt.Sprint("fill", i)))
	}
}

// limit makes the streams' current contents percent of their limit, and waits until the
// nodes have noticed.
func (f *filler) limit(percent uint64) {
	f.t.Helper()
	for p := range f.n.conn.Streams.Partitions() {
		s := must.Get(f.js.Stream(f.t.Context(), streams.EventStream(f.n.conn.Streams.Generation(), p)))(f.t)
		cfg := s.CachedInfo().Config
		cfg.MaxBytes = int64(s.CachedInfo().State.Bytes * 100 / percent)
		must.Get(f.js.UpdateStream(f.t.Context(), cfg))(f.t)
	}
	time.Sleep(5 * time.Second)
}

// commits is how many commits all streams hold.
func (f *filler) commits() (n uint64) {
	f.t.Helper()
	for p := range f.n.conn.Streams.Partitions() {
		s := must.Get(f.js.Stream(f.t.Context(), streams.EventStream(f.n.conn.Streams.Generation(), p)))(f.t)
		n += s.CachedInfo().State.Msgs
	}
	return n
}

// TestNeededStreamsFillUp fills, one after the other, the streams that every run needs
// beside its log. An open run ends and its result is stored; no run begins, and clients get
// the name of the full stream; with room again the waiting runs resume.
func TestNeededStreamsFillUp(t *testing.T) {
	for _, name := range []string{streams.StreamBlob, "KV_" + streams.BucketAlias, streams.StreamResult} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := natstest.Start(t, nil)
				n := startNodeWith(t, srv, "node-1", &spec{})
				nc, js := operatorOf(t, srv)
				f := &filler{t, n, nc, js}
				f.store("default", 10)
				submit(t, nc, "hold", `{"id":"open"}`)
				time.Sleep(time.Second)
				s, err := js.Stream(t.Context(), name)
				must.Do(t, err)
				cfg := s.CachedInfo().Config
				usual := cfg.MaxBytes
				if s.CachedInfo().State.Bytes < 1000 { // blobs: texts are in the log
					must.Get(js.Publish(t.Context(), strings.TrimSuffix(cfg.Subjects[0], ">")+"default.x", make([]byte, 10_000)))(t)
					if s, err = js.Stream(t.Context(), name); err != nil {
						t.Fatal(err)
					}
				}
				limit := func(most int64) { limitTo(t, js, cfg, most) }
				limit(int64(s.CachedInfo().State.Bytes * 100 / 87))
				had := f.commits()
				submit(t, nc, "agent", `{"id":"new","input":"x"}`)
				time.Sleep(time.Minute)
				if have := f.commits(); have != had {
					t.Errorf("%d commits came", have-had)
				}
				if a := ask(t, nc, "rath.ctl.default.anonymous.fill1.rerun", `{}`); a["code"] != string(run.CodeBusy) || !strings.Contains(fmt.Sprint(a["error"]), name+" holds 8") {
					t.Errorf("who asks to run something again is told %v", a)
				}
				nodes, err := n.conn.Nodes(t.Context())
				if err != nil || len(nodes) != 1 || len(nodes[0].Full) != 1 || nodes[0].Full[0].Stream != name || nodes[0].Full[0].Room != messages.RoomOpen {
					t.Errorf("the node is shown as %+v, %v", nodes, err)
				}
				close(n.hold)
				succeeded(t, nc, "open")
				limit(usual)
				time.Sleep(30 * time.Second)
				succeeded(t, nc, "new")
				n.stop()
			})
		})
	}
}

// TestStreamsFillUp fills the event streams while runs are at work. At 85 % no run begins
// and the others continue. At 95 % runs make no step, but end, and are cancelled. With room
// again everything resumes by itself.
func TestStreamsFillUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		gates := []chan struct{}{make(chan struct{}), make(chan struct{})}
		reached := make(chan int, 64)
		n := startNodeWith(t, srv, "node-1", &spec{more: []flow.Registration{steps(gates, func(i int) { reached <- i })}})
		nc, js := operatorOf(t, srv)
		f := &filler{t, n, nc, js}
		f.store("default", 20)
		submit(t, nc, "hold", `{"id":"ends"}`)
		submit(t, nc, "steps", `{"id":"open"}`)
		submit(t, nc, "steps", `{"id":"stopped"}`)
		for range 2 {
			<-reached
		}
		state := func(id string) any {
			return ask(t, nc, "rath.query.default.run", fmt.Sprintf(`{"run":%q}`, id))["state"]
		}

		f.limit(87)
		had := f.commits()
		told, err := nc.SubscribeSync("rath.run.default.new.event")
		must.Do(t, err)
		submit(t, nc, "agent", `{"id":"new","input":"x"}`)
		late := time.Now().Add(20 * time.Second).UTC().Format(time.RFC3339)
		submit(t, nc, "agent", fmt.Sprintf(`{"id":"late","input":"x","deadline":%q}`, late))
		time.Sleep(time.Minute)
		if have := f.commits(); have != had {
			t.Errorf("at 87 %% %d commits came", have-had)
		}
		if waits := n.pending(t); waits != 1 {
			t.Errorf("%d tasks wait, want one", waits)
		}
		if r := resultOf(t, nc, "late"); r["state"] != "failed" || r["code"] != "deadline_exceeded" || !strings.Contains(fmt.Sprint(r["error"]), "rath cluster prune") {
			t.Errorf("the task whose deadline passed: %v", r)
		}
		if m, err := told.NextMsg(time.Second); err != nil {
			t.Errorf("nobody is told that a task waits: %v", err)
		} else if e := read(t, m.Data); e["kind"] != "held" || e["code"] != "busy" || !strings.Contains(fmt.Sprint(e["reason"]), "87 %") {
			t.Errorf("who watches a task that waits is told %v", e)
		}
		close(gates[0])
		for range 2 {
			if at := <-reached; at != 1 {
				t.Errorf("at 87 %% a run is at step %d", at)
			}
		}
		nodes, err := n.conn.Nodes(t.Context())
		if err != nil || len(nodes) != 1 || len(nodes[0].Full) != 2 || nodes[0].Full[0].Room != messages.RoomOpen {
			t.Errorf("the node is shown as %+v, %v", nodes, err)
		}

		f.limit(96)
		had = f.commits()
		close(gates[1])
		time.Sleep(time.Minute)
		if have := f.commits(); have != had {
			t.Errorf("at 96 %% %d commits came", have-had)
		}
		for _, id := range []string{"open", "stopped"} {
			if s := state(id); s != "running" {
				t.Errorf("at 96 %% run %s is %v", id, s)
			}
		}
		if a := ask(t, nc, "rath.ctl.default.anonymous.stopped.cancel", `{"id":"c1","reason":"enough"}`); a["error"] != nil {
			t.Errorf("a cancel at 96 %% is answered with %v", a)
		}
		if r := resultOf(t, nc, "stopped"); r["state"] != "cancelled" {
			t.Errorf("who was cancelled at 96 %%: %v", r)
		}
		close(n.hold)
		succeeded(t, nc, "ends")

		f.limit(50)
		succeeded(t, nc, "open", "new")
		n.stop()
	})
}

// TestGreedyTenant: in a stream that is filling up, the tenant that holds most of it gets
// no more room, and the others do.
func TestGreedyTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		n := startNode(t, srv, "node-1")
		nc, js := operatorOf(t, srv)
		f := &filler{t, n, nc, js}
		f.store("greedy", 20)
		f.limit(75)
		ask(t, nc, "rath.task.greedy.operator.agent", `{"id":"alone","input":"x"}`)
		if r := tenantResult(t, n.conn, "greedy", "alone"); r.State != run.Succeeded {
			t.Errorf("a tenant that nobody is beside of: %+v", r)
		}
		f.limit(20)
		f.store("other", 4)
		f.limit(75)
		time.Sleep(30 * time.Second)
		ask(t, nc, "rath.task.greedy.operator.agent", `{"id":"more","input":"x"}`)
		ask(t, nc, "rath.task.other.operator.agent", `{"id":"more","input":"x"}`)
		if r := tenantResult(t, n.conn, "other", "more"); r.State != run.Succeeded {
			t.Errorf("the other tenant: %+v", r)
		}
		time.Sleep(time.Minute)
		if waits := n.pending(t); waits != 1 {
			t.Errorf("%d tasks wait, want that of the greedy tenant", waits)
		}
		f.limit(60)
		if r := tenantResult(t, n.conn, "greedy", "more"); r.State != run.Succeeded {
			t.Errorf("the greedy tenant: %+v", r)
		}
		n.stop()
	})
}

// limitTo gives a stream another size, and returns when nodes have seen that.
func limitTo(t *testing.T, js jetstream.JetStream, cfg jetstream.StreamConfig, most int64) {
	t.Helper()
	cfg.MaxBytes = most
	must.Get(js.UpdateStream(t.Context(), cfg))(t)
	time.Sleep(5 * time.Second)
}

// TestBlobsFull: a run whose data finds no room in BLOB stops, and resumes by itself when
// there is room.
func TestBlobsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		gate, reached := make(chan struct{}), make(chan struct{}, 64)
		large := flow.Registration{Name: "large", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
				reached <- struct{}{}
				<-gate
				return v.With(session.UserText(strings.Repeat("x", 300_000))), nil
			})
		}}
		n := startNodeWith(t, srv, "node-1", &spec{more: []flow.Registration{large}})
		nc, js := operatorOf(t, srv)
		submit(t, nc, "large", `{"id":"open"}`)
		<-reached
		must.Get(js.Publish(t.Context(), "rath.blob.default.x", make([]byte, 100_000)))(t)
		s := must.Get(js.Stream(t.Context(), streams.StreamBlob))(t)
		cfg := s.CachedInfo().Config
		usual := cfg.MaxBytes
		limit := func(most int64) { limitTo(t, js, cfg, most) }
		limit(int64(s.CachedInfo().State.Bytes * 100 / 97))
		close(gate)
		time.Sleep(time.Minute)
		if r := ask(t, nc, "rath.query.default.run", `{"run":"open"}`); r["state"] != "running" {
			t.Errorf("without room for its data the run is %v: %v", r["state"], r["reason"])
		}
		limit(usual)
		succeeded(t, nc, "open")
		n.stop()
	})
}
