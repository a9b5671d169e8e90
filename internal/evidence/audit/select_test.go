package audit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// chooser waits for the first of two timers, and in two functions at the same time.
func chooser(ctx context.Context, s session.Session) (session.Session, error) {
	soon := flow.OnTimer(time.Minute)
	first, err := flow.Select(ctx, flow.OnTimer(time.Hour), soon)
	if err != nil || first != soon {
		return s, err
	}
	nap := func(d time.Duration) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := flow.Sleep(ctx, d); err != nil {
				return err
			}
			_, err := flow.Do(ctx, "wake", func(context.Context) (int, error) { return 1, nil }, tool.Idempotent)
			return err
		}
	}
	return s.With(session.AssistantText("done")), flow.Gather(ctx, nil, nap(time.Minute), nap(2*time.Minute))
}

// TestRecordedSelect: the auditor accepts waits for the first of several, of a run whose
// process dies at each append, and finds one that is not over.
func TestRecordedSelect(t *testing.T) {
	play := func(t *testing.T, at int, stored bool) (appends int) {
		synctest.Test(t, func(t *testing.T) {
			f := &fleet{}
			state, n := f.life(t, flow.Func(chooser), at, stored)
			appends = n
			for range 20 {
				if state.Terminal() {
					break
				}
				state, _ = f.life(t, flow.Func(chooser), 0, false)
			}
			if r := f.audited(t); !r.OK() || state != run.Succeeded || r.Open > 0 {
				t.Errorf("death at append %d (stored: %v): the run is %s, %d of %d open, %v\n%s", at, stored, state, r.Open, r.Runs, f.last, violations(r))
			}
			if at > 0 {
				return
			}
			f.finds(t, `"path":"0.on.1","run":"r","wake":1`, `"path":"0.on.1","run":"r"`, "a wake with the last that the run waits for")
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
