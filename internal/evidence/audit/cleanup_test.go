package audit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestRecordedCleanup: the auditor accepts a run with compensations whose process dies at
// each append, and finds a cleanup run that does not belong to the end.
func TestRecordedCleanup(t *testing.T) {
	play := func(t *testing.T, at int, stored bool) (appends int) {
		synctest.Test(t, func(t *testing.T) {
			f := &fleet{}
			w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				for _, name := range []string{"a", "b"} {
					undo := func(context.Context) error { return nil }
					if err := flow.Defer(ctx, "undo "+name, undo, flow.DeferOptions{Effect: tool.Idempotent}); err != nil {
						return s, err
					}
				}
				return s, errors.New("no more")
			})
			state, appends1 := f.life(t, w, at, stored)
			appends = appends1
			for range 20 {
				if state.Terminal() && (at == 0 || f.next > 1) {
					break
				}
				state, _ = f.life(t, w, 0, false)
			}
			r := f.audited(t)
			if !r.OK() || state != run.Failed || r.Open > 0 {
				t.Errorf("death at append %d (stored: %v): the run is %s, %d open, %v\n%s", at, stored, state, r.Open, f.last, violations(r))
			}
			if at > 0 {
				return
			}
			for _, forge := range []struct{ old, with, found string }{
				{`"budget":{"steps":2}`, `"budget":{"steps":3}`, "a budget of 2 steps"},
				{`"commit":4,"run":"r"`, `"commit":4,"run":"q"`, "a cleanup run in the commit that ends a run"},
			} {
				f.finds(t, forge.old, forge.with, forge.found)
			}
		})
		return appends
	}
	n := play(t, 0, false)
	for at := 1; at <= n; at++ {
		for _, stored := range []bool{false, true} {
			play(t, at, stored)
		}
	}
}
