package node

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The embedded server keeps blocks of each stream that it writes or reads in buffers
// of 4 and 8 MiB, lets go of them when a stream has been quiet for ten seconds, and
// collects them in pools that only some further garbage collections empty; where
// subjects lie in a block it forgets two minutes after the last use of the block. Go's
// collector comes to a process that does nothing each two minutes, and leaves it room
// to grow. So a node that was busy and rests would hold hundreds of megabytes; it
// gives them back to the system, a few times: what is let go of late holds more than
// itself, because it lies among what was collected before.
const (
	slackEvery = 20 * time.Second
	// slackBusy is from how much on that a node allocates between two looks it is busy. A
	// node that rests allocates too: the server writes the state of each stream, 80 bytes
	// for each subject, every two minutes.
	slackBusy = 64 << 20
	// slackTimes is how often a node gives memory back after it was busy: until the server
	// has forgotten all that it will, which it does when a timer of ten seconds ends next
	// after the two minutes. slackKept is how often before the node forgets what it keeps
	// itself: as long as sessions stay in memory.
	slackTimes, slackKept = 9, 2
)

// slack decides when memory is given back.
type slack struct {
	seen uint64 // bytes that were ever allocated, at the last look
	owed int    // how often it is still given back
}

// due reports whether to give memory back; allocated are the bytes ever allocated.
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

// long reports whether the node rests since longer than sessions stay in memory.
func (s *slack) long() bool { return s.owed < slackTimes-slackKept }

// giveBack gives memory back until ctx ends. When the node rests for long, it has
// what is kept to save reading forgotten before.
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
			runtime.GC() // the pools keep what was in them for one more
			debug.FreeOSMemory()
		}
	}
}
