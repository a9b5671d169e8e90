package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/run"
)

// PartitionState is the state of a partition that this process relays.
type PartitionState struct {
	Partition uint32
	// Open counts the runs that have not ended, by state.
	Open map[run.State]int
	// Backlogs are the runs that wait for slots.
	Backlogs []schedule.Backlog
	// Behind is how many messages of the event stream have no lineage yet, zero while
	// no lineage was published since the relay began.
	Behind uint64
}

// stateTimeout bounds how long Relaying waits for all relays of the process.
const stateTimeout = 4 * time.Millisecond

// Relaying returns the state of the partitions that this process relays, by their numbers.
// It sends no request outside of the process and takes a few milliseconds at most: a relay
// that is busy or reads history is reported with its last answer, and with nothing open
// before its first.
func (c *Dispatch) Relaying() []PartitionState {
	c.relaysMu.Lock()
	relays := make([]*dispatcher, 0, len(c.relays))
	for _, d := range c.relays {
		relays = append(relays, d)
	}
	c.relaysMu.Unlock()
	slices.SortFunc(relays, func(a, b *dispatcher) int { return int(a.partition) - int(b.partition) })
	ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
	defer cancel()
	all := make([]PartitionState, len(relays))
	for i, d := range relays {
		all[i] = d.askState(ctx)
	}
	return all
}

// relaying notes that this process relays a partition, until ended is called.
func (c *Dispatch) relaying(partition uint32, d *dispatcher) (ended func()) {
	c.relaysMu.Lock()
	defer c.relaysMu.Unlock()
	c.relays[partition] = d
	return func() {
		c.relaysMu.Lock()
		defer c.relaysMu.Unlock()
		if c.relays[partition] == d {
			delete(c.relays, partition)
		}
	}
}

// askState asks the pump for the state of the partition.
func (d *dispatcher) askState(ctx context.Context) PartitionState {
	done := make(chan struct{})
	ask := func() {
		d.lastState.Store(d.state())
		close(done)
	}
	select {
	case d.requests <- ask:
		<-done // the pump runs it at once
	case <-ctx.Done():
	}
	if last := d.lastState.Load(); last != nil {
		return *last
	}
	return PartitionState{Partition: d.partition}
}

// state is called by the pump.
func (d *dispatcher) state() *PartitionState {
	s := &PartitionState{Partition: d.partition, Open: d.s.States(), Backlogs: d.s.Slots.Backlogs()}
	if at, here := d.c.projections.Watermarks.Here(d.stream); here && at > 0 && d.at.Token > at {
		s.Behind = d.at.Token - at
	}
	return s
}

// DeadLettered returns how many tasks this process has stored as dead letters.
func (c *Dispatch) DeadLettered() uint64 { return c.deadLetters.Load() }
