package natsbus_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/natsbus"
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

// lose holds back what a consumer of WORK would be given, has do bring it
// about, and removes so many messages below a subject as soon as they are there.
func (n *node) lose(t *testing.T, consumer, subject string, most int, do func()) {
	t.Helper()
	js := n.operator()
	if _, err := js.PauseConsumer(t.Context(), natsbus.StreamWork, consumer, time.Now().Add(24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	do()
	lost := 0
	for end := time.Now().Add(4 * natsbus.DefaultSweep); lost < most; time.Sleep(500 * time.Millisecond) {
		if lost = 0; time.Now().After(end) {
			t.Fatalf("%s has got fewer than %d messages", subject, most)
		}
		for _, m := range n.stored(t, natsbus.StreamWork) {
			if strings.HasPrefix(m.Subject, subject) {
				lost++
			}
		}
	}
	if lost > most {
		t.Fatalf("%s has got %d messages, want %d", subject, lost, most)
	}
	s, err := js.Stream(t.Context(), natsbus.StreamWork)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := js.ResumeConsumer(t.Context(), natsbus.StreamWork, consumer); err != nil {
		t.Fatal(err)
	}
}

// TestWarmFirstWorkIsWiped loses what tells a run that its first branch has an
// answer, and then the offers of the other branches, also with the node that
// relayed them: the sweeps make up for both, long before the branch ends.
func TestWarmFirstWorkIsWiped(t *testing.T) {
	for _, dies := range []bool{false, true} {
		t.Run(map[bool]string{false: "same node", true: "another node"}[dies], func(t *testing.T) {
			withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
				w := &warmFan{ask: make(chan struct{})}
				sp := &spec{more: []flow.Registration{w.registration()}}
				n := startNodeWith(t, srv, "node-1", sp)
				began := time.Now()
				begun := func(when string, want ...string) {
					t.Helper()
					if got := w.names(); !slices.Equal(got, want) {
						t.Fatalf("%s branches %v have begun, want %v", when, got, want)
					}
				}
				submit(t, nc, "warm", `{"id":"r1"}`)
				time.Sleep(5 * natsbus.DefaultSweep)
				begun("before the first answer", "b0")
				n.lose(t, natsbus.SignalConsumer, "rath.work.signals.", 1, func() { close(w.ask) })
				begun("while nobody knows of the first answer", "b0")
				n.lose(t, natsbus.WorkConsumer(natsbus.DefaultPool, messages.ClassInteractive), "rath.work.default.", 2, func() {
					if dies {
						n.kill()
						n = startNodeWith(t, srv, "node-2", sp)
					}
				})
				begun("while nobody is offered the others", "b0")
				time.Sleep(3 * natsbus.DefaultSweep)
				begun("after the sweeps", "b0", "b1", "b2")
				time.Sleep(time.Until(began.Add(15 * time.Minute)))
				succeeded(t, nc, "r1")
				spreads := 0
				for _, m := range slices.Concat(n.stored(t, natsbus.EventStream(1, 0)), n.stored(t, natsbus.EventStream(1, 1))) {
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
