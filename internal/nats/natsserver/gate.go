package natsserver

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"

	"github.com/rathcluster/rath/internal/core/protection"
)

// A server that syncs each message itself is bound by the syncs. So if the layout of the
// files is known (see files), it writes without syncs, and all its output, to a client in
// this process or at its port, is held at the gate until a round has synced the earlier
// writes: acknowledgements, and messages that are read or delivered. So no client can
// observe a write that a power cut takes back, and clients need not know of rounds. All
// output that arrives at the gate during a round shares the next one, and output that
// arrives at an open gate waits for its own round only.

// ErrSync is returned when writes could not be synced: the kernel may have dropped them,
// and only reading the disk again shows which.
var ErrSync = errors.New("natsserver: a write could not be synced")

// gate runs rounds for waiting connections.
type gate struct {
	sync   func() error  // everything that was written before, to disk
	failed chan struct{} // closed with err set

	mu      sync.Mutex
	changed *sync.Cond
	running bool
	begun   uint64 // rounds
	ended   uint64
	err     error
}

func newGate(round func() error) *gate {
	g := &gate{sync: round, failed: make(chan struct{})}
	g.changed = sync.NewCond(&g.mu)
	return g
}

// pass returns when a round that began after the call has ended. An error is for ever.
func (g *gate) pass() error {
	if !protection.Round {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for mine := g.begun + 1; g.ended < mine && g.err == nil; {
		if g.running {
			g.changed.Wait()
			continue
		}
		g.running = true
		g.mu.Unlock()
		// A goroutine that is about to write goes first, and shares the round.
		runtime.Gosched()
		g.mu.Lock()
		g.round()
	}
	return g.err
}

// round runs one round; the caller holds mu, which is released meanwhile.
func (g *gate) round() {
	g.begun++
	n := g.begun
	g.mu.Unlock()
	err := g.sync()
	g.mu.Lock()
	g.running, g.ended = false, n
	if err != nil {
		g.fail(err)
	}
	g.changed.Broadcast()
}

// fail closes the gate for good; the caller holds mu.
func (g *gate) fail(err error) {
	if g.err == nil {
		g.err = fmt.Errorf("%w: %w: no write is acknowledged any more; repair the disk, and restart the process, which continues with the disk's content", ErrSync, err)
		close(g.failed)
	}
}

// broken closes the gate for good, because the disk accepts no writes and is not full.
func (g *gate) broken(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail(err)
	g.changed.Broadcast()
}

// close waits for the last round, and calls files to close the resources of rounds.
func (g *gate) close(files func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.running {
		g.changed.Wait()
	}
	if g.err == nil {
		g.err = net.ErrClosed
	}
	return files()
}
