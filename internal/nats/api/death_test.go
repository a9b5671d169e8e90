package api_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// members is the membership of one node. A nil one reports no deaths.
type members struct {
	mu       sync.Mutex
	dead     []string
	stranger string        // that it never saw
	until    time.Time     // when it takes that for a death
	changed  chan struct{} // closed with the next death
	relay    chan struct{}
}

func newMembers() *members {
	return &members{changed: make(chan struct{}), relay: make(chan struct{}, 1)}
}

// die reports a death.
func (m *members) die(incarnation string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = append(m.dead, incarnation)
	close(m.changed)
	m.changed = make(chan struct{})
	m.relay <- struct{}{}
}

func (m *members) alive() func(string) bool {
	if m == nil {
		return nil
	}
	return func(incarnation string) bool {
		alive, known := m.known()(incarnation)
		return alive || !known
	}
}

func (m *members) known() func(string) (alive, known bool) {
	if m == nil {
		return nil
	}
	return func(incarnation string) (alive, known bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if incarnation == m.stranger {
			return false, !time.Now().Before(m.until)
		}
		return !slices.Contains(m.dead, incarnation), true
	}
}

func (m *members) next() func() <-chan struct{} {
	if m == nil {
		return nil
	}
	return func() <-chan struct{} {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.changed
	}
}

func (m *members) news() <-chan struct{} {
	if m == nil {
		return nil
	}
	return m.relay
}

// TestNodeDies kills one of three nodes at work, at random moments and with random delays
// until membership reports it to the others: all of its runs resume elsewhere soon after
// both have been notified.
func TestNodeDies(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { nodeDies(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

// steady takes three seconds in steps.
var steady = flow.Registration{Name: "work", Description: "takes a while", Revision: "1", New: func() flow.Workflow {
	return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
		for i := range 30 {
			if _, err := flow.Do(ctx, "step", func(ctx context.Context) (int, error) {
				select {
				case <-time.After(100 * time.Millisecond):
					return i, nil
				case <-ctx.Done():
					return 0, context.Cause(ctx)
				}
			}, tool.Idempotent); err != nil {
				return v, err
			}
		}
		return v, nil
	})
}}

// load keeps inFlight runs of "work" executing concurrently, and requires each to succeed,
// until it is stopped.
func load(t *testing.T, nc *nats.Conn, inFlight int) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for i := range inFlight {
		work.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprintf("r%d-%d", i, n)
				sub, err := nc.SubscribeSync("rath.run.default." + id + ".result")
				if err != nil {
					t.Error(err)
					return
				}
				submit(t, nc, "work", fmt.Sprintf(`{"id":%q}`, id))
				m, err := sub.NextMsg(time.Minute)
				if err != nil {
					t.Errorf("%s: no result: %v", id, err)
					return
				}
				if r := read(t, m.Data); r["state"] != "succeeded" {
					t.Errorf("result %v", r)
				}
				_ = sub.Unsubscribe() // the connection ends
			}
		})
	}
	return func() {
		cancel()
		work.Wait()
	}
}

// goneOn returns how many runs of a dead incarnation others claimed, and how long after
// since the last claim was.
func (n *node) goneOn(t *testing.T, dead string, since time.Time) (taken int, worst time.Duration) {
	t.Helper()
	held := map[session.Key]bool{}
	for at, c := range n.commits(t) {
		for _, ev := range c.Events {
			switch ev.Kind {
			case journal.KindClaimed:
				v := must.Get(journal.Decode[journal.Claimed](ev))(t)
				if held[c.Key] && v.Incarnation != dead {
					taken++
					worst = max(worst, at.Sub(since))
				}
				held[c.Key] = v.Incarnation == dead
			case journal.KindEnded:
				held[c.Key] = false
			}
		}
	}
	for k, open := range held {
		if open {
			t.Errorf("%s does not go on", k)
		}
	}
	return taken, worst
}

func nodeDies(t *testing.T, dice *rand.Rand) {
	srv := natstest.Start(t, nil)
	var nodes []*node
	var told []*members
	for i := range 3 {
		told = append(told, newMembers())
		nodes = append(nodes, startNodeWith(t, srv, fmt.Sprint("node-", i), &spec{slots: 8, more: []flow.Registration{steady}, members: told[i]}))
		time.Sleep(time.Second)
	}
	stop := load(t, guest(t, srv), 12)
	time.Sleep(4*time.Second + time.Duration(dice.Int64N(int64(3*time.Second))))
	victim := dice.IntN(3)
	name := fmt.Sprint("node-", victim)
	began := time.Now()
	var dying sync.WaitGroup
	dying.Go(nodes[victim].kill)
	time.Sleep(800*time.Millisecond + time.Duration(dice.Int64N(int64(700*time.Millisecond))))
	first := (victim + 1 + dice.IntN(2)) % 3
	told[first].die(name)
	known := time.Now()
	time.Sleep(time.Duration(dice.Int64N(int64(100 * time.Millisecond))))
	told[3-victim-first].die(name)
	both := time.Since(known)
	time.Sleep(8 * time.Second)
	stop()
	dying.Wait()
	taken, worst := nodes[first].goneOn(t, name, known)
	t.Logf("%d runs, known after %v, by both %v later: all go on after %v more", taken, known.Sub(began), both, worst)
	if taken == 0 || worst > both+50*time.Millisecond {
		t.Errorf("%d runs of the dead node went on elsewhere, the last of them %v after the first node knew and %v after the second", taken, worst, worst-both)
	}
	for i, n := range nodes {
		if i != victim {
			n.stop()
		}
	}
}

