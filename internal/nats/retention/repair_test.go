package retention

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// lineageMessage is a message of LINEAGE.
type lineageMessage struct {
	seq     uint64
	records []messages.Record
}

// lineage returns the messages of LINEAGE, and demands that the records of each partition
// are in the order of its commits, each once.
func (w *world) lineage() (all []lineageMessage, records []string) {
	w.t.Helper()
	type place struct {
		seq uint64
		k   int
	}
	last := map[uint32]place{}
	must.Do(w.t, w.op.Logs.DumpStream(w.t.Context(), streams.StreamLineage, false, func(m eventlog.Stored) error {
		if m.Subject == "" {
			return nil
		}
		rs, err := lineage.DecodeStored(m.Data)
		if err != nil {
			return err
		}
		all = append(all, lineageMessage{m.Seq, rs})
		for _, r := range rs {
			if at := last[r.Partition]; r.Seq < at.seq || r.Seq == at.seq && r.K <= at.k {
				w.t.Errorf("record %d of commit %d of partition %d follows record %d of commit %d", r.K, r.Seq, r.Partition, at.k, at.seq)
			}
			last[r.Partition] = place{r.Seq, r.K}
			records = append(records, fmt.Sprint(r.Session, " ", r.Commit, " ", r.K, " ", r.Kind))
		}
		return nil
	}))
	slices.Sort(records)
	return all, records
}

// forget removes the lineage of a session's commits, each second one, as a server that loses
// it does.
func (w *world) forget(id session.ID) {
	w.t.Helper()
	all, _ := w.lineage()
	n := 0
	for _, m := range all {
		if m.records[0].Session != id {
			continue
		}
		if n++; n%2 == 0 {
			must.Get(w.op.Messages.RemoveMessage(w.t.Context(), streams.StreamLineage, m.seq))(w.t)
		}
	}
	if n < 2 {
		w.t.Fatalf("LINEAGE has %d messages of session %s", n, id)
	}
}

// TestRepairBesidePrunedTrees loses lineage of a session before and after the lineage of
// trees that are pruned, restored and pruned again. A repair derives it, and does not
// change theirs.
func TestRepairBesidePrunedTrees(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		live := w.done("agent", messages.Task{ID: "r1", Session: "talk"})
		w.done("tree", messages.Task{ID: "old"})
		w.done("fan", messages.Task{ID: "wide"})
		repaired := func(when string) {
			t.Helper()
			must.Do(t, w.conn.Projections.WaitCaughtUp(t.Context()))
			_, before := w.lineage()
			listed := fmt.Sprint(w.listed(100))
			w.forget(live)
			did := must.Get(w.client.Lineage.Repair(t.Context()))(t)
			must.Do(t, w.conn.Projections.WaitCaughtUp(t.Context()))
			if _, now := w.lineage(); !slices.Equal(now, before) {
				t.Errorf("%s: a repair does %+v, and leaves %d records of %d", when, did, len(now), len(before))
			}
			if now := fmt.Sprint(w.listed(100)); now != listed {
				t.Errorf("%s: the list is %s, and was %s", when, now, listed)
			}
			w.audited()
		}
		repaired("before a prune")
		time.Sleep(keep)
		w.done("agent", messages.Task{ID: "r2", Session: "talk"})
		if got := states(w.prune(w.options())); len(got) != 3 {
			t.Fatalf("%q", got)
		}
		repaired("with purged trees")
		for _, doc := range w.archives() {
			must.Get(bring(t.Context(), w.conn, doc, "ana"))(t)
		}
		w.done("agent", messages.Task{ID: "r3", Session: "talk"})
		repaired("with trees that were brought back")
		time.Sleep(keep)
		w.done("agent", messages.Task{ID: "r4", Session: "talk"})
		w.prune(w.options())
		repaired("with trees that were purged again")
	})
}
