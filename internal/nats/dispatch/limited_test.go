package dispatch

import (
	"context"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestLimitOfNodeItself: a node whose offer the registry does not have yet evaluates the limit
// of its own workflow, and its task waits for the grant.
func TestLimitOfNodeItself(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Dispatch, _ *natstest.Wire) {
		var queued []journal.Task
		pull := Intake{
			Offers: func(string) (string, bool) { return "1", true },
			Limit:  func(string) *run.Limit { return &run.Limit{Key: []string{"tag.customer"}, Concurrency: 1} },
			Accept: func(_ context.Context, k journal.Task) (journal.Answer, error) {
				t.Errorf("task %s begins without a grant", k.ID)
				return journal.AnswerCommitted, nil
			},
			Enqueue: func(_ context.Context, k journal.Task, _ *journal.CancelRequested) error {
				queued = append(queued, k)
				return nil
			},
		}
		must.Get(c.conn.JS.Publish(t.Context(), messages.TaskSubject(session.DefaultTenant, messages.UserAnonymous, "w"), []byte(`{"id":"r1","input":"hi","tags":{"customer":"acme"}}`)))(t)
		pullWhile(t, c, time.Minute, pull)
		if len(queued) != 1 || queued[0].Limit == nil || queued[0].Limit.String() != "1 at a time for acme" {
			t.Errorf("queued: %+v", queued)
		}
	})
}
