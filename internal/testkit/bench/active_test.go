package bench

import (
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// activeBar is the most bytes of heap and stack that a session takes whose run
// waits for a model.
const activeBar = 30 << 10

// hanging is a model that answers no call before the benchmark lets it.
type hanging struct {
	asked  chan struct{} // one for each call that waits
	answer chan struct{} // closed when they may end
}

func newHanging(calls int) *hanging {
	return &hanging{asked: make(chan struct{}, calls), answer: make(chan struct{})}
}

func (m *hanging) Client(context.Context, llm.Provider) (llm.Client, error) { return m, nil }

func (m *hanging) Complete(ctx context.Context, _ *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	m.asked <- struct{}{}
	select {
	case <-m.answer:
		return &llm.Response{Text: "done", Finish: llm.FinishStop}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// elsewhere is a log whose commits take no memory here: as on a node, where they lie
// in the store. It holds where each log stands.
type elsewhere struct {
	mu sync.Mutex
	at map[session.Key]commitlog.Position
}

func (l *elsewhere) Append(_ context.Context, at commitlog.Position, c commitlog.Commit) (commitlog.Position, error) {
	raw, err := commitlog.Encode(c)
	if err != nil {
		return commitlog.Position{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at[c.Key] != at {
		return commitlog.Position{}, session.ErrConflict
	}
	l.at[c.Key] = commitlog.Position{Seq: c.Seq, Token: c.Seq, Hash: session.Hash(sha256.Sum256(raw))}
	return l.at[c.Key], nil
}

func (l *elsewhere) Read(_ context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	return func(yield func(commitlog.Entry, error) bool) {
		l.mu.Lock()
		at := l.at[k]
		l.mu.Unlock()
		if at != after {
			yield(commitlog.Entry{}, fmt.Errorf("%s is read from commit %d of %d: %w", k, after.Seq, at.Seq, session.ErrUnavailable))
		}
	}
}

func (l *elsewhere) Last(_ context.Context, k session.Key) (commitlog.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at[k].Seq == 0 {
		return commitlog.Entry{}, session.ErrNotFound
	}
	return commitlog.Entry{At: l.at[k]}, nil
}

// inUse returns the heap and the stacks that are in use.
func inUse() (heap, stack uint64) {
	for range 4 { // pools drop their contents, and each time stacks shrink by half
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.StackInuse
}

// active reports the resources of n sessions that begin opens, once all of them wait in a
// call of m. It fails if they exceed the bar.
func active(b *testing.B, m *hanging, n int, begin func(i int) error) {
	b.Helper()
	wait := func(of int) {
		for range of {
			select {
			case <-m.asked:
			case <-time.After(time.Minute):
				b.Fatal("a run does not ask the model")
			}
		}
	}
	const warm = 16 // shared by all sessions
	for i := range warm {
		must.Do(b, begin(n+i))
	}
	wait(warm)
	heap, stack := inUse()
	for i := range n {
		must.Do(b, begin(i))
	}
	wait(n)
	time.Sleep(time.Second) // buffers and parked goroutines of the ways there
	heapThen, stackThen := inUse()
	perHeap := (float64(heapThen) - float64(heap)) / float64(n)
	perStack := (float64(stackThen) - float64(stack)) / float64(n)
	b.ReportMetric(perHeap, "heap-B/session")
	b.ReportMetric(perStack, "stack-B/session")
	b.ReportMetric(activeBar, "B-bar")
	if perHeap+perStack > activeBar {
		b.Errorf("an active session takes %.0f B of heap and %.0f B of stack, more than %d", perHeap, perStack, activeBar)
	}
}

// BenchmarkActiveSession measures the memory of sessions with an open run of an agent
// that waits for its model: in memory, through the session actors, and on a node with
// its embedded server.
func BenchmarkActiveSession(b *testing.B) {
	const sessions = 1000
	agent := &flow.Agent{Name: "a", Prompt: "You work.", Tools: []tool.Tool{noop}}
	forward := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		return agent.Forward(ctx, s.With(session.UserText("do the work")))
	})
	b.Run("memory", func(b *testing.B) {
		for b.Loop() {
			m := newHanging(2 * sessions)
			rt := &inprocess.Runtime{Runtime: engine.Runtime{Models: m}}
			var runs sync.WaitGroup
			active(b, m, sessions, func(int) error {
				runs.Go(func() {
					if _, err := rt.Run(b.Context(), agent, session.New(session.UserText("do the work"))); err != nil {
						b.Error(err)
					}
				})
				return nil
			})
			close(m.answer)
			runs.Wait()
		}
	})
	b.Run("actors", func(b *testing.B) {
		for b.Loop() {
			m := newHanging(2 * sessions)
			log := &elsewhere{at: map[session.Key]commitlog.Position{}}
			values := journal.NewValues(log)
			g := &engine.Registry{}
			must.Do(b, g.Register(flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { return forward }}))
			sys := actors.New(&actors.Options{
				Log: log, Values: values, Incarnation: "n1", Workflows: g, Slots: 2 * sessions, Runtime: &engine.Runtime{Values: values, Models: m},
			})
			active(b, m, sessions, func(i int) error {
				_, err := sys.Accept(b.Context(), journal.Task{
					ID: run.ID(fmt.Sprint("r", i)), Workflow: "w", Session: session.Key{Tenant: "t", ID: session.ID(fmt.Sprint("s", i))},
				})
				return err
			})
			close(m.answer)
			must.Report(b, sys.Drain(b.Context()))
		}
	})
	b.Run("node", func(b *testing.B) {
		for b.Loop() {
			m := newHanging(2 * sessions)
			n := must.Get(node.Start(b.Context(), &node.Options{
				Store: b.TempDir(), NATS: node.NATS{Port: -1}, Models: node.Models{Source: m}, Slots: 2 * sessions,
				Workflows: []flow.Registration{{Name: "held", Revision: "1", New: func() flow.Workflow { return forward }}},
			}))(b)
			nc := dial(b, n.URL())
			prefix := newPrefix()
			active(b, m, sessions, func(i int) error {
				_, err := nc.Request("rath.task.default.anonymous.held", fmt.Appendf(nil, `{"id":"%s%d"}`, prefix, i), time.Minute)
				return err
			})
			close(m.answer)
			must.Report(b, n.Close())
		}
	})
}
