package natsbus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rathcluster/rath/lineage"
)

// Index is the graph of all lineage, rebuilt from the stream LINEAGE when it
// starts and kept up with it. It is in memory and grows with the stream, which
// is bounded. It is safe for concurrent use.
type Index struct {
	c       *Conn
	graph   *lineage.Graph
	records []lineage.Record // room for what Run adds at once

	mu      sync.Mutex
	at      uint64 // sequence of the last record taken
	changed chan struct{}
}

// catchUpWait bounds how long a query waits for the index.
const catchUpWait = 10 * time.Second

// NewIndex returns an empty index; Run fills it.
func (c *Conn) NewIndex() *Index {
	return &Index{c: c, graph: lineage.NewGraph(), changed: make(chan struct{})}
}

// Graph returns the graph, which goes on growing.
func (x *Index) Graph() *lineage.Graph { return x.graph }

// Run keeps the index until ctx ends.
func (x *Index) Run(ctx context.Context) error {
	in := make(chan followed, followAhead)
	err := following(ctx, func(ctx context.Context) error {
		return x.c.follow(ctx, StreamLineage, prefixLineage+">", 1, in)
	}, func(ctx context.Context) error {
		for {
			select {
			case m := <-in:
				x.take(m, in)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// take adds a message and those that wait behind it.
func (x *Index) take(m followed, in <-chan followed) {
	records := x.records[:0]
	last := m.Seq
	add := func(m followed) {
		last = m.Seq
		r, err := lineage.Decode(m.Data)
		if err != nil {
			x.c.o.Logger.Warn("a lineage record cannot be read", "seq", m.Seq, "err", err)
			return
		}
		records = append(records, r)
	}
	add(m)
	for range len(in) {
		add(<-in)
	}
	x.graph.Add(records...) // keeps copies
	clear(records)
	x.records = records
	x.mu.Lock()
	defer x.mu.Unlock()
	x.at = last
	close(x.changed)
	x.changed = make(chan struct{})
}

// catchUp returns when the index has everything that LINEAGE held when it was
// called, and with relays in this process everything that was committed.
func (x *Index) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	if err := x.c.Relayed(ctx); err != nil {
		return err
	}
	end, err := x.c.lastSequence(ctx, StreamLineage)
	if err != nil {
		return err
	}
	for {
		x.mu.Lock()
		at, changed := x.at, x.changed
		x.mu.Unlock()
		if at >= end {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("natsbus: the index of lineage is at %d of %d; ask again later: %w", at, end, ctx.Err())
		}
	}
}
