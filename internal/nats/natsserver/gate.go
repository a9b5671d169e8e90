package natsserver

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"

	"github.com/rathcluster/rath/internal/core/protection"
)

// A server that syncs each message by itself is bound by the syncs. So where the files
// are known (see files) it writes without, and everything that it says, to a client in
// this process or to one at its port, is held at the gate until a round has synced what
// was written before: acknowledgements, and messages that are read, delivered or told.
// Nothing outside of the server can so know of a write that a power cut takes back, and
// no client has to be told about rounds. All that arrives at the gate during a round
// shares the next one, and what arrives at an open gate is held by its own round only.

// ErrSync is returned when what was written could not be synced: the kernel may have
// dropped it, and only reading the disk again tells what is there.
var ErrSync = errors.New("natsserver: what was written could not be synced")

// gate runs rounds for those who wait.
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
		// Who is about to write goes first, and shares the round.
		runtime.Gosched()
		g.mu.Lock()
		g.round()
	}
	return g.err
}

// round runs one; mu is held, and given up meanwhile.
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

// fail lets nothing pass any more; mu is held.
func (g *gate) fail(err error) {
	if g.err == nil {
		g.err = fmt.Errorf("%w: %w: nothing more is acknowledged; see to the disk, and start the process again, which goes on with what the disk holds", ErrSync, err)
		close(g.failed)
	}
}

// broken lets nothing pass any more, because the disk takes no writes and is not full.
func (g *gate) broken(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail(err)
	g.changed.Broadcast()
}

// close waits for the last round, and runs what closes what rounds use.
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
