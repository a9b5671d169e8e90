package natsbus

import (
	"context"
	"fmt"
	"sync"
)

// relayed says how far the relays of this process have got: the sequence of
// the last message of each event stream whose lineage is published. Whoever
// asks about something that was just committed waits for it.
type relayed struct {
	mu      sync.Mutex
	at      map[string]uint64 // by stream; absent where no relay runs here
	changed chan struct{}     // closed at the next change
}

func newRelayed() *relayed { return &relayed{at: map[string]uint64{}, changed: make(chan struct{})} }

// pass reports that the lineage of a stream is published up to a sequence.
func (r *relayed) pass(stream string, seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at[stream] = max(r.at[stream], seq)
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *relayed) end(stream string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.at, stream)
}

// Relayed waits until the relays of this process have published the lineage of
// everything that was committed when it was called. It returns at once where
// no relay runs here.
func (c *Conn) Relayed(ctx context.Context) error {
	for p := range c.o.Partitions {
		stream := EventStream(c.o.Generation, p)
		end, err := c.lastSequence(ctx, stream)
		if err != nil {
			return err
		}
		for {
			c.relayed.mu.Lock()
			at, here := c.relayed.at[stream]
			changed := c.relayed.changed
			c.relayed.mu.Unlock()
			if !here || at >= end {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return fmt.Errorf("natsbus: lineage of %s is at %d of %d; ask again later: %w", stream, at, end, ctx.Err())
			}
		}
	}
	return nil
}
