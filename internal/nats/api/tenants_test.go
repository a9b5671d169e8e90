package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// taskTime is how long a run of "busy" takes.
const taskTime = 500 * time.Millisecond

// busy takes a slot for a while.
func busy(class string, began func()) flow.Registration {
	return flow.Registration{Name: "busy" + class, Revision: "1", Batch: class == "batch", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
			if began != nil {
				began()
			}
			time.Sleep(taskTime)
			return v.With(session.UserText("done")), nil
		})
	}}
}

// TestTenantsTakeTurns lets one tenant submit ten thousand tasks, most of which are
// answered as busy, to nodes without free slots. The first task of another tenant waits for
// at most two task times, and so does the first one of a third.
func TestTenantsTakeTurns(t *testing.T) {
	for _, slots := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d slots", slots), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := natstest.Start(t, nil)
				sp := &spec{slots: slots, more: []flow.Registration{busy("", nil)}}
				nodes := []*node{startNodeWith(t, srv, "node-a", sp), startNodeWith(t, srv, "node-b", sp)}
				a := nodes[0]
				nc, _ := operatorOf(t, srv) // for all tenants
				refused, sent := 0, 0
				flood := func(n int) {
					for range n {
						sent++
						ack := ask(t, nc, "rath.task.greedy.operator.busy", fmt.Sprintf(`{"id":"g%d"}`, sent))
						switch e, _ := ack["error"].(map[string]any); {
						case ack["error"] == nil:
						case e["err_code"] == 10077.0:
							refused++
						default:
							t.Fatalf("acknowledgement: %v", ack)
						}
					}
				}
				flood(10_000)
				if refused < 8_000 {
					t.Errorf("%d of 10,000 tasks were refused, want most", refused)
				}
				time.Sleep(3 * taskTime)
				for _, tenant := range []session.Tenant{"modest", "third"} {
					for i := range 3 {
						a.servedSoon(t, nc, tenant, fmt.Sprintf("%s%d", tenant, i))
					}
				}
				// The slots were in use all the time.
				began, before := time.Now(), results(t, a, "greedy")
				time.Sleep(10 * taskTime)
				done := results(t, a, "greedy") - before
				if want := int(time.Since(began)/taskTime) * 2 * slots * 9 / 10; done < want {
					t.Errorf("%d tasks in %v, want %d", done, time.Since(began), want)
				}
				for _, n := range nodes {
					n.stop()
				}
			})
		})
	}
}

// TestTenantsTakeTurnsAcrossPools has the nodes of one pool ingest tasks for another pool,
// whose slots one tenant's tasks fill. The first task of another tenant begins within two
// task times, and so do the next ones.
func TestTenantsTakeTurnsAcrossPools(t *testing.T) {
	for _, slots := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d slots", slots), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := natstest.Start(t, nil)
				a := startNodeWith(t, srv, "node-a", &spec{slots: slots})
				g := startNodeWith(t, srv, "node-g", &spec{slots: slots, pool: "gpu", only: []flow.Registration{busy("", nil)}})
				nc, _ := operatorOf(t, srv) // for all tenants
				full, sent := false, 0
				flood := func(n int) {
					for range n {
						sent++
						if ack := ask(t, nc, "rath.task.greedy.operator.busy", fmt.Sprintf(`{"id":"g%d"}`, sent)); ack["error"] != nil {
							full = true
						}
					}
				}
				flood(2200)
				if !full {
					t.Error("none of 2,200 tasks was refused: the test shows little")
				}
				time.Sleep(3 * taskTime)
				for round := range 4 {
					for i := range 2 {
						tenant := session.Tenant(fmt.Sprintf("modest%d", round))
						a.servedSoon(t, nc, tenant, fmt.Sprintf("%s-%d", tenant, i))
					}
					flood(50)
					time.Sleep(time.Duration(round) * 170 * time.Millisecond)
				}
				// The slots were in use all the time.
				began, before := time.Now(), results(t, a, "greedy")
				time.Sleep(10 * taskTime)
				done := results(t, a, "greedy") - before
				if want := int(time.Since(began)/taskTime-1) * slots * 9 / 10; done < want {
					t.Errorf("%d tasks in %v, want %d", done, time.Since(began), want)
				}
				g.stop()
				a.stop()
			})
		})
	}
}

