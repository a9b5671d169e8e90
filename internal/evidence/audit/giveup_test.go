package audit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestRecordedGiveUp: the auditor accepts a cancelled run whose code was given up during a
// call, the decision about the call, its late outcome and the cleanup run. It finds another
// review after a cancel.
func TestRecordedGiveUp(t *testing.T) {
	for _, effect := range []tool.Effect{tool.NonIdempotent, tool.Idempotent} {
		synctest.Test(t, func(t *testing.T) {
			f, driver := &fleet{}, &inprocess.Driver{}
			values := journal.NewValues(&f.log)
			rt := &engine.Runtime{Values: values, Store: journal.NewStore(&f.log, &journal.StoreOptions{Incarnation: "i1", Values: values, OnCommit: driver.Committed})}
			w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				undo := func(context.Context) error { return nil }
				if err := flow.Defer(ctx, "undo", undo, flow.DeferOptions{Effect: tool.Idempotent}); err != nil {
					return s, err
				}
				_, err := flow.Do(ctx, "pay", func(context.Context) (string, error) {
					time.Sleep(time.Hour)
					return "paid", nil
				}, effect)
				return s, err
			})
			apply := func(s journal.Signal) {
				s.To, s.Run = home, "r"
				must.Do(t, rt.Store.Apply(t.Context(), s))
			}
			time.AfterFunc(time.Minute, func() { apply(journal.Signal{Cancel: &journal.CancelRequested{Reason: "enough"}}) })
			time.AfterFunc(time.Minute+time.Second, func() { apply(journal.Signal{Cancel: &journal.CancelRequested{Reason: "at once", Force: true}}) })
			g := flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { return w }}
			task := journal.Task{ID: "r", Workflow: "w", Session: home}
			_, state, _ := driver.Run(t.Context(), rt, g, task)
			if want := map[tool.Effect]run.State{tool.NonIdempotent: run.NeedsReview, tool.Idempotent: run.Cancelled}[effect]; state != want {
				t.Errorf("%v: the run is %s, want %s", effect, state, want)
			}
			time.Sleep(2 * time.Hour)
			if state == run.NeedsReview {
				apply(journal.Signal{Resolve: &journal.Resolved{Decision: run.Happened, Reason: "looked", By: "ann"}})
			}
			r := f.audited(t)
			if !r.OK() {
				t.Errorf("%v: the auditor found\n%s", effect, violations(r))
			}
			if effect != tool.NonIdempotent {
				return
			}
			f.finds(t, `"code":"cancelled","expires"`, `"code":"needs_review","expires"`, "run.ended after run.cancel_requested")
		})
	}
}
