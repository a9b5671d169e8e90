package project

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestRelayStopsAfterTelling stops a relay while LINEAGE stores the first of two commits:
// it publishes both records to the watchers of the tree and of the run before it ends,
// because the next relay begins after the stored records.
func TestRelayStopsAfterTelling(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Projections, w *natstest.Wire) {
		heard := make(chan *nats.Msg, 10)
		must.Get(c.conn.NC.ChanSubscribe(messages.RunSubject("default", "r1", messages.OnEvent), heard))(t)
		home := c.logs.HomeOf("default", "r1")
		tail := make(chan *nats.Msg, 10)
		must.Get(c.conn.NC.ChanSubscribe(messages.TailSubject("default", home, messages.KindEnded, home), tail))(t)
		must.Do(t, c.conn.Flush(t.Context()))
		commits := make([][]messages.Record, 2)
		for i := range commits {
			for k := range 2 {
				commits[i] = append(commits[i], messages.Record{
					Schema: lineage.Schema, Kind: messages.KindEnded, Tenant: "default", Session: home, Root: home, Run: "r1", Seq: uint64(i + 1), K: k, Commit: uint64(i + 1),
				})
			}
		}
		p := &LineageRelay{C: c, Stream: streams.EventStream(1, 0), pace: eventlog.NewPacer(), life: c.conn.Incarnation(), LeaseValid: func() bool { return true }}
		defer p.pace.Stop()
		ctx, stop := context.WithCancel(t.Context())
		hook, fired := natstest.Once(lineage.StoredSubject(commits[0]), func([]byte) bool { stop(); return true })
		w.Set(nil, hook)
		err := p.publish(ctx, commits)
		w.Set(nil, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		held, lookErr := c.messages.LastSequence(t.Context(), streams.StreamLineage)
		if !fired() || lookErr != nil || held != 1 || !errors.Is(err, context.Canceled) {
			t.Fatalf("LINEAGE holds %d messages, %v; stopped while the first was sent: %v, which said %v", held, lookErr, fired(), err)
		}
		if len(heard) != 2 || len(tail) != 2 {
			t.Errorf("LINEAGE holds two records, and %d were told of the run, %d of the tree", len(heard), len(tail))
		}
	})
}

// recordsOf makes one record for each of some commits of a session.
func recordsOf(c *Projections, id session.ID, commits int) (all [][]messages.Record) {
	_, partition, _ := id.Locate()
	for i := range commits {
		all = append(all, []messages.Record{{
			Schema: lineage.Schema, Kind: messages.KindEnded, Tenant: session.DefaultTenant, Session: id, Root: id, Run: "r1",
			Partition: partition, Seq: uint64(i + 1), Commit: uint64(i + 1),
		}})
	}
	return all
}

// newRelay returns the relay of a session's partition, which publishes the commits it is
// given.
func newRelay(t testing.TB, c *Projections, id session.ID) *LineageRelay {
	t.Helper()
	g, partition, _ := id.Locate()
	p := &LineageRelay{
		C: c, Generation: g, Partition: partition, Stream: streams.EventStream(g, partition),
		pace: eventlog.NewPacer(), life: c.conn.Incarnation(), LeaseValid: func() bool { return true },
	}
	t.Cleanup(p.pace.Stop)
	var err error
	if p.batches, err = p.batchesOf(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRelayBehindSlowDisk has a relay publish commits while each answer of the server comes
// after the sync of its disk: if that takes long, it gives the server many of them at once,
// and otherwise one after the other. Records that a query waits for are published before
// the query gives up.
func TestRelayBehindSlowDisk(t *testing.T) {
	for _, want := range []struct {
		sync, most time.Duration
		commits    uint64
		batches    bool
	}{
		{10 * time.Millisecond, 15 * time.Second, 8192, true},
		// The rest after the batches takes lateMost one by one, plus the machine's own
		// time.
		{10 * time.Millisecond, lateMost + lateMost/2, 800, true},
		{100 * time.Microsecond, 5 * time.Second, 8192, false},
	} {
		commits, sync := want.commits, want.sync
		t.Run(fmt.Sprint(sync, commits), func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Projections, w *natstest.Wire) {
				id := c.logs.HomeOf(session.DefaultTenant, "r1")
				sessiontest.Grow(t, c.logs.Log(), session.Key{Tenant: session.DefaultTenant, ID: id}, commitlog.Position{}, int(commits))
				g, partition, _ := id.Locate()
				p := &LineageRelay{C: c, Generation: g, Partition: partition, Stream: streams.EventStream(g, partition), life: c.conn.Incarnation(), LeaseValid: func() bool { return true }}
				var batches atomic.Int64
				w.Set(func([]byte) bool { time.Sleep(sync); return true }, func(b []byte) bool {
					batches.Add(int64(bytes.Count(b, []byte(".1.0.$FI"))))
					return true
				})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				began := time.Now()
				go func() { ended <- p.Run(ctx) }()
				var held uint64
				for held < commits && time.Since(began) < time.Minute {
					time.Sleep(10 * time.Millisecond)
					var err error
					if held, err = c.messages.LastSequence(t.Context(), streams.StreamLineage); err != nil {
						t.Fatal(err)
					}
				}
				took := time.Since(began)
				w.Set(nil, nil)
				stop()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if held != commits || took > want.most || (batches.Load() > 0) != want.batches {
					t.Errorf("LINEAGE holds %d of %d messages after %v and %d batches; want at most %v, batches: %v", held, commits, took, batches.Load(), want.most, want.batches)
				}
			})
		})
	}
}

