package node

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"time"
)

// The embedded server keeps blocks of each stream that it writes or reads in buffers
// of 4 and 8 MiB, lets go of them when a stream has been quiet for ten seconds, and
// collects them in pools that only some further garbage collections empty. Go's
// collector comes to a process that does nothing each two minutes, and leaves it room
// to grow. So a node that was busy and rests would hold hundreds of megabytes; it
// gives them back to the system, a few times: what is let go of late holds more than
// itself, because it lies among what was collected before.
const (
	slackEvery = 10 * time.Second
	// slackQuiet is how much a node allocates at most between two looks while it
	// rests, and slackWorth from how much on there is something to give back.
	slackQuiet = 16 << 20
	slackWorth = 64 << 20
	// slackRounds is how many collections empty the server's pools.
	slackRounds = 2
)

// slackLooks is after how many quiet looks it does: when the server's buffers are let
// go of, when sessions have left after a minute, and when the server has forgotten
// where subjects lie in blocks that are read no more, after two.
var slackLooks = [...]int{2, 7, 13}

// slack decides when memory is given back.
type slack struct {
	seen, given uint64 // bytes that were ever allocated: at the last look, when memory was given back
	quiet       int    // looks
	worth       bool   // it was busy before it rested
}

// due reports whether to give memory back; allocated are the bytes ever allocated.
func (s *slack) due(allocated uint64) bool {
	if allocated-s.seen > slackQuiet {
		s.quiet = 0
	} else {
		s.quiet++
	}
	s.seen = allocated
	if s.quiet == slackLooks[0] {
		s.worth = allocated-s.given >= slackWorth
	}
	if !s.worth || !slices.Contains(slackLooks[:], s.quiet) {
		return false
	}
	s.given = allocated
	return true
}

// long reports whether the node rests since longer than sessions stay in memory.
func (s *slack) long() bool { return s.quiet >= slackLooks[1] }

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
			for range slackRounds {
				runtime.GC()
			}
			debug.FreeOSMemory()
		}
	}
}