// TestManyUsersOfATenant has 1,000 users of one tenant submit tasks that no node begins
// until each of them is refused. The stream has room all the same: the task of another
// tenant is accepted, and runs. To be done in a minute it has a tenth of the bound of each
// user, and of the bytes of the stream.
func TestManyUsersOfATenant(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, _ *nats.Conn) {
		a := startNodeWith(t, srv, "node-a", &spec{partitions: 1})
		a.offer(t, "gpu", "busy")
		user, password := srv.Node() // which may name any user
		nc := must.Get(nats.Connect("", nats.InProcessServer(inProcess(srv.Dial)), nats.UserInfo(user, password), nats.CustomInboxPrefix(conn.NodeInbox)))(t)
		defer nc.Close()
		acks := must.Get(nc.SubscribeSync(nc.NewRespInbox()))(t)
		op, js := operatorOf(t, srv)
		s := must.Get(js.Stream(t.Context(), streams.StreamTasks))(t)
		cfg := s.CachedInfo().Config
		cfg.MaxMsgsPerSubject, cfg.MaxBytes = cfg.MaxMsgsPerSubject/10, cfg.MaxBytes/10
		must.Get(js.UpdateStream(t.Context(), cfg))(t)
		const users, atOnce = 1000, 11
		accepted := 0
		for u := range users {
			subject := messages.TaskSubject("greedy", fmt.Sprint("user", u), "busy")
			for n, refused := 0, false; !refused; n++ {
				for i := range atOnce {
					must.Do(t, nc.PublishRequest(subject, acks.Subject, fmt.Appendf(nil, `{"id":"g%d-%d-%d"}`, u, n, i)))
				}
				for range atOnce {
					m := must.Get(acks.NextMsg(time.Minute))(t)
					ack, _ := read(t, m.Data)["error"].(map[string]any)
					switch {
					case ack == nil:
						accepted++
					case ack["err_code"] != 10077.0 || ack["description"] != "maximum messages per subject exceeded":
						t.Fatalf("user %d is answered %v, want that many of its own tasks wait", u, ack)
					default:
						refused = true
					}
				}
			}
		}
		t.Logf("%d tasks of %d users were accepted, %d are in no log", accepted, users, a.pending(t))
		if ack := ask(t, op, "rath.task.modest.operator.agent", `{"id":"one","input":"x"}`); ack["error"] != nil {
			t.Fatalf("the task of another tenant: %v", ack)
		}
		if r := tenantResult(t, a.conn, "modest", "one"); r.State != run.Succeeded {
			t.Errorf("the task of another tenant: %+v", r)
		}
		a.stop()
	})
}

// servedSoon submits a task of a tenant whose tasks are few, and demands that it
// waits for two tasks of others at most.
func (n *node) servedSoon(t *testing.T, nc *nats.Conn, tenant session.Tenant, id string) {
	t.Helper()
	began := time.Now()
	if ack := ask(t, nc, "rath.task."+string(tenant)+".operator.busy", fmt.Sprintf(`{"id":%q}`, id)); ack["error"] != nil {
		t.Fatalf("acknowledgement: %v", ack)
	}
	r := tenantResult(t, n.conn, tenant, run.ID(id))
	waited := time.UnixMilli(r.EndedMS).Sub(began) - taskTime
	t.Logf("%s waited %.1f task times", id, float64(waited)/float64(taskTime))
	if r.State != run.Succeeded || waited > 2*taskTime {
		t.Errorf("%s %s after a wait of %v, want at most %v", id, r.State, waited, 2*taskTime)
	}
}

func tenantResult(t *testing.T, c *api.Conn, tenant session.Tenant, id run.ID) messages.Result {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		data, err := c.Requests.Query(t.Context(), tenant, messages.QueryResult, wire.Query{Run: id})
		if err == nil {
			var r messages.Result
			must.Do(t, json.Unmarshal(data, &r))
			return r
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("no result of %s: %v", id, err)
		}
	}
}

