package commitlog

import (
	"iter"

	"github.com/rathcluster/rath/session"
)

// MaxBatch is the maximum size of the events of one of [Batches], in bytes.
const MaxBatch = 256 << 10

// eventOverhead is the approximate size of an event without its data.
const eventOverhead = 160

// Batches yields the events in order, in parts that each fit into one commit with space
// for other events. An event that exceeds the size of a part is a part of its own.
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
