package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/session"
)

// TestLentCredit lends credit to many tenants: used credit comes back, and unused credit
// expires.
func TestLentCredit(t *testing.T) {
	d := &dispatcher{s: schedule.New(&schedule.Options{}), lent: lent{}}
	now := time.Now()
	for i := range 100 {
		if a := d.lend(now, credit{session.Tenant(fmt.Sprint("t", i)), "w", "", creditsAtOnce}); a.N != creditsAtOnce {
			t.Fatalf("tenant %d got credit for %d runs, want %d", i, a.N, creditsAtOnce)
		}
	}
	if a := d.lend(now, credit{"t0", "w", "", maxWaiting}); a.N != maxWaiting-creditsAtOnce {
		t.Errorf("got credit for %d more runs, want %d", a.N, maxWaiting-creditsAtOnce)
	}
	d.returned("t0", []journal.Fact{{Workflow: "w", What: journal.Submitted{}}})
	if a := d.lend(now, credit{"t0", "w", "", maxWaiting}); a.N != 1 {
		t.Errorf("got credit for %d runs after one was used, want 1", a.N)
	}
	if d.lend(now.Add(creditTTL), credit{"t0", "w", "", 1}); len(d.lent) != 1 {
		t.Errorf("%d loans are kept, want the new one alone", len(d.lent))
	}
}