// results counts a tenant's results.
func results(t *testing.T, n *node, tenant session.Tenant) int {
	t.Helper()
	s := must.Get(n.operator().Stream(t.Context(), streams.StreamResult))(t)
	info := must.Get(s.Info(t.Context(), jetstream.WithSubjectFilter("rath.run."+string(tenant)+".*.result")))(t)
	return len(info.State.Subjects)
}

// TestSlotIsGrantedOnce has a relay repeat its demand while a slot is reserved for it: that
// is no answer, and no relay is granted the slot a second time. A relay that returns the
// slot is granted it again.
func TestSlotIsGrantedOnce(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, _ *nats.Conn) {
		a := startNodeWith(t, srv, "node-a", &spec{slots: 1})
		nc, _ := operatorOf(t, srv)
		time.Sleep(3 * time.Second)
		told := make(chan *nats.Msg, 16)
		sub := must.Get(nc.ChanSubscribe("rath.node.grant.1.*", told))(t)
		var grants []uint64
		demand := func(partition int, more string) {
			body := fmt.Sprintf(`{"generation":1,"partition":%d,"demand":{"heads":[{"tenant":"t1"}]}%s}`, partition, more)
			must.Do(t, nc.Publish(messages.NodeSubject("node-a", "demand"), []byte(body)))
			time.Sleep(10 * time.Millisecond)
			for len(told) > 0 {
				m := <-told
				var g struct {
					Grant uint64 `json:"grant"`
				}
				if err := json.Unmarshal(m.Data, &g); err != nil || g.Grant == 0 {
					t.Errorf("grant %s: %v", m.Data, err)
				}
				grants = append(grants, g.Grant)
			}
		}
		demand(77, "") // partitions that have no relay
		demand(78, "")
		demand(77, "")
		if len(grants) != 1 {
			t.Fatalf("the slot was granted %d times, want once", len(grants))
		}
		demand(77, fmt.Sprintf(`,"grant":%d`, grants[0]))
		if len(grants) != 2 || grants[1] == grants[0] {
			t.Errorf("grants %v, want another one for a slot that was given back", grants)
		}
		must.Report(t, sub.Unsubscribe())
		a.stop()
	})
}

// TestPools submits tasks of one pool's workflows where only another pool has
// nodes, and has both kinds of work wait.
func TestPools(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		var order []string
		note := func(what string) func() { return func() { order = append(order, what) } }
		gpu := &spec{slots: 1, pool: "gpu", only: []flow.Registration{busy("", note("interactive")), busy("batch", note("batch"))}}
		a, g := startNode(t, srv, "node-a"), startNodeWith(t, srv, "node-g", gpu)
		// A process that takes over partitions may repeat the last offers, which would stay
		// here.
		time.Sleep(3 * time.Second)
		submit(t, nc, "busy", `{"id":"r1"}`)
		submit(t, nc, "agent", `{"id":"r2","input":"x"}`)
		succeeded(t, nc, "r1", "r2")
		time.Sleep(3 * time.Second)
		g.stop()
		for i := range 5 {
			submit(t, nc, "busybatch", fmt.Sprintf(`{"id":"b%d"}`, i))
			submit(t, nc, "busy", fmt.Sprintf(`{"id":"i%d"}`, i))
		}
		time.Sleep(5 * time.Second)
		if n := a.pending(t); n != 0 {
			t.Errorf("%d tasks are in no log", n)
		}
		if r := ask(t, nc, "rath.query.default.run", `{"run":"b0"}`); r["state"] != "queued" {
			t.Errorf("run %v", r)
		}
		// The view of autoscalers.
		want := []dispatch.PoolWaiting{{Pool: "gpu", Class: messages.ClassInteractive, Runs: 5}, {Pool: "gpu", Class: messages.ClassBatch, Runs: 5}}
		if got, err := a.conn.Dispatch.Waiting(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v wait, %v; want %v", got, err, want)
		}
		order = nil
		g = startNodeWith(t, srv, "node-g2", gpu)
		for i := range 5 {
			for _, id := range []string{"b", "i"} {
				succeeded(t, nc, fmt.Sprintf("%s%d", id, i))
			}
		}
		// Requests sent before the first answer may be for a batch run.
		if last := len(order) - 1 - slices.Index(reversed(order), "interactive"); len(order) != 10 || last > 6 {
			t.Errorf("the order was %v, want interactive runs first", order)
		}
		g.stop()
		a.stop()
	})
}

