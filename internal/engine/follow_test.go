package engine_test

import (
	"context"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/commitlog"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// losing is a store that loses the follower of a session: the first time at once,
// the second time after one commit. One at a time may follow.
type losing struct {
	journal.Store
	from []uint64 // where each began
}

func (l *losing) Follow(ctx context.Context, k session.Key, after session.Position) iter.Seq2[commitlog.Entry, error] {
	return func(yield func(commitlog.Entry, error) bool) {
		l.from = append(l.from, after.Seq)
		n := len(l.from)
		if n == 1 {
			yield(commitlog.Entry{}, session.ErrUnavailable)
			return
		}
		for e, err := range l.Store.Follow(ctx, k, after) {
			if !yield(e, err) {
				return
			}
			if n == 2 {
				yield(commitlog.Entry{}, session.ErrUnavailable)
				return
			}
		}
	}
}

// TestFollowAgain: what the log of a run loses for a moment does not make the
// run deaf. It hears a message once and a cancel, both in one long step.
func TestFollowAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		rt := w.runtime(nil)
		store := &losing{Store: rt.Store}
		rt.Store = store
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
			if err := rt.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Cancel: &journal.CancelRequested{Reason: "no"}}); err != nil {
				t.Error(err)
			}
		}()
		before := time.Now()
		state, err := ex.Forward(t.Context())
		if took := time.Since(before); state != run.Cancelled || took != 2*time.Minute {
			t.Errorf("%s after %s: %v; want a cancel after 2m", state, took, err)
		}
		<-followed
		if n := len(store.from); n != 3 || store.from[0] != store.from[1] || store.from[2] <= store.from[1] {
			t.Errorf("it followed from %v, want once more from the same place, and then from where it was", slices.Clone(store.from))
		}
	})
}
