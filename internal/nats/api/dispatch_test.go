package api_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// asked is which nodes were sent runs that had begun before.
type asked struct {
	mu    sync.Mutex
	all   int
	taken map[run.ID]string // who said that he does
}

func (a *asked) woken(incarnation string, id run.ID, taken bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all++
	if taken {
		if a.taken == nil {
			a.taken = map[run.ID]string{}
		}
		a.taken[id] = incarnation
	}
}

// on records the dispatches to a node.
func (a *asked) on(node string) func(own taker) taker {
	return func(own taker) taker {
		return func(ctx context.Context, r journal.Task) (journal.Answer, error) {
			answer, err := own(ctx, r)
			if r.Seen != nil && r.Seen.Attempt > 0 {
				a.woken(node, r.ID, err == nil && answer != journal.AnswerNotMine)
			}
			return answer, err
		}
	}
}

func (a *asked) counts() (all, taken int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all, len(a.taken)
}

// claims are the claims of a run, and the number of its ends.
type claims struct {
	by   []string
	ends int
}

// claims returns the claims of all runs in the event streams.
func (n *node) claims(t *testing.T) map[run.ID]*claims {
	t.Helper()
	all := map[run.ID]*claims{}
	of := func(id run.ID) *claims {
		if all[id] == nil {
			all[id] = &claims{}
		}
		return all[id]
	}
	for _, c := range n.commits(t) {
		for _, ev := range c.Events {
			switch ev.Kind {
			case journal.KindClaimed:
				v := must.Get(journal.Decode[journal.Claimed](ev))(t)
				of(v.Run).by = append(of(v.Run).by, v.Incarnation)
			case journal.KindEnded:
				v := must.Get(journal.Decode[journal.Ended](ev))(t)
				of(v.Run).ends++
			}
		}
	}
	return all
}

// TestWokenRunsGoOnWhereTheyWere has two nodes with free slots: every run resumes at its
// former node, even if its session is no longer in memory.
func TestWokenRunsGoOnWhereTheyWere(t *testing.T) {
	for _, nap10 := range []string{"10s", "10m"} {
		t.Run(nap10, func(t *testing.T) {
			withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
				var told asked
				sp := func(node string) *spec { return &spec{more: []flow.Registration{nap}, take: told.on(node)} }
				a, b := startNodeWith(t, srv, "node-a", sp("node-a")), startNodeWith(t, srv, "node-b", sp("node-b"))
				time.Sleep(3 * time.Second) // until both take tasks
				const runs = 24
				for i := range runs {
					submit(t, nc, "nap", fmt.Sprintf(`{"id":"r%d","input":%q}`, i, nap10))
				}
				time.Sleep(11 * time.Minute)
				nodes := map[string]int{}
				for i := range runs {
					id := run.ID(fmt.Sprint("r", i))
					c := a.claims(t)[id]
					if c == nil || c.ends != 1 || len(c.by) != 2 || c.by[0] != c.by[1] {
						t.Errorf("%s: %+v, want it claimed twice by one node, and ended once", id, c)
						continue
					}
					nodes[c.by[0]]++
				}
				if len(nodes) != 2 {
					t.Errorf("runs on %v, want some on both: the test shows little", nodes)
				}
				if all, taken := told.counts(); all != runs || taken != runs {
					t.Errorf("%d questions, %d runs taken, want %d of both", all, taken, runs)
				}
				a.stop()
				b.stop()
			})
		})
	}
}

