package journal

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// quotaWorld is the log of a quota, with a clock.
type quotaWorld struct {
	t     *testing.T
	now   time.Time
	log   *commitlog.Memory
	store Store
	k     session.Key
	limit QuotaLimit
}

func newQuotaWorld(t *testing.T, now time.Time, q QuotaLimit) *quotaWorld {
	w := &quotaWorld{t: t, now: now, log: &commitlog.Memory{}, k: session.Key{Tenant: "t", ID: "q-1-0"}, limit: q}
	w.limit.Log, w.limit.Setting = w.k.ID, 1
	w.store = NewStore(w.log, &StoreOptions{Now: func() time.Time { return w.now }})
	return w
}

// apply applies a fact. That it decides nothing is no error.
func (w *quotaWorld) apply(s *LimitSignal) {
	w.t.Helper()
	if err := w.store.Apply(w.t.Context(), Signal{To: w.k, Limit: s}); err != nil && !errors.Is(err, run.ErrState) {
		w.t.Fatal(err)
	}
}

func (w *quotaWorld) tick() error {
	return w.store.Apply(w.t.Context(), Signal{To: w.k, Tick: true})
}

func (w *quotaWorld) submit(ids ...run.ID) {
	w.t.Helper()
	for _, id := range ids {
		w.apply(&LimitSignal{From: "home", Requested: &LimitRequested{Limit: w.limit.Limit(), Run: id, Session: "home", Workflow: "w"}})
	}
}

func (w *quotaWorld) end(id run.ID) {
	w.t.Helper()
	w.apply(&LimitSignal{From: "home", Released: &LimitReleased{Run: id, Session: "home"}})
}

func (w *quotaWorld) set(change func(*QuotaLimit)) {
	w.t.Helper()
	change(&w.limit)
	w.limit.Setting++
	w.apply(&LimitSignal{From: "home", Set: &LimitSet{By: "ana", Limit: w.limit.Limit()}})
}

// decided returns the runs that were let begin, and the paths of calls, in order.
func (w *quotaWorld) decided() (all []string) {
	w.t.Helper()
	for e, err := range w.log.Read(w.t.Context(), w.k, commitlog.Position{}) {
		must.Do(w.t, err)
		for _, f := range Facts(e.Commit) {
			if d, ok := f.What.(LimitDecided); ok {
				all = append(all, string(d.Run)+string(d.Path))
			}
		}
	}
	return all
}

func (w *quotaWorld) want(all ...string) {
	w.t.Helper()
	if got := w.decided(); !slices.Equal(got, all) {
		w.t.Errorf("at %s these began: %v, want %v", w.now.Format(time.DateTime), got, all)
	}
}

// TestQuotaOverMidnight: the runs of a day are counted from midnight UTC on, also for runs
// that wait then; the clock of a writer that is behind brings no day back.
func TestQuotaOverMidnight(t *testing.T) {
	w := newQuotaWorld(t, time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC), QuotaLimit{Daily: 2})
	w.submit("a", "b", "c", "d", "e")
	w.want("a", "b")
	w.now = w.now.Add(time.Second - time.Millisecond)
	if err := w.tick(); !errors.Is(err, run.ErrState) {
		t.Errorf("a tick before midnight: %v", err)
	}
	w.end("a")
	w.want("a", "b")
	w.now = w.now.Add(time.Millisecond)
	must.Do(t, w.tick())
	w.want("a", "b", "c", "d")
	w.now = w.now.Add(-time.Second)
	w.end("b")
	w.want("a", "b", "c", "d")
	w.set(func(q *QuotaLimit) { q.Opened, q.OpenedOn = 1, DayOf(w.now.Add(time.Minute)) })
	w.want("a", "b", "c", "d", "e")
	w.submit("f")
	w.now = w.now.Add(24 * time.Hour)
	w.submit("g", "h")
	w.want("a", "b", "c", "d", "e")
	w.now = w.now.Add(time.Minute)
	must.Do(t, w.tick())
	w.want("a", "b", "c", "d", "e", "f", "g")
}

// TestQuotaBelowOpenRuns: a quota below the open runs takes nothing from them, and lets none
// begin before enough of them have ended; an older setting that arrives late has no effect.
func TestQuotaBelowOpenRuns(t *testing.T) {
	w := newQuotaWorld(t, time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), QuotaLimit{Concurrency: 3})
	w.submit("a", "b", "c", "d", "e")
	w.want("a", "b", "c")
	old := w.limit
	w.set(func(q *QuotaLimit) { q.Concurrency = 1 })
	w.apply(&LimitSignal{Set: &LimitSet{Limit: old.Limit()}})
	w.apply(&LimitSignal{Requested: &LimitRequested{Limit: old.Limit(), Run: "f", Session: "home", Workflow: "w"}})
	w.end("a")
	w.end("b")
	w.want("a", "b", "c")
	w.end("c")
	w.want("a", "b", "c", "d")
	w.set(func(q *QuotaLimit) { *q = QuotaLimit{Log: q.Log, Setting: q.Setting} })
	w.want("a", "b", "c", "d", "e", "f")
}

// TestQuotaWakesCalls: a setting wakes the model calls that wait for the one before, in
// bounded pages, and a call that comes after it at once; a call of a former day is forgotten.
func TestQuotaWakesCalls(t *testing.T) {
	w := newQuotaWorld(t, time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), QuotaLimit{})
	block := func(id run.ID, setting uint64) {
		w.apply(&LimitSignal{From: "home", Blocked: &LimitBlocked{Path: "1.quota.0", Quota: setting, Run: id, Session: "home", Until: EndOf(DayOf(w.now))}})
	}
	w.set(func(*QuotaLimit) {})
	const calls = maxDecided + 5
	for i := range calls {
		block(run.ID(fmt.Sprint("r", i)), 2)
		block(run.ID(fmt.Sprint("r", i)), 2)
	}
	w.want()
	w.set(func(*QuotaLimit) {})
	if n := len(w.decided()); n != maxDecided {
		t.Errorf("%d calls were woken in one commit", n)
	}
	must.Do(t, w.tick())
	block("late", 2)
	if got := w.decided(); len(got) != calls+1 || got[calls] != "late1.quota.0" {
		t.Errorf("%d calls were woken, want %d", len(got), calls+1)
	}
	block("yesterday", 3)
	w.now = w.now.Add(24 * time.Hour)
	w.set(func(*QuotaLimit) {})
	if got := len(w.decided()); got != calls+1 {
		t.Errorf("a call of the day before was woken: %d", got)
	}
}

// TestQuotaLogWithoutUse: the log of a quota can be removed after its day, once no run holds a
// grant, and not before. Begun anew, it counts the runs of the day.
func TestQuotaLogWithoutUse(t *testing.T) {
	w := newQuotaWorld(t, time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC), QuotaLimit{Daily: 1})
	closing := func() error { return w.store.Apply(t.Context(), Signal{To: w.k, CloseKey: &KeyClosed{By: "ana"}}) }
	w.submit("r1")
	w.now = w.now.Add(2 * time.Hour)
	if err := closing(); !errors.Is(err, run.ErrState) {
		t.Errorf("closed while a run holds a grant: %v", err)
	}
	w.end("r1")
	w.submit("r2")
	w.end("r2")
	if err := closing(); !errors.Is(err, run.ErrState) {
		t.Errorf("closed on its day: %v", err)
	}
	w.now = w.now.Add(24 * time.Hour)
	must.Do(t, closing())
	w = newQuotaWorld(t, w.now, w.limit)
	w.submit("r3", "r4")
	w.want("r3")
}
