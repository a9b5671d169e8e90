package journal_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestArchived: an archived session can be read, and readers learn that no commit
// follows. Its file is not named before it is written.
func TestArchived(t *testing.T) {
	log := &commitlog.Memory{}
	store := journal.NewStore(log, nil)
	g := must.Get(store.Claim(t.Context(), journal.Claim{Session: home, Home: home, Run: "r1", Task: &journal.Task{ID: "r1", Workflow: "w", Session: home}}))(t)
	end := ev(t, journal.KindEnded, journal.Ended{Attempt: g.Attempt, Run: "r1", State: run.Failed, Workflow: "w"})
	must.Get(store.Commit(t.Context(), journal.Batch{Session: home, Run: "r1", Attempt: g.Attempt, Path: "end", Events: []session.Event{end}}))(t)
	for _, archived := range []bool{true, false} {
		sig := journal.Signal{To: home, Restore: &commitlog.Restoration{By: "ana"}}
		if archived {
			sig = journal.Signal{To: home, Archive: &commitlog.Archival{By: "ana", File: "a.json"}}
		}
		must.Do(t, store.Apply(t.Context(), sig))
		values := journal.NewValues(log)
		if v, err := values.At(t.Context(), session.Ref{Key: home}); err != nil || (v.Archived() != nil) != archived {
			t.Errorf("archived %v, %v; want %v", v.Archived(), err, archived)
		}
		err := values.Archived(t.Context(), home)
		if errors.Is(err, session.ErrArchived) != archived || err != nil && strings.Contains(err.Error(), "import") {
			t.Errorf("archived %v: %v", archived, err)
		}
	}
	if err := run.CodeArchived.Err("x"); !errors.Is(err, session.ErrArchived) {
		t.Errorf("its code means %v", err)
	}
}