// TestWokenRunGoesOnElsewhere has the former node of a run reject it: the other node
// resumes it, soon after its time.
func TestWokenRunGoesOnElsewhere(t *testing.T) {
	const sleeps = 30 * time.Second
	cases := map[string]struct {
		spec   spec
		before func(t *testing.T, a *node, nc *nats.Conn) // a second after the run began to wait
		within time.Duration                              // after its time
		after  func(t *testing.T, a *node)
	}{
		"no free slot": {
			spec: spec{slots: 1},
			before: func(t *testing.T, a *node, nc *nats.Conn) {
				submit(t, nc, "hold", `{"id":"holds"}`)
			},
			within: 100 * time.Millisecond,
			after: func(t *testing.T, a *node) {
				close(a.hold)
				time.Sleep(time.Second)
				if c := a.claims(t)["holds"]; c == nil || c.ends != 1 || len(c.by) != 1 {
					t.Errorf("the run that had the slot: %+v", c)
				}
			},
		},
		"drains": {
			before: func(t *testing.T, a *node, nc *nats.Conn) {
				submit(t, nc, "hold", `{"id":"holds"}`)
				time.Sleep(time.Second)
				a.intake()
				a.work.Go(func() {
					patience, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
					defer cancel()
					must.Report(t, a.sys.Drain(patience))
				})
			},
			within: 100 * time.Millisecond,
			after: func(_ *testing.T, a *node) {
				close(a.hold)
				time.Sleep(time.Second)
			},
		},
		"dead": {
			before: func(_ *testing.T, a *node, _ *nats.Conn) { a.kill() },
			within: 100 * time.Millisecond,
		},
		"silent": {
			spec: spec{take: func(own taker) taker {
				return func(ctx context.Context, r journal.Task) (journal.Answer, error) {
					if r.Seen != nil && r.Seen.Attempt > 0 {
						select {
						case <-time.After(5 * time.Second): // and then it wants it all the same
						case <-ctx.Done():
							return "", ctx.Err()
						}
					}
					return own(ctx, r)
				}
			}},
			within: 1300 * time.Millisecond,
		},
		"does not want it": {
			spec: spec{take: func(own taker) taker {
				return func(ctx context.Context, r journal.Task) (journal.Answer, error) {
					if r.Seen != nil && r.Seen.Attempt > 0 {
						return journal.AnswerNotMine, nil
					}
					return own(ctx, r)
				}
			}},
			within: 100 * time.Millisecond,
		},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
				tt.spec.more = []flow.Registration{nap}
				a := startNodeWith(t, srv, "node-a", &tt.spec)
				began := time.Now()
				submit(t, nc, "nap", fmt.Sprintf(`{"id":"r1","input":%q}`, sleeps))
				time.Sleep(time.Second)
				if tt.before != nil {
					tt.before(t, a, nc)
				}
				time.Sleep(time.Second)
				b := startNodeWith(t, srv, "node-b", &spec{more: []flow.Registration{nap}})
				time.Sleep(time.Until(began.Add(sleeps + 20*time.Second)))
				r := resultOf(t, nc, "r1")
				late := time.UnixMilli(int64(r["ended_ms"].(float64))).Sub(began.Add(sleeps))
				t.Logf("it ended %v after its time", late)
				if r["state"] != "succeeded" || late > tt.within {
					t.Errorf("it is %v %v after its time, want it succeeded within %v", r["state"], late, tt.within)
				}
				c := b.claims(t)["r1"]
				if want := []string{"node-a", "node-b"}; c == nil || c.ends != 1 || len(c.by) != 2 || !slices.Equal(c.by, want) && tt.spec.take == nil {
					t.Errorf("%+v, want one end and claims by %v", c, want)
				}
				if tt.after != nil {
					tt.after(t, a)
				}
				a.stop()
				b.stop()
			})
		})
	}
}

// TestDrainedNodeIsLeftAlone drains the executor of runs while its node still serves
// relays, and runs wait for its slots: it is asked once, and not again at once.
func TestDrainedNodeIsLeftAlone(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		var refused atomic.Int64
		a := startNodeWith(t, srv, "node-a", &spec{slots: 1, take: func(own taker) taker {
			return func(ctx context.Context, r journal.Task) (journal.Answer, error) {
				answer, err := own(ctx, r)
				if errors.Is(err, run.ErrShutdown) && refused.Add(1) > 100 {
					time.Sleep(time.Second) // else time stands still
				}
				return answer, err
			}
		}})
		time.Sleep(3 * time.Second)
		submit(t, nc, "hold", `{"id":"holds"}`)
		time.Sleep(time.Second)
		for i := range 5 {
			submit(t, nc, "agent", fmt.Sprintf(`{"id":"r%d","input":"x"}`, i))
		}
		time.Sleep(2 * time.Second)
		drain, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		must.Report(t, a.sys.Drain(drain))
		time.Sleep(10 * time.Second)
		if n := refused.Load(); n > int64(a.conn.Streams.Partitions()) {
			t.Errorf("it refused %d runs in 10 s", n)
		}
		a.stop()
	})
}

