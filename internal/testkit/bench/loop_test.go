package bench

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// loopWindow is the number of messages whose median is the cost of one.
	loopWindow = 200
	loopFirst  = 10
	loopLast   = 10_000
	// loopBar is the cost of message 10,000, against message 10.
	loopBar = 1.5
)

// conversation hears messages in a loop until the last.
func conversation(last int) flow.Registration {
	return flow.Registration{Name: "chat", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			var c struct{ Turns int }
			return flow.Loop(ctx, "chat", s, &c, func(ctx context.Context, s session.Session) (session.Session, bool, error) {
				s, err := flow.Listen(ctx, s, nil)
				c.Turns++
				return s.With(session.AssistantText(fmt.Sprintf("answer %d", c.Turns))), c.Turns < last, err
			})
		})
	}}
}

// costs are the times from a message to the next wait.
type costs []time.Duration

// part returns the median costs of the first messages and of the last, and their ratio.
func (c costs) part(b *testing.B) {
	median := func(all []time.Duration) time.Duration {
		all = slices.Sorted(slices.Values(all))
		return all[len(all)/2]
	}
	early, late := median(c[loopFirst:loopFirst+loopWindow]), median(c[len(c)-loopWindow:])
	part := float64(late) / float64(early)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(early.Microseconds())/1e3, "ms/early")
	b.ReportMetric(float64(late.Microseconds())/1e3, "ms/late")
	b.ReportMetric(part, "part")
	if part > loopBar {
		b.Errorf("message %d costs %.2f of message %d (%v of %v), the bar is %.2f", loopLast, part, loopFirst, late, early, loopBar)
	}
}

// BenchmarkLoop measures a conversation of 10,000 messages: the time from a message to the
// next wait, with the claim of the run and its replay, in one process and over NATS. It fails
// if message 10,000 costs more than 1.5 times message 10.
func BenchmarkLoop(b *testing.B) {
	b.Run("process", func(b *testing.B) {
		for b.Loop() {
			loopInProcess(b).part(b)
		}
	})
	b.Run("nats", func(b *testing.B) {
		for b.Loop() {
			loopOverNATS(b).part(b)
		}
	})
}

func loopInProcess(b *testing.B) (took costs) {
	log := &commitlog.Memory{}
	values := journal.NewValues(log)
	var said time.Time
	driver := &inprocess.Driver{Answer: func(_ context.Context, q run.Question) (any, error) {
		if !said.IsZero() {
			took = append(took, time.Since(said))
		}
		said = time.Now()
		return "message for step " + string(q.Step), nil
	}}
	rt := &engine.Runtime{Values: values, Store: journal.NewStore(log, &journal.StoreOptions{Values: values, OnCommit: driver.Committed})}
	task := journal.Task{ID: "talk", Workflow: "chat", Session: session.Key{Tenant: session.DefaultTenant, ID: "talk"}}
	if _, state, err := driver.Run(b.Context(), rt, conversation(loopLast+1), task); err != nil {
		b.Fatalf("the run is %s: %v", state, err)
	}
	return took
}

func loopOverNATS(b *testing.B) (took costs) {
	n := must.Get(node.Start(b.Context(), &node.Options{Store: b.TempDir(), NATS: node.NATS{Level: "lazy", Port: -1}, Workflows: []flow.Registration{conversation(loopLast + 1)}}))(b)
	defer n.Close()
	c := must.Get(n.Client(b.Context()))(b)
	defer c.Close()
	f := must.Get(c.Start(b.Context(), "chat", messages.Task{ID: "talk"}))(b)
	var said time.Time
	for u, err := range f.All(b.Context()) {
		must.Do(b, err)
		if u.Event == nil || u.Event.Kind != messages.KindWaiting {
			continue
		}
		if !said.IsZero() {
			took = append(took, time.Since(said))
		}
		said = time.Now()
		must.Do(b, c.Runs.Message(b.Context(), "talk", messages.Control{Text: "hello"}))
	}
	return took
}