// offer has a pool without nodes offer a workflow.
func (n *node) offer(t *testing.T, pool, workflow string) {
	t.Helper()
	must.Do(t, n.conn.Dispatch.Registry.Register(t.Context(), pool, []messages.Workflow{{Name: workflow, Revision: "1"}}))
}

func reversed(all []string) []string {
	out := slices.Clone(all)
	slices.Reverse(out)
	return out
}

// TestPoolIsBounded submits more tasks of a pool without nodes than may wait in
// logs.
func TestPoolIsBounded(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		a := startNodeWith(t, srv, "node-a", &spec{partitions: 1})
		a.offer(t, "gpu", "busy")
		for i := range 1060 {
			submit(t, nc, "busy", fmt.Sprintf(`{"id":"r%d"}`, i))
			if i%50 == 49 {
				time.Sleep(time.Second)
			}
		}
		time.Sleep(30 * time.Second)
		// The partition holds 1,024.
		if n := a.pending(t); n < 20 || n > 100 {
			t.Errorf("%d of 1,060 tasks are in no log, want about 36", n)
		}
		submit(t, nc, "agent", `{"id":"other","input":"x"}`)
		succeeded(t, nc, "other")
		g := startNodeWith(t, srv, "node-g", &spec{partitions: 1, pool: "gpu", only: []flow.Registration{busy("", nil)}})
		for i := range 1060 {
			succeeded(t, nc, fmt.Sprintf("r%d", i))
		}
		g.stop()
		a.stop()
	})
}

