package actors_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
)

// TestToldWithTheClaim: a signal that reaches a run in the commit of its claim reaches
// the run's execution.
func TestToldWithTheClaim(t *testing.T) {
	k := key("s1")
	for _, tt := range []struct {
		name string
		sig  journal.Signal
		want run.State
	}{
		{"cancel", journal.Signal{Run: "r1", Cancel: &journal.CancelRequested{Reason: "enough"}}, run.Cancelled},
		{"quarantine", journal.Signal{Quarantine: &journal.Quarantined{Reason: "odd"}}, run.Queued},
		{"budget", journal.Signal{Run: "r1", Rebudget: &journal.Rebudgeted{Budget: run.Budget{Time: time.Minute}}}, run.TimedOut},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, w := &faults{}, holding("step0")
				sys := host(t, log, w, actors.Options{})
				must.Do(t, sys.Enqueue(t.Context(), task("r1", k), nil))
				// Both arrive while another commit is being stored.
				stored := make(chan struct{})
				log.set(func() { log.append = func(int, commitlog.Commit) error { <-stored; return nil } })
				all := make(chan error, 3)
				ask := func(f func() error) {
					go func() { all <- f() }()
					synctest.Wait()
				}
				ask(func() error {
					return sys.Signal(t.Context(), journal.Signal{To: k, Run: "r1", Received: &journal.SignalReceived{Kind: journal.Message, Text: "hello"}})
				})
				ask(func() error { _, err := sys.Accept(t.Context(), task("r1", k)); return err })
				ask(func() error { tt.sig.To = k; return sys.Signal(t.Context(), tt.sig) })
				close(stored)
				for range 3 {
					must.Do(t, <-all)
				}
				if all := kinds(t, log, k); len(all) < 3 || !strings.HasPrefix(all[2], "1 run.claimed run.") {
					t.Fatalf("want the claim and the signal in the third commit: %q", all)
				}
				time.Sleep(2 * time.Minute)
				if r := state(t, log, k, "r1"); r.State != tt.want {
					t.Errorf("the run is %s, want %s; it did %q", r.State, tt.want, w.done())
				}
			})
		})
	}
}
