package audit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestRecordedCleanup: the auditor accepts a run with compensations whose process dies at
// each append, and finds a cleanup run that does not belong to the end.
func TestRecordedCleanup(t *testing.T) {
	lives{
		begin: fresh(func(ctx context.Context, s session.Session) (session.Session, error) {
			for _, name := range []string{"a", "b"} {
				undo := func(context.Context) error { return nil }
				if err := flow.Defer(ctx, "undo "+name, undo, flow.DeferOptions{Effect: tool.Idempotent}); err != nil {
					return s, err
				}
			}
			return s, errors.New("no more")
		}),
		ends: run.Failed,
		forgeries: []forgery{
			{`"budget":{"steps":2}`, `"budget":{"steps":3}`, "a budget of 2 steps"},
			{`"commit":4,"run":"r"`, `"commit":4,"run":"q"`, "a cleanup run in the commit that ends a run"},
		},
	}.audited(t)
}
