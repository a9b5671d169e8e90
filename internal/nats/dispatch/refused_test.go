package dispatch

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestRefusedForGood redelivers a task whose refusal was published: its cause is gone, as
// when an archived session is restored. The run does not begin.
func TestRefusedForGood(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Dispatch, _ *natstest.Wire) {
		taken := 0
		in := Intake{
			Offers: func(string) (string, bool) { return "1", true },
			Accept: func(_ context.Context, task journal.Task) (journal.Answer, error) {
				if taken++; taken == 1 {
					return "", fmt.Errorf("load %s: %w", task.Session, &session.ArchivedError{Key: task.Session, File: "old.json"})
				}
				return journal.AnswerCommitted, nil
			},
		}
		takeAll(t, c)
		synctest.Wait()
		stop := natstest.Background(t, func(ctx context.Context) error { return c.PullTasks(ctx, &in) })
		for range 2 {
			must.Get(c.conn.JS.Publish(t.Context(), messages.TaskSubject("default", messages.UserAnonymous, "w"), []byte(`{"id":"r1","session":"notes","input":"hi"}`)))(t)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		stop()
		if taken != 1 {
			t.Errorf("it was given to a log %d times", taken)
		}
		m, err := c.messages.Last(t.Context(), streams.StreamResult, messages.RunSubject("default", "r1", messages.OnResult))
		must.Do(t, err)
		r, err := messages.DecodeResult(m.Data)
		if err != nil || r.State != run.Failed {
			t.Errorf("the result: %+v, %v", r, err)
		}
	})
}
