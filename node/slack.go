package node

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The embedded server buffers blocks of each stream that it writes or reads, 4 and 8
// MiB each. It releases them when a stream has been quiet for ten seconds, into pools
// that only several garbage collections empty. It drops its index of the subjects in a
// block two minutes after the last use of the block. In an idle process Go's collector
// runs every two minutes, and leaves the heap room to grow. So a node that was busy and
// rests would hold hundreds of megabytes. It returns them to the system, several times:
// memory that is released late lies among memory collected before and keeps it in use.
const (
	slackEvery = 20 * time.Second
	// slackBusy is the number of bytes allocated between two checks from which a node
	// is busy. A node that rests allocates too: the server writes the state of each
	// stream, 80 bytes for each subject, every two minutes.
	slackBusy = 64 << 20
	// slackTimes is how often a node returns memory after it was busy: until the server
	// has dropped its buffers, when a timer of ten seconds ends next after the two
	// minutes. slackKept is the number of these times that pass before the node drops
	// its own caches: sessions stay in memory for as long.
	slackTimes, slackKept = 9, 2
)

// slack decides when to return memory to the system.
type slack struct {
	seen uint64 // bytes that were ever allocated, at the last look
	owed int    // how often memory is still to be returned
}

// due reports whether to return memory; allocated are the bytes ever allocated.
func (s *slack) due(allocated uint64) bool {
	busy := allocated-s.seen >= slackBusy
	s.seen = allocated
	switch {
	case busy:
		s.owed = slackTimes
	case s.owed > 0:
		s.owed--
		return true
	}
	return false
}

// long reports whether the node has rested for longer than sessions stay in memory.
func (s *slack) long() bool { return s.owed < slackTimes-slackKept }

// giveBack returns memory to the system until ctx ends. It calls forget, which drops
// the node's caches, when the node has rested for long.
func giveBack(ctx context.Context, forget func()) error {
	t := time.NewTicker(slackEvery)
	defer t.Stop()
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	for s := (slack{}); ; {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		if metrics.Read(sample); s.due(sample[0].Value.Uint64()) {
			if s.long() {
				forget()
			}
			runtime.GC() // the pools keep their contents for one more collection
			debug.FreeOSMemory()
		}
	}
}
