package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
)

// forgetLineage removes messages of LINEAGE, as a server that loses them does.
func (n *node) forgetLineage(t *testing.T, from, to int) {
	t.Helper()
	s := must.Get(n.operator().Stream(t.Context(), streams.StreamLineage))(t)
	all := n.stored(t, streams.StreamLineage)
	for _, m := range all[len(all)-from : len(all)-to] {
		must.Do(t, s.DeleteMsg(t.Context(), m.Sequence))
	}
}

// TestLineageLosesItsEnd has LINEAGE lose its last messages behind a running relay, and the
// connection break as with the restart of a server: the relay publishes them again at once,
// and lists are complete right after.
func TestLineageLosesItsEnd(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		for i := range 3 {
			n.submitted(t, nc, 10*i, 10*i+10)
			ended(t, nc, 10*i, 10*i+10)
			time.Sleep(time.Duration(i) * time.Second) // before and after checkpoints
			n.forgetLineage(t, 15, 0)
			must.Do(t, n.conn.Cut())
			must.Do(t, n.conn.Projections.WaitCaughtUp(t.Context()))
			n.checkLineage(t)
		}
		n.stop()
	})
}

// TestLineageBeginsAnew has LINEAGE lose its contents while the relay stays connected, as
// with one replica on another server of a cluster that restarted: the sequence of the next
// message shows it, and the relay derives the missing records.
func TestLineageBeginsAnew(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		n.submitted(t, nc, 0, 20)
		ended(t, nc, 0, 20)
		time.Sleep(2 * time.Second)
		js := n.operator()
		s := must.Get(js.Stream(t.Context(), streams.StreamLineage))(t)
		must.Do(t, js.DeleteStream(t.Context(), streams.StreamLineage))
		must.Get(js.CreateStream(t.Context(), s.CachedInfo().Config))(t)
		n.submitted(t, nc, 20, 40)
		ended(t, nc, 20, 40)
		time.Sleep(2 * time.Second)
		n.checkLineage(t)
		n.stop()
	})
}

// TestRepairLineage has LINEAGE lose messages in the middle, some of them about a log that
// was purged since: a repair derives the others again and keeps the remaining records of
// that log, in the order of the commits. A second repair finds none missing.
func TestRepairLineage(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		n.submitted(t, nc, 0, 20)
		ended(t, nc, 0, 20)
		time.Sleep(2 * time.Second)
		before := len(n.stored(t, streams.StreamLineage))
		n.forgetLineage(t, 40, 30)
		c, _ := visitor(t, srv)
		repaired := func() (all messages.Repaired) {
			t.Helper()
			each, err := c.Lineage.Repair(t.Context())
			if err != nil || len(each) != int(n.conn.Streams.Partitions()) {
				t.Fatal(each, err)
			}
			for _, did := range each {
				all.Published, all.Removed = all.Published+did.Published, all.Removed+did.Removed
			}
			return all
		}
		if did := repaired(); did.Published-did.Removed != 10 {
			t.Errorf("10 messages are lost, and a repair does %+v", did)
		}
		if now := len(n.stored(t, streams.StreamLineage)); now != before {
			t.Errorf("LINEAGE has %d messages, and had %d", now, before)
		}
		n.checkLineage(t)
		if did := repaired(); did != (messages.Repaired{}) {
			t.Errorf("a second repair does %+v", did)
		}

		// The last messages are lost, and no later message shows it. A relay that reads its
		// position after the loss, as after each repair, publishes them again without one.
		time.Sleep(time.Second)
		n.forgetLineage(t, 10, 0)
		if did := repaired(); did.Published-did.Removed != 10 {
			t.Errorf("the last 10 messages are lost, and a repair does %+v", did)
		}
		n.checkLineage(t)

		// A log is purged, and messages before its records are lost.
		all := n.told(t)
		gone := all[len(all)-1].records[0]
		stream := streams.EventStream(n.conn.Streams.Generation(), gone.Partition)
		purge(t, n, stream, gone.Partition, string(gone.Session))
		n.forgetLineage(t, 60, 40)
		had := placesOf(n, t, string(gone.Session))
		if did := repaired(); did.Published <= did.Removed {
			t.Errorf("a repair does %+v", did)
		}
		if now := placesOf(n, t, string(gone.Session)); strings.Join(now, " ") != strings.Join(had, " ") {
			t.Errorf("of the purged log LINEAGE has %v, and had %v", now, had)
		}
		n.submitted(t, nc, 20, 22)
		ended(t, nc, 20, 22)
		last := map[uint32]uint64{}
		for _, m := range n.told(t) {
			r := m.records[0]
			if r.Seq < last[r.Partition] {
				t.Fatalf("the records of commit %d of partition %d follow those of %d", r.Seq, r.Partition, last[r.Partition])
			}
			last[r.Partition] = r.Seq
		}
		n.stop()
	})
}

// TestCursorOverRepair has readers continue after a repair from the text of their cursors
// alone: each record appears once, and after the end only records of later commits.
func TestCursorOverRepair(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		n.submitted(t, nc, 0, 20)
		ended(t, nc, 0, 20)
		time.Sleep(2 * time.Second)
		c, _ := visitor(t, srv)
		read := func(after string, limit int) (next string, got []string) {
			t.Helper()
			for {
				page := must.Get(c.Lineage.Page(t.Context(), "", after, limit))(t)
				for i := range page.Records {
					got = append(got, place(&page.Records[i].Record))
				}
				if after = page.Next; !page.More || limit > 0 {
					return after, got
				}
			}
		}
		middle, first := read("", 60)
		all, before := read("", 0)
		end, none := read(client.TailEnd, 0)
		if len(none) > 0 {
			t.Errorf("at the end there are the records %v", none)
		}
		n.forgetLineage(t, 40, 30)
		must.Get(c.Lineage.Repair(t.Context()))(t)
		n.submitted(t, nc, 20, 22)
		ended(t, nc, 20, 22)
		time.Sleep(2 * time.Second)
		_, want := n.records(t)
		later := slices.DeleteFunc(slices.Clone(want), func(r string) bool { return slices.Contains(before, r) })
		for name, r := range map[string]struct {
			after     string
			had, want []string
		}{"the middle": {middle, first, want}, "all": {all, before, want}, "the end": {end, nil, later}} {
			_, rest := read(r.after, 0)
			got := slices.Concat(r.had, rest)
			slices.Sort(got)
			if diff := gocmp.Diff(slices.Sorted(slices.Values(r.want)), got); diff != "" {
				t.Errorf("from %s (-logs +read):\n%s", name, diff)
			}
		}
		n.stop()
	})
}

// purge removes a log as an operator does.
func purge(t *testing.T, n *node, stream string, partition uint32, id string) {
	t.Helper()
	s, err := n.operator().Stream(t.Context(), stream)
	if err == nil {
		err = s.Purge(t.Context(), jetstream.WithPurgeSubject(fmt.Sprintf("rath.ev.%d.%d.default.%s", n.conn.Streams.Generation(), partition, id)))
	}
	must.Do(t, err)
}

// placesOf returns which records of a session LINEAGE holds, in its order.
func placesOf(n *node, t *testing.T, id string) (all []string) {
	t.Helper()
	for _, m := range n.told(t) {
		for i := range m.records {
			if string(m.records[i].Session) == id {
				all = append(all, place(&m.records[i]))
			}
		}
	}
	return all
}
