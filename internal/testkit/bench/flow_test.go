package bench

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// BenchmarkStep measures a durable step over a log in memory: its cost without I/O, on a
// short session and on a long one.
func BenchmarkStep(b *testing.B) {
	for _, chunks := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("chunks=%d", chunks), func(b *testing.B) {
			rt := &inprocess.Runtime{}
			_, err := rt.Run(b.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				for i := range chunks {
					s = s.With(session.UserText(fmt.Sprint("row ", i)))
				}
				s, _, err := flow.CallTool(ctx, s, noop, map[string]string{"path": "x"})
				if err != nil {
					return s, err
				}
				for b.Loop() {
					if _, err := flow.Do(ctx, "step", func(context.Context) (int, error) { return 1, nil }, tool.ReadOnly); err != nil {
						return s, err
					}
				}
				return s, nil
			}), session.New(session.UserText("start")))
			must.Do(b, err)
		})
	}
}

// Bars for the cost of a step with a policy that succeeds at once, as a multiple of one
// without: of the policy alone, and with the timer of its timeout.
const (
	retryBar   = 1.05
	timeoutBar = 1.25
)

// BenchmarkRetry compares them over a log in memory, which has no I/O to hide the
// difference: blocks of steps in turns, and the median of their ratios. It fails if a bar
// is missed.
func BenchmarkRetry(b *testing.B) {
	one := func(context.Context) (int, error) { return 1, nil }
	block := func(ctx context.Context, policy ...tool.Retry) time.Duration {
		began := time.Now()
		for range 100 {
			must.Get(flow.Do(ctx, "step", one, tool.ReadOnly, policy...))(b)
		}
		return time.Since(began)
	}
	policy := tool.Retry{Times: 5, First: time.Second, Total: time.Hour, If: func(error) bool { return true }}
	timed := policy
	timed.Timeout = time.Minute
	for b.Loop() {
		var with, late []float64
		must.Get((&inprocess.Runtime{}).Run(b.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			for range 200 {
				before, p, q := block(ctx), block(ctx, policy), block(ctx, timed)
				without := float64(before+block(ctx)) / 2 // a step costs more as the log grows
				with, late = append(with, float64(p)/without), append(late, float64(q)/without)
			}
			return s, nil
		}), session.New()))(b)
		b.ReportMetric(median(with), "x-policy")
		b.ReportMetric(median(late), "x-timeout")
		if x, y := median(with), median(late); x > retryBar || y > timeoutBar {
			b.Errorf("a step with a policy costs %.3f times as much as one without, bar %.2f; with a timeout %.3f, bar %.2f", x, retryBar, y, timeoutBar)
		}
	}
}

// BenchmarkTurn is a turn of an agent over a log in memory, a model call and a tool
// call, on a short session and on long ones.
func BenchmarkTurn(b *testing.B) {
	for _, chunks := range []int{10, 2_000, 20_000} {
		b.Run(fmt.Sprintf("chunks=%d", chunks), func(b *testing.B) {
			rows := make([]session.Chunk, chunks)
			for i := range rows {
				rows[i] = session.UserText(fmt.Sprint("row ", i, strings.Repeat(" and more of it", 20)))
			}
			agent := &flow.Agent{Name: "a", Prompt: "You work.", Tools: []tool.Tool{noop}, MaxRounds: b.N + 2}
			m := &endless{b: b}
			must.Get((&inprocess.Runtime{Runtime: engine.Runtime{Models: m}}).Run(b.Context(), agent, session.New(rows...)))(b)
		})
	}
}

// endless calls the tool in b.N turns after its first one, from which on time counts.
type endless struct {
	b     *testing.B
	asked int
}

func (m *endless) Client(context.Context, llm.Provider) (llm.Client, error) { return m, nil }

func (m *endless) Complete(_ context.Context, r *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	if m.asked++; m.asked == 2 {
		m.b.ResetTimer()
	}
	if m.asked > m.b.N+1 {
		return &llm.Response{Text: "done", Finish: llm.FinishStop}, nil
	}
	return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: fmt.Sprint("call_", m.asked), Name: "noop", Args: `{"path":"a"}`}}}, nil
}

// BenchmarkFork is the value operation; its allocations must not depend on the
// length.
func BenchmarkFork(b *testing.B) {
	for _, chunks := range []int{10, 100_000} {
		b.Run(fmt.Sprintf("chunks=%d", chunks), func(b *testing.B) {
			k := session.Key{Tenant: "t", ID: "parent"}
			s := session.Open(k, k.ID)
			var err error
			for i := range chunks {
				if s, err = session.Apply(s, session.ChunkEvent(session.UserText(fmt.Sprint("row ", i))), nil); err != nil {
					b.Fatal(err)
				}
			}
			s = s.MadeBy(1, session.Hash{}, 1)
			l, _ := s.Link()
			opened := session.OpenedEvent(session.Opening{Kind: session.OpenFork, Parents: []session.Link{l}})
			child := session.Key{Tenant: "t", ID: "child"}
			only := func(session.Link) (session.Session, error) { return s, nil }
			b.ReportAllocs()
			for b.Loop() {
				must.Get(session.Apply(session.Open(child, k.ID), opened, only))(b)
			}
		})
	}
}

// BenchmarkBytes compares the bytes of all commits per turn in a run of 100 turns with
// those in a run of 10.
func BenchmarkBytes(b *testing.B) {
	for b.Loop() {
		short, long := bytesPerTurn(b, 10), bytesPerTurn(b, 100)
		b.ReportMetric(short, "B/turn-of-10")
		b.ReportMetric(long, "B/turn-of-100")
		b.ReportMetric(long/short, "x-of-10")
	}
}

// bytesPerTurn runs one agent for n turns and counts the bytes of all commits.
func bytesPerTurn(b *testing.B, n int) float64 {
	b.Helper()
	log := &commitlog.Memory{}
	values := journal.NewValues(log)
	rt := &inprocess.Runtime{Runtime: engine.Runtime{Store: journal.NewStore(log, &journal.StoreOptions{Values: values}), Values: values, Models: model{turns: n}}}
	agent := &flow.Agent{Name: "a", Prompt: "You work.", Tools: []tool.Tool{noop}, MaxRounds: n + 1}
	must.Get(rt.Run(b.Context(), agent, session.New(session.UserText("do the work"))))(b)
	total := 0
	for _, k := range log.Keys() {
		for e, err := range log.Read(b.Context(), k, commitlog.Position{}) {
			must.Do(b, err)
			total += len(e.Raw)
		}
	}
	return float64(total) / float64(n)
}

// BenchmarkIdle measures the heap of one value of a session beyond its chunks: a fork of an
// idle long session.
func BenchmarkIdle(b *testing.B) {
	k := session.Key{Tenant: "t", ID: "parent"}
	s := session.Open(k, k.ID)
	for i := range 10_000 {
		s, _ = session.Apply(s, session.ChunkEvent(session.UserText(fmt.Sprint("row ", i))), nil)
	}
	s = s.MadeBy(1, session.Hash{}, 1)
	l, _ := s.Link()
	opened := session.OpenedEvent(session.Opening{Kind: session.OpenFork, Parents: []session.Link{l}})
	only := func(session.Link) (session.Session, error) { return s, nil }
	for b.Loop() {
		const n = 10_000
		kept := make([]session.Session, n)
		before := heap()
		for i := range kept {
			kept[i], _ = session.Apply(session.Open(session.Key{Tenant: "t", ID: "child"}, k.ID), opened, only)
		}
		b.ReportMetric(float64(heap()-before)/n, "B/fork")
		runtime.KeepAlive(kept)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
