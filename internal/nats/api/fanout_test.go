package api_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// asks opens branches that ask the model once each.
func asks(branches int) flow.Registration {
	return flow.Registration{Name: "asks", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
			j, err := flow.FanOut(ctx, v, flow.Repeat(branches, &flow.Agent{Name: "a", Prompt: "You work."}), nil)
			if err != nil {
				return v, err
			}
			if n := len(j.Succeeded()); n != branches {
				return v, fmt.Errorf("%d of %d branches succeeded", n, branches)
			}
			return flow.Merge(ctx, j, flow.Pick(0))
		})
	}}
}

// inTurn opens branches that ask the model once each, a second after one another: the
// reports of no two of them reach the run together, and share a commit.
func inTurn(branches int) flow.Registration {
	return flow.Registration{Name: "in-turn", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
			all := make([]flow.Branch, branches)
			for i := range all {
				all[i] = flow.Branch{Name: fmt.Sprint("b", i), Workflow: flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
					time.Sleep(time.Duration(i) * time.Second)
					return (&flow.Agent{Name: "a", Prompt: "You work."}).Forward(ctx, v)
				})}
			}
			j, err := flow.FanOut(ctx, v, all, nil)
			if err != nil {
				return v, err
			}
			return flow.Merge(ctx, j, flow.Pick(0))
		})
	}}
}

// traffic counts the requests of a fan-out to the servers: reads of streams by purpose, and
// stored messages by stream. Its branches execute one after another, so that the counts do
// not depend on the parallelism of the machine.
func traffic(t *testing.T, branches int) map[string]int {
	counts := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		n := startNodeWith(t, srv, "node-1", &spec{slots: 128, more: []flow.Registration{inTurn(branches)}})
		nc := guest(t, srv)
		_, js := operatorOf(t, srv)
		time.Sleep(15 * time.Second) // the work of the start is over
		stored := func(sign int) {
			all := js.ListStreams(t.Context())
			for s := range all.Info() {
				name, _, _ := strings.Cut(s.Config.Name, "_")
				counts[name] += sign * int(s.State.LastSeq)
			}
			if all.Err() != nil {
				t.Fatal(all.Err())
			}
		}
		stored(-1)
		var own []string
		for i := range branches {
			own = append(own, string(n.conn.Logs.Minter().Child(session.DefaultTenant, "r1", fmt.Sprint("0.b", i))))
		}
		stop := reads(t, srv, own, counts)
		submit(t, nc, "in-turn", `{"id":"r1"}`)
		time.Sleep(time.Duration(branches) * time.Second)
		if r := resultOf(t, nc, "r1"); r["state"] != "succeeded" {
			t.Errorf("%v", r)
		}
		time.Sleep(time.Second) // the branches are closed, and reported
		stop()
		stored(1)
		nc.Close()
		n.stop()
	})
	return counts
}

// reads counts the requests for messages of the truth, those for the logs of branches
// apart from the others, and of snapshots, until the returned function is called.
func reads(t *testing.T, srv *natsserver.Server, branches []string, counts map[string]int) (stop func()) {
	t.Helper()
	user, password := srv.Node()
	tap := must.Get(nats.Connect("", nats.InProcessServer(inProcess(srv.Dial)), nats.UserInfo(user, password)))(t)
	var mu sync.Mutex
	for _, subject := range []string{"$JS.API.STREAM.MSG.GET.", "$JS.API.DIRECT.GET."} {
		must.Get(tap.Subscribe(subject+">", func(m *nats.Msg) {
			mu.Lock()
			defer mu.Unlock()
			switch stream := strings.TrimPrefix(m.Subject, subject); {
			case strings.HasPrefix(stream, "SNAP"):
				counts["reads of snapshots"]++
			case !strings.HasPrefix(stream, "EV_"):
			case slices.ContainsFunc(branches, func(id string) bool { return strings.Contains(string(m.Data), id) }):
				counts["reads of their logs"]++
			default:
				counts["reads of the run's log"]++
			}
		}))(t)
	}
	must.Do(t, tap.Flush())
	return func() {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		tap.Close()
	}
}

// TestTrafficOfABranch bounds the cost of each branch of a fan-out: with many branches it
// dominates the cost of their work.
func TestTrafficOfABranch(t *testing.T) {
	const few, many = 8, 40
	a, b := traffic(t, few), traffic(t, many)
	for what, most := range map[string]float64{
		"EV":                  5, // its claim, its step, its end, its closing, and in the run's log its report
		"LINEAGE":             5,
		"RESULT":              1,
		"reads of snapshots":  0,
		"reads of their logs": 0,
		// One read of its end and one of its new commits. Branches that begin together
		// share most of these, as many as the machine begins at once.
		"reads of the run's log": 2,
	} {
		const other = 0.25 // the run itself may make eight requests more or less
		if got := float64(b[what]-a[what]) / (many - few); got > most+other {
			t.Errorf("%s: %.2f per branch, want %v at most (%d branches: %d, %d branches: %d)", what, got, most, few, a[what], many, b[what])
		}
	}
}

