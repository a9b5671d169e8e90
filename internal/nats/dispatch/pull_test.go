package dispatch

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/run"
)

// TestHandlingEnds has a node hang with a message: its handler ends with its context, or
// never. Either way the message is redelivered to a node that handles it.
func TestHandlingEnds(t *testing.T) {
	for name, heeds := range map[string]bool{"heeds its context": true, "heeds nothing": false} {
		t.Run(name, func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Dispatch, _ *natstest.Wire) {
				task := journal.Task{ID: "r1", Workflow: "w", Session: sessiontest.Key("s1"), Resume: true}
				must.Do(t, publishRun(t.Context(), c, task))
				var given atomic.Int64
				taken, never := make(chan time.Duration, 2), make(chan struct{})
				began := time.Now()
				stop := natstest.Background(t, func(ctx context.Context) error {
					return pullRuns(ctx, c, 4, func(ctx context.Context, _ journal.Task) error {
						if given.Add(1) > 1 {
							taken <- time.Since(began)
							return nil
						}
						if !heeds {
							<-never
							return nil
						}
						<-ctx.Done()
						return ctx.Err()
					})
				})
				time.Sleep(10 * streams.HoldMost)
				select {
				case d := <-taken:
					if d < streams.HoldMost || d > streams.HoldMost+2*streams.AckWait+pullFor {
						t.Errorf("it came again after %v, want %v or little more", d, streams.HoldMost)
					}
				default:
					t.Error("the message never came again")
				}
				close(never)
				time.Sleep(time.Minute)
				if n := given.Load(); n != 2 {
					t.Errorf("it was given %d times", n)
				}
				left, err := c.streams.Subjects(t.Context(), streams.StreamTasks, streams.PrefixTask+">")
				if err != nil || len(left) > 0 {
					t.Errorf("left in the queue: %v, %v", left, err)
				}
				stop()
			})
		})
	}
}

// TestQueueAfterRestart has a server stop and start again while a node is at a task.
func TestQueueAfterRestart(t *testing.T) {
	srv := natstest.StartConfigured(t, "")
	queueAfter(t, &streams.Options{Options: conn.Options{URL: srv.URL()}, Level: streams.Lazy}, func() { srv.Restart(t) })
}

// queueAfter has restart stop and start all servers while a node handles a task, after
// which the position of the consumer may be lost. That task is handled all the same, the
// previous one is not redelivered, and a later one is handled.
func queueAfter(t *testing.T, o *streams.Options, restart func()) {
	c := layer.Dial(t, o)
	must.Do(t, c.streams.Provision(t.Context()))
	var mu sync.Mutex
	given := map[run.ID]int{}
	at, restarted := make(chan struct{}), make(chan struct{})
	t.Cleanup(natstest.Background(t, func(ctx context.Context) error {
		return pullRuns(ctx, c, 4, func(ctx context.Context, r journal.Task) error {
			mu.Lock()
			given[r.ID]++
			first := given[r.ID] == 1
			mu.Unlock()
			if r.ID == "r2" && first {
				close(at)
				<-restarted
			}
			return nil
		})
	}))
	publish := func(id run.ID) {
		t.Helper()
		must.Get(conn.Retry(t.Context(), func(ctx context.Context) (struct{}, error) {
			return struct{}{}, publishRun(ctx, c, journal.Task{ID: id, Workflow: "w", Session: sessiontest.Key("s1"), Resume: true})
		}))(t)
	}
	allTaken := func() {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			left, err := c.streams.Subjects(t.Context(), streams.StreamTasks, streams.PrefixTask+">")
			if err == nil && len(left) == 0 {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("left in the queue: %v, %v", left, err)
			}
		}
	}
	publish("r1")
	allTaken()
	publish("r2")
	<-at
	restart()
	close(restarted)
	allTaken()
	publish("r3")
	allTaken()
	mu.Lock()
	defer mu.Unlock()
	if given["r1"] != 1 || given["r3"] == 0 {
		t.Errorf("given: %v", given)
	}
}

