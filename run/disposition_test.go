package run

import (
	"errors"
	"testing"
	"time"

	"github.com/rathcluster/rath/session"
)

// TestDisposition: a branch is what its parent's log says; the log of a run
// that goes on may still say something.
func TestDisposition(t *testing.T) {
	k := session.Key{Tenant: "t", ID: "parent"}
	submitted := Submitted{Task: wireTask{Run: "r", Workflow: "w"}}
	kept := BranchOutcome{Session: "b", State: session.ClosedMerged}
	for name, c := range map[string]struct {
		then []session.Event
		want string // state, "" while it is open
	}{
		"the run goes on":             {nil, ""},
		"it has merged another one":   {[]session.Event{event(KindDisposed, BranchOutcomes{Run: "r", Branches: []BranchOutcome{{Session: "a", State: session.ClosedMerged}}})}, ""},
		"it has merged the branch":    {[]session.Event{event(KindDisposed, BranchOutcomes{Run: "r", Branches: []BranchOutcome{kept}})}, session.ClosedMerged},
		"it has ended without it":     {[]session.Event{event(KindEnded, Ended{Run: "r", State: Succeeded, Workflow: "w"})}, session.ClosedCancelled},
		"another run of it has ended": {[]session.Event{event(KindEnded, Ended{Run: "q", State: Succeeded, Workflow: "w"})}, ""},
		"it has merged it and ended": {[]session.Event{
			event(KindDisposed, BranchOutcomes{Run: "r", Branches: []BranchOutcome{kept}}), event(KindEnded, Ended{Run: "r", State: Succeeded, Workflow: "w"}),
		}, session.ClosedMerged},
	} {
		t.Run(name, func(t *testing.T) {
			log := &session.MemoryLog{}
			events := append([]session.Event{session.OpenedEvent(session.Opening{Kind: session.OpenLeaf}), event(KindSubmitted, submitted)}, c.then...)
			for i := range events {
				events[i].Time = time.UnixMilli(1_700_000_000_000)
			}
			if _, err := log.Append(t.Context(), session.Position{}, session.Commit{Key: k, Root: k.ID, Seq: 1, Epoch: 1, Events: events}); err != nil {
				t.Fatal(err)
			}
			d, err := NewValues(log).Disposition(t.Context(), k, "r", "b")
			switch {
			case c.want == "" && !errors.Is(err, ErrState):
				t.Errorf("it is %+v, %v; want not decided", d, err)
			case c.want != "" && (err != nil || d.State != c.want):
				t.Errorf("it is %+v, %v; want %s", d, err, c.want)
			}
		})
	}
}
