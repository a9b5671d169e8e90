package project

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestRelayStopsAfterTelling stops a relay while LINEAGE takes the first of two
// commits: it tells who watches the tree and the run of both its records before it
// ends, because the next relay begins after what is stored.
func TestRelayStopsAfterTelling(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Projections, w *natstest.Wire) {
		heard := make(chan *nats.Msg, 10)
		if _, err := c.NC.ChanSubscribe(messages.RunSubject("default", "r1", messages.OnEvent), heard); err != nil {
			t.Fatal(err)
		}
		home := c.HomeOf("default", "r1")
		tail := make(chan *nats.Msg, 10)
		if _, err := c.NC.ChanSubscribe(messages.TailSubject("default", home, lineage.Ended, home), tail); err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		commits := make([][]lineage.Record, 2)
		for i := range commits {
			for k := range 2 {
				commits[i] = append(commits[i], lineage.Record{
					Schema: lineage.Schema, Kind: lineage.Ended, Tenant: "default", Session: home, Root: home, Run: "r1", Seq: uint64(i + 1), K: k, Commit: uint64(i + 1),
				})
			}
		}
		p := &LineageRelay{C: c, Stream: streams.EventStream(1, 0), pace: eventlog.NewPacer(), LeaseValid: func() bool { return true }}
		defer p.pace.Stop()
		ctx, stop := context.WithCancel(t.Context())
		hook, fired := natstest.Once(lineage.StoredSubject(commits[0]), func([]byte) bool { stop(); return true })
		w.Set(nil, hook)
		err := p.publish(ctx, commits)
		w.Set(nil, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		held, lookErr := c.LastSequence(t.Context(), streams.StreamLineage)
		if !fired() || lookErr != nil || held != 1 || !errors.Is(err, context.Canceled) {
			t.Fatalf("LINEAGE holds %d messages, %v; stopped while the first was sent: %v, which said %v", held, lookErr, fired(), err)
		}
		if len(heard) != 2 || len(tail) != 2 {
			t.Errorf("LINEAGE holds two records, and %d were told of the run, %d of the tree", len(heard), len(tail))
		}
	})
}

// TestRelayBeginsWhereLineageEnds starts relays while the replica that answers lacks the
// end of LINEAGE, with and without a checkpoint. They go on after its last record, so
// that nothing is published twice.
func TestRelayBeginsWhereLineageEnds(t *testing.T) {
	const all, held = 12, 5
	for _, checkpoint := range []bool{true, false} {
		t.Run(fmt.Sprint("checkpoint=", checkpoint), func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Projections, w *natstest.Wire) {
				id := c.HomeOf(session.DefaultTenant, "r1")
				g, partition, _ := id.Locate()
				streamstest.PutLineage(t, c.JS, id, 1, all)
				p := &LineageRelay{C: c, Generation: g, Partition: partition, Stream: streams.EventStream(g, partition)}
				if checkpoint {
					if err := c.SaveCheckpoint(t.Context(), p.subject(), lineagePoint{At: held - 1, Seq: held - 1}); err != nil {
						t.Fatal(err)
					}
				}
				w.Set(nil, streamstest.Behind(streams.StreamLineage, held))
				at, err := p.Cursor(t.Context())
				w.Set(nil, nil)
				if want := (lineagePoint{At: all, Seq: all}); err != nil || at != want {
					t.Errorf("the relay goes on after %+v, %v; want %+v", at, err, want)
				}
			})
		})
	}
}
