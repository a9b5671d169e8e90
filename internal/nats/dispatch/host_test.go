package dispatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/session"
)

// TestDemandsOvertake: an older demand that arrives late, such as one with a dispatch, does
// not replace a newer one: the tenant that has arrived in between has the next slot. The
// demand of a relay whose clock is behind counts once the previous one has expired.
func TestDemandsOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{demands: map[partitionKey]*noted{}, served: map[session.Tenant]uint64{}}
		k := partitionKey{1, 0}
		demand := func(at uint64, tenants ...session.Tenant) {
			d := &schedule.Demand{At: at}
			for _, tenant := range tenants {
				d.Heads = append(d.Heads, schedule.Head{Tenant: tenant})
			}
			g.note(k, d)
		}
		next := func(want session.Tenant) {
			t.Helper()
			if _, head, _ := g.choose(time.Now()); head.Tenant != want {
				t.Errorf("the next slot is for %q, want %q", head.Tenant, want)
			}
		}
		g.served["greedy"] = 1
		demand(10, "greedy")
		demand(12, "greedy", "modest")
		demand(11, "greedy")
		next("modest")
		demand(12)
		next("")
		demand(20, "greedy", "modest")
		demand(14, "greedy")
		next("modest")
		time.Sleep(schedule.DemandTTL)
		demand(15, "greedy")
		next("greedy")
	})
}
