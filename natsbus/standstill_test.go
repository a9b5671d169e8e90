package natsbus

import (
	"context"
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

func consumerOf(t *testing.T, c *Conn, q pullQueue) *jetstream.ConsumerInfo {
	t.Helper()
	consumer, err := c.js.Consumer(t.Context(), q.stream, q.durable)
	if err != nil {
		t.Fatal(err)
	}
	return consumer.CachedInfo()
}
