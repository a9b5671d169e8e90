package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// archive stages the fence of an archive. The commit that holds the fence proves that
// no run is open in the session and that the session did not change meanwhile. After it
// only restore stages events.
func (w *StateMachine) archive(a commitlog.Archival, now time.Time) error {
	if w.at.Seq == 0 {
		return fmt.Errorf("journal: session %s: %w", w.key, session.ErrNotFound)
	}
	if w.state.quarantine != nil {
		return fmt.Errorf("journal: session %s is quarantined: %w; release it first", w.key, run.ErrState)
	}
	for _, r := range w.state.open() {
		if r.Home == w.key {
			return fmt.Errorf("journal: %s is %s in session %s: %w; wait for its end, or cancel it", r.ID, r.State, w.key, run.ErrState)
		}
	}
	return w.stage(now, commitlog.ArchivedEvent(a))
}

// restore lifts the fence.
func (w *StateMachine) restore(r commitlog.Restoration, now time.Time) error {
	if w.value.Archived() == nil {
		return fmt.Errorf("journal: session %s is not archived: %w", w.key, run.ErrState)
	}
	return w.stage(now, commitlog.RestoredEvent(r))
}

// Archived returns a *session.ArchivedError if a session is archived. It reads the end
// of the log, because a cached value may be older. It drops the cached values of a
// purged session.
func (v *Values) Archived(ctx context.Context, k session.Key) error {
	last, err := v.log.Last(ctx, k)
	if errors.Is(err, session.ErrNotFound) {
		return nil
	}
	if a, ok := errors.AsType[*session.ArchivedError](err); ok {
		v.drop(k)
		return a
	}
	if err != nil {
		return fmt.Errorf("journal: ask where the log of %s ends: %w", k, err)
	}
	if a, ok := commitlog.Tombstone(last.Commit); ok {
		a.Fenced = true // the log can be read
		return a
	}
	return nil
}