// TestNodeStartsAgain kills one of some nodes at work and soon starts it again, as another
// incarnation without knowledge of the former one: for five seconds membership cannot
// report whether the former is alive, and it does not report when it can. Others are
// notified of the death when membership has noticed it. All runs resume within 2.5 s of the
// death, or of the start if no other relay is there, because the new one takes over its
// partitions.
func TestNodeStartsAgain(t *testing.T) {
	for _, others := range []int{0, 2} {
		for _, after := range []time.Duration{200 * time.Millisecond, time.Second, 5 * time.Second} {
			t.Run(fmt.Sprintf("%d others, after %v", others, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { nodeStartsAgain(t, others, after, rand.New(rand.NewPCG(uint64(after), 2))) })
			})
		}
	}
}

func nodeStartsAgain(t *testing.T, others int, after time.Duration, dice *rand.Rand) {
	srv := natstest.Start(t, nil)
	var nodes []*node
	var told []*members
	start := func(name string, m *members) *node {
		return startNodeWith(t, srv, name, &spec{slots: 24, more: []flow.Registration{steady}, members: m})
	}
	for i := range others + 1 {
		told = append(told, newMembers())
		nodes = append(nodes, start(fmt.Sprint("node-", i), told[i]))
		time.Sleep(time.Second)
	}
	stop := load(t, guest(t, srv), 12)
	time.Sleep(4*time.Second + time.Duration(dice.Int64N(int64(3*time.Second))))
	victim := dice.IntN(others + 1)
	name := fmt.Sprint("node-", victim)
	died := time.Now()
	var dying sync.WaitGroup
	dying.Go(nodes[victim].kill)
	for i, m := range told {
		if i != victim {
			known := 800*time.Millisecond + time.Duration(dice.Int64N(int64(500*time.Millisecond)))
			dying.Go(func() {
				time.Sleep(known)
				m.die(name)
			})
		}
	}
	time.Sleep(after)
	m := newMembers()
	m.stranger, m.until = name, time.Now().Add(5*time.Second)
	again := start(name+"-again", m)
	if others == 0 {
		died = time.Now()
	}
	time.Sleep(8 * time.Second)
	stop()
	dying.Wait()
	taken, worst := again.goneOn(t, name, died)
	t.Logf("%d runs went on, the last of them after %v", taken, worst)
	if taken == 0 || worst > 2500*time.Millisecond {
		t.Errorf("%d runs of the dead node went on, the last of them after %v", taken, worst)
	}
	again.stop()
	for i, n := range nodes {
		if i != victim {
			n.stop()
		}
	}
}

// TestUnclaimed kills a node that has received a task from the queue, before a log holds
// it: another node has it within three seconds.
func TestUnclaimed(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		n.stop()
		dying := must.Get(api.Connect(t.Context(), options(srv, t)))(t)
		taken := make(chan struct{})
		dying.TakeAll(t)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		var pulling sync.WaitGroup
		pulling.Go(func() {
			must.Report(t, dying.Dispatch.PullTasks(ctx, &dispatch.Intake{
				Offers: func(string) (string, bool) { return "1", true },
				Accept: func(ctx context.Context, _ journal.Task) (journal.Answer, error) {
					close(taken)
					<-ctx.Done()
					return "", ctx.Err()
				},
			}))
		})
		submit(t, nc, "agent", `{"id":"r1","input":"x"}`)
		<-taken
		n = startNode(t, srv, "node-2")
		time.Sleep(30 * time.Second) // it executes the run, and reports progress
		if r := ask(t, nc, "rath.query.default.result", `{"run":"r1"}`); r["state"] != nil {
			t.Errorf("somebody else has taken it: %v", r)
		}
		dying.Kill()
		began := time.Now()
		cancel()
		pulling.Wait()
		succeeded(t, nc, "r1")
		if d := time.Since(began); d > 3200*time.Millisecond {
			t.Errorf("it was taken after %v", d)
		}
		n.stop()
	})
}