// TestManyWake wakes hundreds of runs at once that were on a node with a few slots, beside
// another one: hardly any dispatch is rejected, no run executes twice, and no slot is idle
// for long.
func TestManyWake(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		const runs, slots, takes = 400, 8, 50 * time.Millisecond
		var told asked
		due := time.Now().Add(2 * time.Minute)
		var mu sync.Mutex
		now, most, over := map[string]int{}, map[string]int{}, 0
		all := make(chan struct{}) // closed when so many runs have gone on
		work := func(node string) flow.Registration {
			count := func(n int) {
				mu.Lock()
				defer mu.Unlock()
				now[node] += n
				most[node] = max(most[node], now[node])
				if n < 0 {
					if over++; over == runs {
						close(all)
					}
				}
			}
			return flow.Registration{Name: "work", Revision: "1", New: func() flow.Workflow {
				return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
					if err := flow.Sleep(ctx, time.Until(due)); err != nil {
						return v, err
					}
					count(1)
					defer count(-1)
					select {
					case <-time.After(takes):
						return v, nil
					case <-ctx.Done():
						return v, context.Cause(ctx)
					}
				})
			}}
		}
		a := startNodeWith(t, srv, "node-a", &spec{slots: slots, take: told.on("a"), more: []flow.Registration{work("a")}})
		for i := range runs {
			submit(t, nc, "work", fmt.Sprintf(`{"id":"r%d"}`, i))
		}
		time.Sleep(time.Until(due.Add(-10 * time.Second)))
		b := startNodeWith(t, srv, "node-b", &spec{slots: slots, take: told.on("b"), more: []flow.Registration{work("b")}})
		time.Sleep(time.Until(due))
		began := time.Now()
		select {
		case <-all:
		case <-time.After(5 * time.Minute):
			t.Fatal("not all runs go on")
		}
		took, least := time.Since(began), runs/(2*slots)*takes
		time.Sleep(time.Second)
		questions, taken := told.counts()
		t.Logf("%d runs went on within %v, the slots need %v; %d questions, %d taken, most at once %v", runs, took, least, questions, taken, most)
		if took > least*3/2 {
			t.Errorf("%d runs went on within %v, the slots need %v", runs, took, least)
		}
		// Commits that share a sync of the disk are published at once, and several relays
		// ask for the slots that are free then.
		if bound := runs + runs/2; questions > bound {
			t.Errorf("%d questions were asked, want at most %d", questions, bound)
		}
		for id, c := range a.claims(t) {
			if len(c.by) != 2 || c.ends != 1 {
				t.Errorf("%s: %+v", id, c)
			}
		}
		for node, n := range most {
			if n > slots {
				t.Errorf("%d runs executed at once on node %s, which has %d slots", n, node, slots)
			}
		}
		a.stop()
		b.stop()
	})
}

// TestNodeThatTakesNothingMore has a node answer a dispatch that it accepts no more runs,
// while runs wait for its slots: it is not asked again, and another node has the runs.
func TestNodeThatTakesNothingMore(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		const runs = 40
		var mu sync.Mutex
		over, asked := false, 0
		began := make(chan time.Time, runs)
		a := startNode(t, srv, "node-a") // of another pool, with the relay
		time.Sleep(3 * time.Second)
		sp := &spec{slots: 1, pool: "gpu", only: []flow.Registration{busy("", func() { began <- time.Now() })}, take: func(own taker) taker {
			return func(ctx context.Context, r journal.Task) (journal.Answer, error) {
				mu.Lock()
				shut := over
				if shut {
					asked++
				}
				mu.Unlock()
				if shut && asked < 1000 {
					return "", run.ErrShutdown
				}
				return own(ctx, r)
			}
		}}
		g := startNodeWith(t, srv, "node-g", sp)
		for i := range runs {
			submit(t, nc, "busy", fmt.Sprintf(`{"id":"r%d"}`, i))
		}
		time.Sleep(3 * taskTime)
		mu.Lock()
		over = true
		mu.Unlock()
		time.Sleep(3 * taskTime)
		h := startNodeWith(t, srv, "node-h", &spec{pool: "gpu", only: []flow.Registration{busy("", func() { began <- time.Now() })}})
		for i := range runs {
			succeeded(t, nc, fmt.Sprintf("r%d", i))
		}
		mu.Lock()
		if asked == 0 || asked > 8 {
			t.Errorf("the node was asked %d times after it said that it takes nothing more", asked)
		}
		mu.Unlock()
		for _, n := range []*node{g, h, a} {
			n.stop()
		}
	})
}