// TestDeadLetters lists, retries and drops the refused tasks of a tenant.
func TestDeadLetters(t *testing.T) {
	story(t, func(t *testing.T, n *node, nc *nats.Conn) {
		submit(t, nc, "agent", `{"id":"r1","input":"once"}`)
		if r := resultOf(t, nc, "r1"); r["state"] != "succeeded" {
			t.Fatal(r)
		}
		submit(t, nc, "nap", `{"id":"n1","input":"1ms"}`)         // no node offers it yet
		submit(t, nc, "agent", `{"id":"r1","input":"another"}`)   // an id that is taken
		submit(t, nc, "agent", `{"id":"m1","inptu":"a mistake"}`) // refused for ever
		time.Sleep(time.Second)
		c, err := api.Connect(t.Context(), &streams.Options{Options: conn.Options{Dialer: n.srv.Dial}, Client: true})
		must.Do(t, err)
		defer c.Conn.Close()
		tenant := session.DefaultTenant
		page := func(after uint64, limit int) wire.DeadLetters {
			t.Helper()
			p := must.Get(c.Requests.DeadLetters(t.Context(), tenant, after, limit))(t)
			return p
		}
		all := page(0, 0)
		if len(all.Letters) != 3 || all.Next != 0 {
			t.Fatalf("letters %+v", all)
		}
		at := map[run.ID]uint64{}
		for _, l := range all.Letters {
			at[l.Letter.Run] = l.At
		}
		if p := page(0, 2); len(p.Letters) != 2 || p.Next == 0 || len(page(p.Next, 2).Letters) != 1 {
			t.Errorf("page %+v", p)
		}
		if l, err := c.Requests.DeadLetter(t.Context(), tenant, at["m1"]); err != nil || l.Code != run.CodeMalformed || string(l.Payload()) != `{"id":"m1","inptu":"a mistake"}` {
			t.Errorf("letter %+v, %v", l, err)
		}

		if _, err := c.Requests.RetryDeadLetter(t.Context(), tenant, at["m1"], messages.Control{By: "ann"}); run.CodeOf(err) != run.CodeOf(run.ErrState) {
			t.Errorf("retry of a malformed task: %v", err)
		}
		if _, err := c.Requests.RetryDeadLetter(t.Context(), tenant, 999, messages.Control{By: "ann"}); run.CodeOf(err) != run.CodeOf(session.ErrNotFound) {
			t.Errorf("retry of no letter: %v", err)
		}
		must.Report(t, c.Requests.DropDeadLetter(t.Context(), tenant, at["m1"], messages.Control{By: "ann", Reason: "a typing mistake"}))
		if err := c.Requests.DropDeadLetter(t.Context(), tenant, at["m1"], messages.Control{By: "ann"}); run.CodeOf(err) != run.CodeOf(run.ErrState) {
			t.Errorf("dropped twice: %v", err)
		}
		id, err := c.Requests.RetryDeadLetter(t.Context(), tenant, at["r1"], messages.Control{By: "ann"})
		if err != nil || id == "r1" {
			t.Fatalf("run %s, %v", id, err)
		}
		if r := resultOf(t, nc, string(id)); r["output"] != "echo: another" {
			t.Errorf("result %v", r)
		}
		if again, err := c.Requests.RetryDeadLetter(t.Context(), tenant, at["r1"], messages.Control{By: "ann"}); err != nil || again != id {
			t.Errorf("retried twice: %s, %v", again, err)
		}
		// Now a node offers the other one.
		m := startNodeWith(t, n.srv, "node-2", &spec{only: []flow.Registration{nap}, pool: "sleepers"})
		if id, err = c.Requests.RetryDeadLetter(t.Context(), tenant, at["n1"], messages.Control{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		succeeded(t, nc, string(id))
		if p := page(0, 0); len(p.Letters) != 0 {
			t.Errorf("left: %+v", p)
		}
		m.stop()
	})
}

// TestDroppedLetter retries a dropped dead letter: the retry fails, and no task is
// submitted.
func TestDroppedLetter(t *testing.T) {
	story(t, func(t *testing.T, n *node, nc *nats.Conn) {
		submit(t, nc, "nap", `{"id":"n1","input":"1ms"}`) // no node offers it
		time.Sleep(time.Second)
		c, err := api.Connect(t.Context(), &streams.Options{Options: conn.Options{Dialer: n.srv.Dial}, Client: true})
		must.Do(t, err)
		defer c.Conn.Close()
		p, err := c.Requests.DeadLetters(t.Context(), session.DefaultTenant, 0, 0)
		if err != nil || len(p.Letters) != 1 {
			t.Fatalf("letters %+v, %v", p, err)
		}
		at := p.Letters[0].At
		must.Do(t, c.Requests.DropDeadLetter(t.Context(), session.DefaultTenant, at, messages.Control{By: "ann", Reason: "not needed"}))
		m := startNodeWith(t, n.srv, "node-2", &spec{only: []flow.Registration{nap}, pool: "sleepers"})
		if _, err := c.Requests.RetryDeadLetter(t.Context(), session.DefaultTenant, at, messages.Control{By: "ann"}); run.CodeOf(err) != run.CodeState {
			t.Errorf("retry of a letter that was dropped: %v", err)
		}
		time.Sleep(5 * time.Second)
		for _, r := range n.stored(t, streams.StreamResult) {
			if !strings.Contains(r.Subject, ".n1.") {
				t.Errorf("it ran all the same: %s", r.Data)
			}
		}
		m.stop()
	})
}

// TestEnqueueBesideARun puts tasks into the log of a session in which another pool's node
// executes a run: the run is not disturbed.
func TestEnqueueBesideARun(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		began := 0
		a := startNode(t, srv, "node-a")
		g := startNodeWith(t, srv, "node-g", &spec{pool: "gpu", only: []flow.Registration{busy("", func() { began++ })}})
		const runs = 8
		for i := range runs {
			submit(t, nc, "busy", fmt.Sprintf(`{"id":"r%d","session":"talk"}`, i))
			time.Sleep(taskTime / 10)
		}
		start := time.Now()
		for i := range runs {
			r := resultOf(t, nc, fmt.Sprintf("r%d", i))
			if r["state"] != "succeeded" || r["attempt"] != 1.0 {
				t.Errorf("result %v, want a first attempt that succeeds", r)
			}
		}
		if began != runs {
			t.Errorf("%d executions of %d runs", began, runs)
		}
		if d := time.Since(start); d > runs*taskTime+time.Second {
			t.Errorf("%d runs took %v", runs, d)
		}
		g.stop()
		a.stop()
	})
}
