package api_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestAnotherTasksResult submits another body under the id of a run, and lets that run end
// before a node claims the task, or loses the notice of its refusal: the client does not
// take the other task's result for its own.
func TestAnotherTasksResult(t *testing.T) {
	for name, lost := range map[string]bool{"the other run ends meanwhile": false, "the refusal is not heard": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := natstest.Start(t, nil)
				take := make(chan struct{})
				n := startNodeWith(t, srv, "node-1", &spec{intake: func(in *dispatch.Intake) {
					in.Check = func(task journal.Task) error {
						if string(task.Input) == `"two"` {
							<-take
						}
						return nil
					}
				}})
				first, _ := visitor(t, srv)
				ctx := t.Context()
				must.Get(first.Submit(ctx, "hold", messages.Task{ID: "r1", Input: text("one")}))(t)
				var link atomic.Pointer[net.Conn]
				var away atomic.Bool
				second := must.Get(client.Connect(ctx, "", &client.Options{Dialer: func() (net.Conn, error) {
					if away.Load() {
						return nil, errors.New("the network is away")
					}
					to, err := srv.Dial()
					link.Store(&to)
					return to, err
				}}))(t)
				defer second.Close()
				type end struct {
					r   messages.Result
					err error
				}
				ended := make(chan end, 1)
				go func() {
					r, err := second.Do(context.WithoutCancel(ctx), "hold", messages.Task{ID: "r1", Input: text("two")}, nil)
					ended <- end{r, err}
				}()
				time.Sleep(time.Second)
				if lost {
					away.Store(true)
					must.Do(t, (*link.Load()).Close())
					close(take)
					time.Sleep(time.Second)
				}
				close(n.hold)
				time.Sleep(time.Second)
				if away.Store(false); !lost {
					close(take)
				}
				if e := <-ended; !errors.Is(e.err, run.ErrKeyReused) {
					t.Errorf("the second task ended as %+v, %v, want %v", e.r, e.err, run.ErrKeyReused)
				}
				n.stop()
			})
		})
	}
}

// TestCancelledBeforeItsTask cancels a run, and submits its task then: it ends as
// cancelled, and no other task has its id.
func TestCancelledBeforeItsTask(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		c, _ := visitor(t, srv)
		ctx := t.Context()
		if a := ask(t, nc, "rath.ctl.default.anonymous.r1.cancel", `{"reason":"too early"}`); a["done"] != true {
			t.Fatal(a)
		}
		task := messages.Task{ID: "r1", Input: text("one")}
		known, err := c.Known(ctx, "hold", []messages.Task{task})
		if err != nil || !errors.Is(known[0], run.ErrState) || errors.Is(known[0], run.ErrKeyReused) {
			t.Errorf("of the id is known: %v, %v; want %v", known, err, run.ErrState)
		}
		if r, err := c.Do(ctx, "hold", task, nil); err != nil || r.State != run.Cancelled {
			t.Errorf("the task ended as %+v, %v", r, err)
		}
		n.stop()
	})
}

// TestAnswerOnAnotherSubject has a user request the result of a run with a subject for the
// answer that another user watches: the other user does not take it for its run's.
func TestAnswerOnAnotherSubject(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		c, _ := visitor(t, srv)
		ctx := t.Context()
		if r, err := c.Do(ctx, "agent", messages.Task{ID: "r2", Input: text("other")}, nil); err != nil || r.Err() != nil {
			t.Fatal(r, err)
		}
		f := must.Get(c.Start(ctx, "hold", messages.Task{ID: "r1"}))(t)
		for _, on := range []string{messages.OnResult, messages.OnEvent, messages.OnDelta} {
			m := &nats.Msg{Subject: "rath.query.default.result", Reply: "rath.run.default.r1." + on, Data: []byte(`{"run":"r2"}`)}
			must.Do(t, nc.PublishMsg(m))
		}
		time.Sleep(time.Second)
		close(n.hold)
		for u, err := range f.All(ctx) {
			must.Do(t, err)
			if u.Result != nil && u.Result.Run != "r1" || u.Event != nil && u.Event.Run != "r1" || u.Delta != nil {
				t.Errorf("of run r1 is told: %+v, %+v, %+v", u.Result, u.Event, u.Delta)
			}
		}
		n.stop()
	})
}
