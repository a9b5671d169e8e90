package natsbus

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestStandstill leaves a consumer that counts messages as done which lie in
// its stream: it gave them once, and would not again. The puller makes it anew.
func TestStandstill(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Conn, _ *wire) {
		queue := workQueue(DefaultPool, messages.ClassInteractive)
		broken := queue.config()
		broken.MaxDeliver, broken.AckWait = 1, time.Second
		consumer, err := c.js.CreateConsumer(t.Context(), queue.stream, broken)
		if err != nil {
			t.Fatal(err)
		}
		task := run.Task{ID: "r1", Workflow: "w", Session: key("s1"), Resume: true}
		if err := c.PublishWork(t.Context(), DefaultPool, messages.ClassInteractive, run.Work{Task: &task}); err != nil {
			t.Fatal(err)
		}
		batch, err := consumer.Fetch(1)
		if err != nil {
			t.Fatal(err)
		}
		for range batch.Messages() {
			// It is not acknowledged.
		}
		time.Sleep(2 * time.Second)

		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan run.Work, 1)
		done := make(chan error, 1)
		began := time.Now()
		go func() {
			done <- c.PullWork(ctx, DefaultPool, func() int { return 4 }, func(_ context.Context, w run.Work) error {
				got <- w
				if w.Task.ID == "r2" {
					time.Sleep(5 * standstill)
				}
				return nil
			})
		}()
		select {
		case w := <-got:
			if w.Task == nil || w.Task.ID != "r1" {
				t.Errorf("got %+v", w)
			}
			if d := time.Since(began); d > 2*standstill+5*time.Second {
				t.Errorf("it came after %v", d)
			}
		case <-time.After(time.Hour):
			t.Error("nobody ever gets the work")
		}
		// A queue with nothing in it is left alone, and so is one whose messages
		// are in somebody's hands.
		made := consumerOf(t, c, queue).Created
		slow := run.Task{ID: "r2", Workflow: "w", Session: key("s2"), Resume: true}
		if err := c.PublishWork(t.Context(), DefaultPool, messages.ClassInteractive, run.Work{Task: &slow}); err != nil {
			t.Fatal(err)
		}
		<-got
		time.Sleep(10 * standstill)
		if again := consumerOf(t, c, queue).Created; !again.Equal(made) {
			t.Error("a consumer at rest was made anew")
		}
		select {
		case w := <-got:
			t.Errorf("run %s was given twice", w.Task.ID)
		default:
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestIdleLooks: while nothing lies in its stream, a puller asks of its consumer
// and how much the stream holds, and no more.
func TestIdleLooks(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Conn, w *wire) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- c.PullWork(ctx, DefaultPool, func() int { return 4 }, func(context.Context, run.Work) error { return nil })
		}()
		time.Sleep(standstill / 2)
		queues := []pullQueue{workQueue(DefaultPool, messages.ClassInteractive), workQueue(DefaultPool, messages.ClassBatch), signalsQueue()}
		var consumers, streams atomic.Int64
		w.set(nil, func(b []byte) bool {
			consumers.Add(int64(bytes.Count(b, []byte("PUB "+apiConsumerInfo))))
			streams.Add(int64(bytes.Count(b, []byte("PUB "+apiStreamInfo))))
			return true
		})
		const looks = 6
		time.Sleep(looks * (standstill + pullFor))
		w.set(nil, nil)
		if n, m := consumers.Load(), streams.Load(); n < looks || n > int64(looks*len(queues)) || m != n {
			t.Errorf("%d looks of %d pullers: asked of consumers %d times, of streams %d times", looks, len(queues), n, m)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func consumerOf(t *testing.T, c *Conn, q pullQueue) *jetstream.ConsumerInfo {
	t.Helper()
	consumer, err := c.js.Consumer(t.Context(), q.stream, q.durable)
	if err != nil {
		t.Fatal(err)
	}
	return consumer.CachedInfo()
}

// TestLostConsumer has no server answer for a consumer, nor for its removal,
// though its stream is served. It is made anew by a node that pulls from it,
// and by one that starts.
func TestLostConsumer(t *testing.T) {
	queue := workQueue(DefaultPool, messages.ClassInteractive)
	pull := func(t *testing.T, c *Conn) {
		task := run.Task{ID: "r1", Workflow: "w", Session: key("s1"), Resume: true}
		if err := c.PublishWork(t.Context(), DefaultPool, messages.ClassInteractive, run.Work{Task: &task}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		got := false
		err := c.PullWork(ctx, DefaultPool, func() int { return 4 }, func(_ context.Context, w run.Work) error {
			got = w.Task != nil && w.Task.ID == "r1"
			cancel()
			return nil
		})
		if err != nil || !got {
			t.Errorf("the work: %v, %v", got, err)
		}
	}
	provision := func(t *testing.T, c *Conn) {
		if err := c.Provision(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for name, begin := range map[string]func(*testing.T, *Conn){"pull": pull, "start": provision} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *Conn, w *wire) {
				var removed atomic.Bool
				c.o.Pools = []string{DefaultPool}
				provision(t, c)
				made := consumerOf(t, c, queue).Created
				const answer = `{"type":"io.nats.jetstream.api.v1.`
				const noLeader = `{"error":{"code":503,"err_code":10008},"d":"d"`
				lost := func(b []byte) bool {
					const info, removal = answer + `consumer_info_response"`, answer + `consumer_delete_response"`
					if bytes.Contains(b, []byte(removal)) {
						replace(removal, noLeader)(b)
					}
					if !removed.Load() && bytes.Contains(b, []byte(info)) && bytes.Contains(b, []byte(`"name":"`+queue.durable)) {
						replace(info, noLeader)(b)
					}
					return true
				}
				w.set(lost, func(b []byte) bool {
					if bytes.Contains(b, []byte(apiConsumerDelete+queue.stream+"."+queue.durable)) {
						removed.Store(true)
					}
					return true
				})
				began := time.Now()
				begin(t, c)
				if d := time.Since(began); d > 4*patience {
					t.Errorf("it took %v", d)
				}
				w.set(nil, nil)
				if again := consumerOf(t, c, queue).Created; !removed.Load() || !again.After(made) {
					t.Errorf("the consumer of %v is that of %v", again, made)
				}
			})
		})
	}
}
