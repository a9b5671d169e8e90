package commitlog

import (
	"iter"

	"github.com/rathcluster/rath/session"
)

// MaxBatch is how many bytes of events one of [Batches] holds.
const MaxBatch = 256 << 10

// eventOverhead is about what an event needs besides its data.
const eventOverhead = 160

// Batches yields the events in order, in parts that each fit into one commit with
// room for others. An event that is larger than a part is one of its own.
func Batches(events []session.Event) iter.Seq[[]session.Event] {
	return func(yield func([]session.Event) bool) {
		for len(events) > 0 {
			n, size := 0, 0
			for ; n < len(events); n++ {
				if size += len(events[n].Data) + eventOverhead; size > MaxBatch && n > 0 {
					break
				}
			}
			if !yield(events[:n:n]) {
				return
			}
			events = events[n:]
		}
	}
}
