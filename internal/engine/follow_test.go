package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestFollow: a run receives a message and a cancel during one long step.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		rt := w.runtime(nil)
		ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Do(ctx, "long", func(ctx context.Context) (bool, error) {
				select {
				case <-time.After(24 * time.Hour):
					return true, nil
				case <-ctx.Done():
					return false, ctx.Err()
				}
			}, tool.NonIdempotent)
			return s, err
		})
		followed := make(chan struct{})
		go func() {
			defer close(followed)
			time.Sleep(time.Minute)
			if err := talk(t, rt, journal.SignalReceived{Kind: journal.Message, Text: "go on"}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			if err := rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Cancel: &journal.CancelRequested{Reason: "no"}}); err != nil {
				t.Error(err)
			}
		}()
		before := time.Now()
		state, err := ex.Forward(t.Context())
		if took := time.Since(before); state != run.Cancelled || took != 2*time.Minute {
			t.Errorf("%s after %s: %v; want a cancel after 2m", state, took, err)
		}
		<-followed
	})
}
