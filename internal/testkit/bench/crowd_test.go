package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
)

const (
	crowdTenants = 20
	crowdTasks   = 1_000 // of each tenant
	crowdSlots   = 8
	crowdEvery   = 10 * time.Millisecond // interval of the busy pool's tasks
	crowdTask    = 50 * time.Millisecond // duration of a task
	crowdProbe   = 2_000                 // tasks that are measured at a time
	crowdProbes  = 5
	// crowdBar is the limit of the 99th percentile of dispatches beside the waiting tasks,
	// relative to that without them.
	crowdBar = 1.2
)

// BenchmarkCrowd measures the cost of 20,000 tasks of 20 tenants, which wait for a pool
// without nodes, to another pool: the time from a task's submission until its workflow
// begins, with and without them, with five of eight slots taken on average. It fails if the
// 99th percentile is more than a fifth longer, by the medians of several measurements: the
// disk of another guest may double a single one.
func BenchmarkCrowd(b *testing.B) {
	for b.Loop() {
		crowd(b)
	}
}

func crowd(b *testing.B) {
	var mu sync.Mutex
	begun := map[string]time.Time{}
	store := b.TempDir()
	n := must.Get(node.Start(b.Context(), &node.Options{
		Store: store, NATS: node.NATS{Port: -1}, Slots: crowdSlots,
		Workflows: []flow.Registration{{Name: "busy", Revision: "1", NewFor: func(asked flow.Info) (flow.Workflow, error) {
			return flow.Func(func(_ context.Context, s session.Session) (session.Session, error) {
				now := time.Now()
				mu.Lock()
				begun[string(asked.Input)] = now
				mu.Unlock()
				time.Sleep(crowdTask)
				return s, nil
			}), nil
		}}},
	}))(b)
	defer n.Close()
	at := must.Get(supervise.ReadAttachment(store))(b)
	conn := must.Get(api.Connect(b.Context(), &streams.Options{Options: conn.Options{URL: at.URL, User: at.User, Password: at.Password, Inbox: conn.NodeInbox}, Level: streams.Lazy}))(b)
	defer conn.Conn.Close()
	must.Do(b, conn.Dispatch.Registry.Register(b.Context(), "absent", []messages.Workflow{{Name: "waits", Revision: "1"}}))
	nc := dial(b, at.URL)
	op := must.Get(nats.Connect(at.URL, nats.UserInfo(at.OperatorUser, at.OperatorPassword)))(b)
	defer op.Close()

	// probe returns the times of dispatches, shortest first.
	probe := func() []time.Duration {
		prefix := newPrefix()
		input := func(i int) string { return fmt.Sprintf("%q", fmt.Sprint(prefix, i)) }
		came := make([]time.Time, crowdProbe)
		var work sync.WaitGroup
		ticks := time.NewTicker(crowdEvery)
		defer ticks.Stop()
		for i := range came {
			<-ticks.C
			came[i] = time.Now()
			work.Go(func() {
				if _, err := nc.Request("rath.task.default.anonymous.busy", fmt.Appendf(nil, `{"id":%s,"input":%s}`, input(i), input(i)), time.Minute); err != nil {
					b.Error(err)
				}
			})
		}
		work.Wait()
		took := make([]time.Duration, 0, len(came))
		for end := time.Now().Add(time.Minute); len(took) < len(came) && time.Now().Before(end); time.Sleep(crowdTask) {
			took = took[:0]
			mu.Lock()
			for i, t := range came {
				if at, ok := begun[input(i)]; ok {
					took = append(took, at.Sub(t))
				}
			}
			mu.Unlock()
		}
		if len(took) < len(came) {
			b.Fatalf("%d of %d runs have begun", len(took), len(came))
		}
		slices.Sort(took)
		return took
	}
	// probes returns the medians of the 50th and 99th percentiles of dispatch times.
	probes := func() (p50, p99 time.Duration) {
		var halves, slowest []time.Duration
		for range crowdProbes {
			took := probe()
			halves, slowest = append(halves, took[len(took)/2]), append(slowest, took[len(took)*99/100])
		}
		return median(halves), median(slowest)
	}
	probe() // all that is made once
	alone50, alone99 := probes()
	var work sync.WaitGroup
	for t := range crowdTenants {
		work.Go(func() {
			for i := range crowdTasks {
				subject, body := fmt.Sprintf("rath.task.tenant%d.operator.waits", t), fmt.Appendf(nil, `{"id":"w%d","input":"x"}`, i)
				m, err := op.Request(subject, body, time.Minute)
				if err == nil && strings.Contains(string(m.Data), `"error"`) {
					err = fmt.Errorf("%s", m.Data)
				}
				if err != nil {
					b.Errorf("submit task %d of tenant %d: %v", i, t, err)
					return
				}
			}
		})
	}
	work.Wait()
	crowdSettles(b, op)
	beside50, beside99 := probes()
	waiting := crowdWaiting(b, op)
	ratio := float64(beside99) / float64(alone99)
	fmt.Printf("\n%d times %d dispatches each, %d tasks of %d tenants wait in TASKS or in logs\n", crowdProbes, crowdProbe, waiting, crowdTenants)
	fmt.Printf("  alone   p50 %v  p99 %v\n  beside  p50 %v  p99 %v  x %.2f, bar %.2f\n",
		alone50, alone99, beside50, beside99, ratio, crowdBar)
	b.ReportMetric(ratio, "x-p99")
	if ratio > crowdBar {
		b.Errorf("the slowest of a hundred dispatches takes %.2f times as long beside tasks that wait, bar %.2f", ratio, crowdBar)
	}
	if want := crowdTenants * crowdTasks; waiting != want {
		b.Errorf("%d tasks wait, want %d", waiting, want)
	}
}

// crowdSettles waits until each task was examined once, and until tasks that arrived
// together are redelivered at different times.
func crowdSettles(b *testing.B, op *nats.Conn) {
	b.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		m := must.Get(op.Request("$JS.API.CONSUMER.INFO.TASKS.tasks", nil, 10*time.Second))(b)
		var info struct {
			Pending int `json:"num_pending"`
		}
		must.Do(b, json.Unmarshal(m.Data, &info))
		if info.Pending == 0 {
			break
		}
		if time.Since(began) > 5*time.Minute {
			b.Fatalf("%d tasks were not looked at", info.Pending)
		}
	}
	time.Sleep(time.Minute)
}

// crowdWaiting counts the tasks of the absent pool's tenants that wait: in TASKS, and in
// logs as sessions that were opened for them.
func crowdWaiting(b *testing.B, op *nats.Conn) int {
	b.Helper()
	// of counts messages except those of the busy pool's tenant, whose last task stays until
	// the next one is ingested.
	of := func(stream, filter, busy string, each func(messages int) int) (n int) {
		m := must.Get(op.Request("$JS.API.STREAM.INFO."+stream, fmt.Appendf(nil, `{"subjects_filter":%q}`, filter), 10*time.Second))(b)
		var info struct {
			State struct{ Subjects map[string]int }
		}
		must.Do(b, json.Unmarshal(m.Data, &info))
		for subject, messages := range info.State.Subjects {
			if !strings.HasPrefix(subject, busy) {
				n += each(messages)
			}
		}
		return n
	}
	return of(streams.StreamTasks, "rath.task.>", "rath.task.default.anonymous.", func(messages int) int { return messages }) +
		of("EV_1_0", "rath.ev.1.0.*.*", "rath.ev.1.0.default.", func(int) int { return 1 })
}
