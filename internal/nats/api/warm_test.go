package api_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// warmFan is a workflow with three branches, of which the others wait for the
// first answer of b0. Each asks a model once and then sleeps for ten minutes.
type warmFan struct {
	ask chan struct{} // closed: b0 may ask

	mu    sync.Mutex
	begun []string
}

func (w *warmFan) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(w.begun)))
}

func (w *warmFan) branch(name string) flow.Branch {
	return flow.Branch{Name: name, Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		w.mu.Lock()
		w.begun = append(w.begun, name)
		w.mu.Unlock()
		if name == "b0" {
			select {
			case <-w.ask:
			case <-ctx.Done():
				return s, context.Cause(ctx)
			}
		}
		s, err := (&flow.Agent{Name: "a"}).Forward(ctx, s.With(session.UserText("I am "+name)))
		if err != nil {
			return s, err
		}
		return s, flow.Sleep(ctx, 10*time.Minute)
	})}
}

func (w *warmFan) registration() flow.Registration {
	return flow.Registration{Name: "warm", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
			j, err := flow.FanOut(ctx, v, []flow.Branch{w.branch("b0"), w.branch("b1"), w.branch("b2")}, &flow.FanOutOptions{WarmFirst: true})
			if err != nil {
				return v, err
			}
			return flow.Merge(ctx, j, flow.SinceAncestor())
		})
	}}
}

// TestWarmFirstThatGetsLost loses the notice to a run that its first branch has an answer,
// and then the dispatches of the other branches, also with the node that relayed them: the
// relay makes up for both, long before the branch ends.
func TestWarmFirstThatGetsLost(t *testing.T) {
	for _, dies := range []bool{false, true} {
		t.Run(map[bool]string{false: "same node", true: "another node"}[dies], func(t *testing.T) {
			withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
				w := &warmFan{ask: make(chan struct{})}
				var deaf, full atomic.Bool
				sp := &spec{
					more: []flow.Registration{w.registration()},
					signal: func(own func(context.Context, journal.Signal) error) func(context.Context, journal.Signal) error {
						return func(ctx context.Context, s journal.Signal) error {
							if deaf.Load() {
								return run.ErrBusy
							}
							return own(ctx, s)
						}
					},
					take: func(own taker) taker {
						return func(ctx context.Context, r journal.Task) (journal.Answer, error) {
							if full.Load() {
								return "", run.ErrBusy
							}
							return own(ctx, r)
						}
					},
				}
				n := startNodeWith(t, srv, "node-1", sp)
				began := time.Now()
				begun := func(when string, want ...string) {
					t.Helper()
					if got := w.names(); !slices.Equal(got, want) {
						t.Fatalf("%s branches %v have begun, want %v", when, got, want)
					}
				}
				submit(t, nc, "warm", `{"id":"r1"}`)
				time.Sleep(time.Minute)
				begun("before the first answer", "b0")
				deaf.Store(true)
				close(w.ask)
				time.Sleep(10 * time.Second)
				begun("while the first answer is not told", "b0")
				full.Store(true)
				deaf.Store(false)
				time.Sleep(30 * time.Second)
				begun("while no node takes the others", "b0")
				if dies {
					n.kill()
					n = startNodeWith(t, srv, "node-2", sp)
					time.Sleep(5 * time.Second)
				}
				full.Store(false)
				time.Sleep(30 * time.Second)
				begun("after that", "b0", "b1", "b2")
				time.Sleep(time.Until(began.Add(15 * time.Minute)))
				succeeded(t, nc, "r1")
				spreads := 0
				for _, m := range slices.Concat(n.stored(t, streams.EventStream(1, 0)), n.stored(t, streams.EventStream(1, 1))) {
					spreads += strings.Count(string(m.Data), `"kind":"run.spread"`)
				}
				if spreads != 1 {
					t.Errorf("the others were let begin %d times", spreads)
				}
				n.checkLineage(t)
				n.stop()
			})
		})
	}
}
