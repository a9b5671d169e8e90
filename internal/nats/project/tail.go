package project

import (
	"context"
	"errors"
	"iter"

	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/session"
)

// Ordered drops what a stream of lineage records repeats: of each event stream
// it passes only what is above the last. The zero value is ready to use. It is
// not safe for concurrent use.
type Ordered struct {
	last map[[2]uint32]recordPlace
}

type recordPlace struct {
	seq uint64
	k   int
}

// Pass reports whether a record is new.
func (o *Ordered) Pass(r *lineage.Record) bool {
	g, _, _ := r.Session.Locate()
	stream := [2]uint32{g, r.Partition}
	last, known := o.last[stream]
	if known && (r.Seq < last.seq || r.Seq == last.seq && r.K <= last.k) {
		return false
	}
	if o.last == nil {
		o.last = map[[2]uint32]recordPlace{}
	}
	o.last[stream] = recordPlace{r.Seq, r.K}
	return true
}

// Tail yields the lineage of a tree, or of all of a tenant's with an empty
// root, from after a sequence of LINEAGE on: what is there and then what
// comes, in order, each record once, also over the loss of a connection. It
// ends with ctx, whose error it does not yield. What LINEAGE has forgotten is
// not yielded. It is for nodes; programs outside use package client.
func (c *Projections) Tail(ctx context.Context, t session.Tenant, root session.ID, after uint64) iter.Seq2[wire.LineageRecord, error] {
	return func(yield func(wire.LineageRecord, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		in := make(chan conn.Message, conn.FollowAhead)
		var ordered Ordered
		err := conn.Following(ctx, func(ctx context.Context) error {
			return c.Follow(ctx, streams.StreamLineage, LineageFilter(t, root), after+1, in)
		}, func(ctx context.Context) error {
			for {
				select {
				case m := <-in:
					records, err := LineageRecords(m)
					if err != nil {
						yield(wire.LineageRecord{}, err)
						return nil
					}
					for _, r := range records {
						if ordered.Pass(&r.Record) && !yield(r, nil) {
							return nil
						}
					}
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			yield(wire.LineageRecord{}, err)
		}
	}
}

// LineageRecords returns the records of a message of LINEAGE, each with the sequence
// that a reader who has it goes on after.
func LineageRecords(m conn.Message) ([]wire.LineageRecord, error) {
	records, err := lineage.DecodeStored(m.Data)
	if err != nil {
		return nil, err
	}
	out := make([]wire.LineageRecord, len(records))
	for i, r := range records {
		out[i] = wire.LineageRecord{At: m.Seq - 1, Record: r}
	}
	out[len(out)-1].At = m.Seq
	return out, nil
}

// LineageFilter is the subject of the records of a tree; of all for "".
func LineageFilter(t session.Tenant, root session.ID) string {
	filter := streams.PrefixLineage + string(t) + "."
	if root == "" {
		return filter + ">"
	}
	return filter + string(root) + ".>"
}