// TestLastTask has tasks come one at a time: a finished task leaves the queue with the next
// one, which keeps the stream from becoming empty, and soon if no other comes, even when
// its node stops. None is redelivered.
func TestLastTask(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Dispatch, _ *natstest.Wire) {
		taken := make(chan run.ID, 8)
		node := func() (stop func()) {
			return natstest.Background(t, func(ctx context.Context) error {
				return pullRuns(ctx, c, 4, func(_ context.Context, r journal.Task) error {
					taken <- r.ID
					return nil
				})
			})
		}
		publish := func(id run.ID) {
			t.Helper()
			must.Do(t, publishRun(t.Context(), c, journal.Task{ID: id, Workflow: "w", Session: sessiontest.Key("s1"), Resume: true}))
			if got := <-taken; got != id {
				t.Fatalf("it took %s, want %s", got, id)
			}
			time.Sleep(pullFor / 4)
		}
		left := func(want uint64) {
			t.Helper()
			info, err := c.streams.Reconciler.LookStream(t.Context(), streams.StreamTasks)
			if err != nil || info.State.Msgs != want {
				t.Errorf("the queue holds %+v, %v; want %d messages", info.State, err, want)
			}
		}
		stop := node()
		publish("r1")
		left(1)
		publish("r2")
		left(1)
		time.Sleep(2 * pullFor)
		left(0)
		publish("r3")
		stop()
		left(0)
		stop = node()
		time.Sleep(2 * streams.AckWait)
		stop()
		if len(taken) > 0 {
			t.Errorf("%s came again", <-taken)
		}
	})
}

// TestTasksThatWait has a task wait in the queue for long: the queue is not made again for
// it. One that the queue's consumer has passed over comes all the same, also where the
// clock of the servers is an hour ahead.
func TestTasksThatWait(t *testing.T) {
	for name, tc := range map[string]struct{ passed, ahead bool }{
		"given back": {}, "passed over": {passed: true}, "passed over, by other clocks": {passed: true, ahead: true},
	} {
		t.Run(name, func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Dispatch, w *natstest.Wire) {
				if tc.ahead {
					hour := []byte(`"time":"2000-01-01T00`)
					w.Set(func(b []byte) bool {
						for i := bytes.Index(b, hour); i >= 0; i = bytes.Index(b, hour) {
							b[i+len(hour)-1] = '1'
						}
						return true
					}, nil)
				}
				must.Do(t, publishRun(t.Context(), c, journal.Task{ID: "r1", Workflow: "w", Session: sessiontest.Key("s1"), Resume: true}))
				made := func() time.Time {
					q, err := c.streams.Reconciler.LookQueue(t.Context(), streams.TasksQueue())
					if err != nil || q == nil {
						t.Fatalf("the queue: %v, %v", q, err)
					}
					return q.CachedInfo().Created
				}
				if tc.passed {
					must.Get(c.conn.JS.ResetConsumerToSequence(t.Context(), streams.StreamTasks, streams.TasksConsumer, 100))(t)
				}
				before := made()
				var given atomic.Int64
				stop := natstest.Background(t, func(ctx context.Context) error {
					return pullRuns(ctx, c, 4, func(context.Context, journal.Task) error {
						given.Add(1)
						return streams.ErrNoRoom
					})
				})
				watching := natstest.Background(t, func(ctx context.Context) error {
					_ = c.streams.Reconciler.ReconcileTasks(ctx) // ends with ctx
					return nil
				})
				const within = 2 * (streams.HoldMost + streams.WaitMost)
				time.Sleep(within)
				if given.Load() == 0 {
					t.Errorf("the task has not come for %v", within)
				}
				if again := !made().Equal(before); again != tc.passed {
					t.Errorf("made again: %v, want %v", again, tc.passed)
				}
				watching()
				stop()
			})
		})
	}
}
