package schedule

import (
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestAlarmsLeave has 10,000 runs wait for two weeks at most, and each of them answered,
// ended or given another budget soon: their alarms are removed with their causes.
func TestAlarmsLeave(t *testing.T) {
	const runs = 10_000
	s, h := waitingRuns(t, runs)
	s.Begin(epoch)
	for range s.Next(epoch) {
	}
	if n := len(s.alarms); n < runs {
		t.Fatalf("%d alarms for %d waits", n, runs)
	}
	answer := func(i int, wake uint64) {
		k := session.Key{Tenant: "t", ID: session.ID(fmt.Sprint("s", i))}
		s.fold(t, h.commit(k, h.event(journal.KindSignalReceived, journal.SignalReceived{
			Kind: journal.Respond, N: wake, Path: "0", Run: run.ID(fmt.Sprint("r", i)), Wake: wake, Workflow: "w",
		})))
	}
	for i := range runs {
		answer(i, 1)
	}
	// The next sweep, and the pool of the one workflow.
	const others = 8
	if n := len(s.alarms); n > others {
		t.Errorf("%d alarms after %d waits were answered", n, runs)
	}
	// They resume, wait and are answered again and again, and end.
	for round := range uint64(3) {
		for i := range 100 {
			k, id := session.Key{Tenant: "t", ID: session.ID(fmt.Sprint("s", i))}, run.ID(fmt.Sprint("r", i))
			s.fold(t, h.commit(k, h.event(journal.KindClaimed, journal.Claimed{Attempt: 2 + round, Home: k, Incarnation: "relay", Run: id, Workflow: "w"})))
			s.fold(t, h.commit(k, h.event(journal.KindRebudgeted, journal.Rebudgeted{Run: id, Budget: run.Budget{Time: time.Hour}})))
			s.fold(t, h.commit(k, h.event(journal.KindRunWaiting, journal.RunWaiting{Attempt: 2 + round, Run: id, For: []journal.Wait{{
				Kind: "await", Path: "0", Due: epoch.Add(14 * 24 * time.Hour).UnixMilli(),
			}}})))
			answer(i, 2+round)
		}
	}
	if n := len(s.alarms); n > 100+others { // the ends of their budgets
		t.Errorf("%d alarms of 100 runs that have an hour left", n)
	}
	for i := range runs {
		k := session.Key{Tenant: "t", ID: session.ID(fmt.Sprint("s", i))}
		s.fold(t, h.commit(k, h.event(journal.KindEnded, journal.Ended{Attempt: 1, Run: run.ID(fmt.Sprint("r", i)), State: run.Cancelled, Workflow: "w"})))
	}
	for s.Open() > 0 || len(s.sessions) > 0 { // their results are stored
		for _, a := range s.Next(epoch) {
			s.Done(epoch, a.ID, Outcome{Result: Settled, Pools: []Pool{{Name: "w"}}})
		}
	}
	for range s.Next(epoch) {
	}
	if n := len(s.alarms); n > others {
		t.Errorf("%d alarms are left though nothing is open", n)
	}
}