// TestResultBeforeClosings: a client that waits for a run does not wait for the closing of
// its branches, of which there are more than run concurrently.
func TestResultBeforeClosings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const branches = 80
		srv := natstest.Start(t, nil)
		var mu sync.Mutex
		var closing time.Time // when the first branch's began
		slow := func(own func(context.Context, journal.Signal) error) func(context.Context, journal.Signal) error {
			return func(ctx context.Context, s journal.Signal) error {
				if s.Close != nil {
					mu.Lock()
					if closing.IsZero() {
						closing = time.Now()
					}
					mu.Unlock()
					time.Sleep(500 * time.Millisecond)
				}
				return own(ctx, s)
			}
		}
		n := startNodeWith(t, srv, "node-1", &spec{slots: 128, more: []flow.Registration{asks(branches)}, signal: slow})
		nc := guest(t, srv)
		results := must.Get(nc.SubscribeSync("rath.run.default.r1.result"))(t)
		submit(t, nc, "asks", `{"id":"r1"}`)
		must.Get(results.NextMsg(time.Minute))(t)
		came := time.Now()
		time.Sleep(branches / 4 * time.Second)
		closedBranches(t, nc)
		mu.Lock()
		first := closing
		mu.Unlock()
		if first.IsZero() {
			t.Fatal("no branch was closed here: nothing was slow")
		}
		// The first closing and the result are not in an order; only not to be
		// kept waiting is.
		if waited := came.Sub(first); waited > 100*time.Millisecond {
			t.Errorf("the result came %v after the first branch began to be closed", waited)
		}
		nc.Close()
		n.stop()
	})
}

// TestSignalsThatFail has each signal fail when it is applied for the first time:
// it is applied again.
func TestSignalsThatFail(t *testing.T) {
	for how, fail := range map[string]func(context.Context) error{
		"busy":     func(context.Context) error { return run.ErrBusy },
		"shutdown": func(context.Context) error { return run.ErrShutdown },
		"stalled": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := natstest.Start(t, nil)
				var mu sync.Mutex
				failed := map[string]bool{}
				sp := &spec{more: []flow.Registration{asks(4)}, signal: func(own func(context.Context, journal.Signal) error) func(context.Context, journal.Signal) error {
					return func(ctx context.Context, s journal.Signal) error {
						name := fmt.Sprint(s.To, s.Received != nil && s.Received.Branch != nil, s.Close != nil)
						if s.Received != nil {
							name += s.Received.ID
						}
						mu.Lock()
						before := failed[name]
						failed[name] = true
						mu.Unlock()
						if !before {
							return fail(ctx)
						}
						return own(ctx, s)
					}
				}}
				n := startNodeWith(t, srv, "node-1", sp)
				nc := guest(t, srv)
				began := time.Now()
				submit(t, nc, "asks", `{"id":"r1"}`)
				most := 3 * time.Second
				if how == "stalled" {
					most += 30 * time.Second
				}
				time.Sleep(most)
				if r := resultOf(t, nc, "r1"); r["state"] != "succeeded" {
					t.Errorf("%v", r)
				}
				if d := time.Since(began); d > most+time.Second {
					t.Errorf("it took %v", d)
				}
				time.Sleep(most)
				closedBranches(t, nc)
				nc.Close()
				n.stop()
			})
		})
	}
}

// TestBranchesHaveTheTimeOfTheirRun gives runs whose branches are at work, one of
// them with more around it, another budget of time: the branches have until then,
// and no longer.
func TestBranchesHaveTheTimeOfTheirRun(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		work := flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
			_, err := flow.Do(ctx, "work", func(ctx context.Context) (int, error) {
				select {
				case <-time.After(40 * time.Second):
					return 1, nil
				case <-ctx.Done():
					return 0, context.Cause(ctx)
				}
			}, tool.ReadOnly)
			return v, err
		})
		within := func(name string, w flow.Workflow) flow.Workflow {
			return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
				j, err := flow.FanOut(ctx, v, []flow.Branch{{Name: name, Workflow: w}}, nil)
				if err != nil {
					return v, err
				}
				return flow.Merge(ctx, j, flow.Pick(0))
			})
		}
		deep := []flow.Registration{{Name: "deep", Description: "works in a branch of a branch", Revision: "1", New: func() flow.Workflow {
			return within("x", within("y", work))
		}}}
		first := startNodeWith(t, srv, "node-1", &spec{more: deep})
		second := startNodeWith(t, srv, "node-2", &spec{more: deep})
		began := time.Now()
		submit(t, nc, "deep", `{"id":"more","budget":{"time_ms":20000}}`)
		submit(t, nc, "deep", `{"id":"less","budget":{"time_ms":60000}}`)
		time.Sleep(10 * time.Second)
		for id, ms := range map[string]int{"more": 60_000, "less": 20_000} {
			if a := ask(t, nc, "rath.ctl.default.anonymous."+id+".rebudget", fmt.Sprintf(`{"budget":{"time_ms":%d}}`, ms)); a["done"] != true {
				t.Fatal(a)
			}
		}
		for _, id := range []string{"less", "more"} {
			outer := first.conn.Logs.Minter().Child(session.DefaultTenant, id, "0.x")
			inner := first.conn.Logs.Minter().Child(session.DefaultTenant, string(outer), "0.x.0.y")
			state, within, branch := "succeeded", 40*time.Second, "succeeded"
			if id == "less" {
				state, within, branch = "timed_out", 20*time.Second, "cancelled"
			}
			if r := resultOf(t, nc, id); r["state"] != state {
				t.Errorf("%s: %v", id, r)
			}
			for _, b := range []session.ID{outer, inner} {
				if r := resultOf(t, nc, string(b)); r["state"] != branch {
					t.Errorf("a branch of %s: %v", id, r)
				}
			}
			if d := time.Since(began); d < within || d > within+3*time.Second {
				t.Errorf("%s and its branches ended after %s", id, d)
			}
		}
		first.stop()
		second.stop()
	})
}
