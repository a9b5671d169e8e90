package dispatch

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/internal/sessiontest"
)

// TestHandlingEnds has a node hang with a message: what it waits for ends with
// its context, or never. Either way the message comes again to who takes it.
func TestHandlingEnds(t *testing.T) {
	for name, heeds := range map[string]bool{"heeds its context": true, "heeds nothing": false} {
		t.Run(name, func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Dispatch, _ *natstest.Wire) {
				task := journal.Task{ID: "r1", Workflow: "w", Session: sessiontest.Key("s1"), Resume: true}
				if err := publishRun(t.Context(), c, task); err != nil {
					t.Fatal(err)
				}
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
				left, err := c.Subjects(t.Context(), streams.StreamTasks, streams.PrefixTask+">")
				if err != nil || len(left) > 0 {
					t.Errorf("left in the queue: %v, %v", left, err)
				}
				stop()
			})
		})
	}
}