// TestRelayGoesOnInBatch disturbs the messages and answers of a batch. LINEAGE holds each
// record once, in order.
func TestRelayGoesOnInBatch(t *testing.T) {
	const commits = 40
	lose := func(mark string) func([]byte) bool { // no stream has the subject
		return func(b []byte) bool {
			at := bytes.LastIndex(b[:bytes.Index(b, []byte(mark))], []byte(streams.PrefixLineage))
			copy(b[at:], "lost")
			return true
		}
	}
	for name, tc := range map[string]struct {
		mark       string
		act        func([]byte) bool
		fromServer bool
	}{
		"the connection breaks as it is sent":     {mark: ".7.1.$FI", act: natstest.Drop},
		"its first message gets lost":             {mark: ".1.0.$FI", act: lose(".1.0.$FI")},
		"one of its messages gets lost":           {mark: ".7.1.$FI", act: lose(".7.1.$FI")},
		"one of its messages has another place":   {mark: ".7.1.$FI", act: natstest.Replace(".7.1.$FI", ".6.1.$FI")},
		"its last message gets lost":              {mark: ".40.2.$FI", act: lose(".40.2.$FI")},
		"the connection breaks before the answer": {mark: `"count":40`, act: natstest.Drop, fromServer: true},
		"the connection breaks as it is taken":    {mark: `"type":"ack"`, act: natstest.Drop, fromServer: true},
	} {
		t.Run(name, func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Projections, w *natstest.Wire) {
				id := c.logs.HomeOf(session.DefaultTenant, "r1")
				p := newRelay(t, c, id)
				hook, fired := natstest.Once(tc.mark, tc.act)
				if tc.fromServer {
					w.Set(hook, nil)
				} else {
					w.Set(nil, hook)
				}
				err := p.publish(t.Context(), recordsOf(c, id, commits))
				w.Set(nil, nil)
				for errors.Is(err, errReconnected) { // it reads its position again
					p.life = c.conn.Incarnation()
					if err = p.locate(t.Context()); err == nil {
						err = p.publish(t.Context(), recordsOf(c, id, commits))
					}
				}
				if !fired() || err != nil {
					t.Fatalf("disturbed: %v, %v", fired(), err)
				}
				var got []uint64
				for m, err := range c.messages.UpTo(t.Context(), streams.StreamLineage, streams.PrefixLineage+">", 0, commits+10) {
					must.Do(t, err)
					records := must.Get(lineage.DecodeStored(m.Data))(t)
					got = append(got, records[0].Seq)
				}
				for i, seq := range got {
					if seq != uint64(i+1) || len(got) != commits {
						t.Fatalf("LINEAGE holds the records of commits %v, want 1 to %d", got, commits)
					}
				}
			})
		})
	}
}

// TestRelayBeginsWhereLineageEnds starts relays while the answering replica lacks the end
// of LINEAGE, with and without a checkpoint. They continue after its last record, so that
// none is published twice.
func TestRelayBeginsWhereLineageEnds(t *testing.T) {
	const all, held = 12, 5
	for _, checkpoint := range []bool{true, false} {
		t.Run(fmt.Sprint("checkpoint=", checkpoint), func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Projections, w *natstest.Wire) {
				id := c.logs.HomeOf(session.DefaultTenant, "r1")
				g, partition, _ := id.Locate()
				streamstest.PutLineage(t, c.conn.JS, id, 1, all)
				p := &LineageRelay{C: c, Generation: g, Partition: partition, Stream: streams.EventStream(g, partition)}
				if checkpoint {
					must.Do(t, c.logs.SaveCheckpoint(t.Context(), p.subject(), lineagePoint{At: held - 1, Seq: held - 1}))
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
