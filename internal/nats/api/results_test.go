package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// quick ends at once, and sends the time at which it began.
func quick(began chan<- time.Time) flow.Registration {
	return flow.Registration{Name: "quick", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(_ context.Context, v session.Session) (session.Session, error) {
			began <- time.Now()
			return v.With(session.UserText("done")), nil
		})
	}}
}

// opens returns the last commit in the stored open set of each partition, and the last one
// of its stream.
func (n *node) opens(t *testing.T) (known, last map[string]uint64) {
	t.Helper()
	known, last = map[string]uint64{}, map[string]uint64{}
	for _, m := range n.stored(t, streams.StreamSnap) {
		if !strings.Contains(m.Subject, ".openset.") {
			continue
		}
		var root struct{ Token uint64 }
		must.Do(t, json.Unmarshal(m.Data, &root))
		known[m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]] = root.Token
	}
	for p := range n.conn.Streams.Partitions() {
		s := must.Get(n.operator().Stream(t.Context(), streams.EventStream(n.conn.Streams.Generation(), p)))(t)
		last[fmt.Sprint(p)] = s.CachedInfo().State.LastSeq
	}
	return known, last
}

// TestResultsThatWait removes the stream of results for longer than the retries of one, in
// two ways: writes to it are rejected at once, or not answered. Runs are dispatched without
// delay meanwhile, and the open set is saved. When the stream is back, all results are
// stored.
func TestResultsThatWait(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(map[bool]string{false: "refused", true: "silent"}[silent], func(t *testing.T) {
			withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
				const runs, others = 80, 20 // more than are stored at once
				began := make(chan time.Time, 1)
				a := startNode(t, srv, "node-a")
				g := startNodeWith(t, srv, "node-g", &spec{pool: "gpu", only: []flow.Registration{quick(began)}})
				time.Sleep(3 * time.Second)
				s := must.Get(a.operator().Stream(t.Context(), streams.StreamResult))(t)
				config := s.CachedInfo().Config
				must.Do(t, a.operator().DeleteStream(t.Context(), streams.StreamResult))
				if silent {
					op, _ := operatorOf(t, srv)
					must.Get(op.Subscribe("rath.run.*.*.result", func(*nats.Msg) {}))(t)
					must.Do(t, op.Flush())
				}
				for i := range runs {
					submit(t, nc, "agent", fmt.Sprintf(`{"id":"r%d","input":"x"}`, i))
				}
				var worst time.Duration
				for i := range others {
					time.Sleep(2 * time.Second)
					submitted := time.Now()
					submit(t, nc, "quick", fmt.Sprintf(`{"id":"q%d"}`, i))
					worst = max(worst, (<-began).Sub(submitted))
				}
				if worst > 100*time.Millisecond {
					t.Errorf("a run was dispatched %v after it was submitted", worst)
				}
				time.Sleep(2 * time.Second)
				known, last := a.opens(t)
				for p, seq := range last {
					if known[p] != seq {
						t.Errorf("the open set of partition %s is stored up to commit %d of %d", p, known[p], seq)
					}
				}
				must.Get(a.operator().CreateStream(t.Context(), config))(t)
				time.Sleep(10 * time.Minute)
				if n := len(a.stored(t, streams.StreamResult)); n != runs+others {
					t.Errorf("%d results of %d are stored", n, runs+others)
				}
				g.stop()
				a.stop()
			})
		})
	}
}

// TestFullPoolBesideAnIdleOne has more tasks wait for a pool without nodes than its tenants
// may have in logs: the task of another pool, whose node is idle, begins at once.
func TestFullPoolBesideAnIdleOne(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, _ *nats.Conn) {
		nc, _ := operatorOf(t, srv) // for all tenants
		began := make(chan time.Time, 1)
		a := startNodeWith(t, srv, "node-a", &spec{partitions: 1, more: []flow.Registration{quick(began)}})
		a.offer(t, "gpu", "busy")
		for i := range 1100 {
			for _, tenant := range []string{"t1", "t2"} {
				if ack := ask(t, nc, "rath.task."+tenant+".operator.busy", fmt.Sprintf(`{"id":"r%d"}`, i)); ack["error"] != nil {
					t.Fatalf("acknowledgement: %v", ack)
				}
			}
			if i%50 == 49 {
				time.Sleep(time.Second)
			}
		}
		if n := a.pending(t); n < 2*50 || n > 2*100 {
			t.Errorf("%d of 2,200 tasks are in no log, want about 152: the test shows little", n)
		}
		for i := range 10 {
			submitted := time.Now()
			ask(t, nc, "rath.task.other.operator.quick", fmt.Sprintf(`{"id":"q%d"}`, i))
			if d := (<-began).Sub(submitted); d > 10*time.Millisecond {
				t.Errorf("a task of the idle pool began after %v", d)
			}
			time.Sleep(time.Second)
		}
		a.stop()
	})
}

// TestOneRound submits as many tasks as a node has slots: they are executed concurrently.
func TestOneRound(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		const slots, takes = 64, 50 * time.Millisecond
		var mu sync.Mutex
		now, most := 0, 0
		var first, last time.Time
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			if first.IsZero() {
				first = time.Now()
			}
			now += n
			most, last = max(most, now), time.Now()
		}
		work := flow.Registration{Name: "work", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(_ context.Context, v session.Session) (session.Session, error) {
				count(1)
				defer count(-1)
				time.Sleep(takes)
				return v.With(session.UserText("done")), nil
			})
		}}
		n := startNodeWith(t, srv, "node-1", &spec{slots: slots, only: []flow.Registration{work}})
		time.Sleep(3 * time.Second)
		for i := range slots {
			submit(t, nc, "work", fmt.Sprintf(`{"id":"r%d"}`, i))
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if took := last.Sub(first); most != slots || took >= 2*takes {
			t.Errorf("%d of %d tasks were executed at once, all of them in %v", most, slots, took)
		}
		n.stop()
	})
}

// TestCreditDoesNotPace submits more tasks at once than one credit covers, to a pool that
// has a free slot for each: all of them begin soon.
func TestCreditDoesNotPace(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		const tasks = 400
		began := make(chan time.Time, tasks)
		a := startNode(t, srv, "node-a")
		g := startNodeWith(t, srv, "node-g", &spec{slots: 512, pool: "gpu", only: []flow.Registration{quick(began)}})
		time.Sleep(3 * time.Second)
		submitted := time.Now()
		for i := range tasks {
			submit(t, nc, "quick", fmt.Sprintf(`{"id":"q%d"}`, i))
		}
		var last time.Duration
		for range tasks {
			last = max(last, (<-began).Sub(submitted))
		}
		t.Logf("the last task began after %v", last)
		if last > 500*time.Millisecond {
			t.Errorf("the last of %d tasks began after %v", tasks, last)
		}
		g.stop()
		a.stop()
	})
}
