package audit_test

import (
	"context"
	"testing"
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
	lives{
		begin:     fresh(chooser),
		ends:      run.Succeeded,
		forgeries: []forgery{{`"path":"0.on.1","run":"r","wake":1`, `"path":"0.on.1","run":"r"`, "a wake with the last that the run waits for"}},
	}.audited(t)
}
