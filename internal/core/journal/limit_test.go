package journal

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestManyGrantsAtOnce: no commit has more decisions than fit beside each other, however many
// runs become due at one time, and none is left out.
func TestManyGrantsAtOnce(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	log := &commitlog.Memory{}
	s := NewStore(log, &StoreOptions{Now: func() time.Time { return now }})
	k := session.Key{Tenant: "t", ID: "k-1-0"}
	const runs = 2*maxDecided + 5
	for i := range runs {
		id := run.ID(fmt.Sprint("r", i))
		must.Do(t, s.Apply(t.Context(), Signal{To: k, Run: id, Limit: &LimitSignal{From: "home", Requested: &LimitRequested{
			Limit: Limit{Concurrency: runs, Log: k.ID}, NotBefore: now.UnixMilli() + 1000, Run: id, Session: "home", Workflow: "w",
		}}}))
	}
	now = now.Add(time.Second)
	for range 3 {
		must.Do(t, s.Apply(t.Context(), Signal{To: k, Tick: true}))
	}
	if err := s.Apply(t.Context(), Signal{To: k, Tick: true}); !errors.Is(err, run.ErrState) {
		t.Errorf("a tick without a decision: %v", err)
	}
	decided := 0
	for e, err := range log.Read(t.Context(), k, commitlog.Position{}) {
		must.Do(t, err)
		here, due := 0, int64(0)
		for _, f := range Facts(e.Commit) {
			if d, ok := f.What.(LimitDecided); ok {
				here, due = here+1, d.Due
			}
		}
		decided += here
		if here > maxDecided || here > 0 && (due != 0) != (decided < runs) {
			t.Errorf("commit %d has %d decisions, the next at %d, after %d of %d", e.Commit.Seq, here, due, decided, runs)
		}
	}
	if decided != runs {
		t.Errorf("%d of %d runs have a grant", decided, runs)
	}
}

// TestLogOfLimitTakesNoTask: a task cannot name the log of a limit as its session.
func TestLogOfLimitTakesNoTask(t *testing.T) {
	s := NewStore(&commitlog.Memory{}, nil)
	k := session.Key{Tenant: "t", ID: "k-1-0"}
	must.Do(t, s.Apply(t.Context(), Signal{To: k, Run: "r1", Limit: &LimitSignal{From: "home", Requested: &LimitRequested{
		Limit: Limit{Concurrency: 1, Log: k.ID}, Run: "r1", Session: "home", Workflow: "w",
	}}}))
	_, err := s.Claim(t.Context(), Claim{Session: k, Home: k, Run: "r2", Task: &Task{ID: "r2", Workflow: "w", Session: k}})
	if !errors.Is(err, run.ErrNotSupported) {
		t.Errorf("a task in the log of a limit: %v", err)
	}
}
