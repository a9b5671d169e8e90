package dispatch

import (
	"slices"
	"time"
)

// strangerAfter is how long a relay may send heartbeats while gossip considers it dead,
// before it counts as a relay of another gossip. Both recover from a failure in less.
const strangerAfter = 30 * time.Second

// meetStrangers reports the relays of another gossip: each half of such a fleet considers
// the other one dead.
func (r *relayMembership) meetStrangers(now time.Time) {
	if r.o.Known == nil || r.o.Strangers == nil {
		return
	}
	var all []string
	for id, m := range r.members {
		switch {
		case r.gone || !m.gossip || !r.dead(id):
			m.stranger = time.Time{}
		case m.stranger.IsZero():
			m.stranger = now
		case now.Sub(m.stranger) >= strangerAfter:
			all = append(all, id)
		}
	}
	slices.Sort(all)
	if !slices.Equal(all, r.strangers) {
		r.strangers = all
		r.o.Strangers(all)
	}
}
