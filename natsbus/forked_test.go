package natsbus

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestForkMadeMeanwhile delivers a task that forks a session, when the fork is
// there already although nothing was noted of the task when it was looked for:
// as to a node that stood still after it had looked. Another delivery of this task
// made it, or another task did.
func TestForkMadeMeanwhile(t *testing.T) {
	for by, want := range map[run.ID]run.State{"r1": "", "r2": run.Failed} {
		t.Run("by "+string(by), func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *Conn, _ *wire) {
				tenant := session.Tenant("default")
				parent := session.Key{Tenant: tenant, ID: c.HomeOf(tenant, "r0")}
				home := session.Key{Tenant: tenant, ID: c.HomeOf(tenant, "r1")}
				grow(t, c.Log(), parent, session.Position{}, 1)
				submitted, err := run.NewEvent(run.KindSubmitted, map[string]any{"digest": "d", "task": map[string]any{"run": by, "workflow": "w"}})
				if err != nil {
					t.Fatal(err)
				}
				first := commit(home, session.Position{}, "hi")
				first.Events = append(first.Events, submitted)
				mustAppend(t, c.Log(), session.Position{}, first)

				ctx, cancel := context.WithCancel(t.Context())
				taken, done := 0, make(chan error, 1)
				go func() {
					done <- c.PullTasks(ctx, &Intake{
						Offers: func(string) (string, bool) { return "1", true },
						Accept: func(context.Context, run.Task) error { taken++; return nil },
					})
				}()
				body := fmt.Sprintf(`{"id":"r1","fork_of":"%s:1","input":"hi"}`, parent.ID)
				if _, err := c.js.Publish(ctx, messages.TaskSubject(tenant, "w"), []byte(body)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				if accepted := want == ""; accepted != (taken == 1) {
					t.Errorf("it was given to a log %d times", taken)
				}
				var state run.State
				if m, err := c.last(t.Context(), StreamResult, messages.RunSubject(tenant, "r1", messages.OnResult)); err == nil {
					r, err := messages.DecodeResult(m.Data)
					if err != nil {
						t.Fatal(err)
					}
					state = r.State
				}
				if state != want {
					t.Errorf("its result says %q, want %q", state, want)
				}
			})
		})
	}
}
