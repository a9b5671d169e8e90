package project

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// lineageWorld is LINEAGE with the records of relays, and a reader that keeps the text of
// its cursor alone.
type lineageWorld struct {
	t      *testing.T
	c      *Projections
	js     jetstream.JetStream // an operator's
	stream jetstream.Stream
	rng    *rand.Rand

	commits [][][]messages.Record // of each partition
	stored  []int                 // how many of them LINEAGE was given
	tree    session.ID            // of the reader, "" for all
	cursor  string
	got     []string
}

// commit makes one to three records of a commit of one of the partition's two trees.
func (w *lineageWorld) commit(p int) {
	n := uint64(len(w.commits[p]) + 1)
	id := session.ID(fmt.Sprintf("s%d-1-%d", w.rng.IntN(2), p))
	records := make([]messages.Record, 1+w.rng.IntN(3))
	for k := range records {
		records[k] = messages.Record{
			Schema: lineage.Schema, Kind: messages.KindChunk, Tenant: session.DefaultTenant, Session: id, Root: id,
			Partition: uint32(p), Seq: 2 * n, Commit: n, K: k,
		}
	}
	w.commits[p] = append(w.commits[p], records)
}

func (w *lineageWorld) must(err error) {
	w.t.Helper()
	must.Do(w.t, err)
}

// store stores the records of a commit, as a relay does.
func (w *lineageWorld) store(records []messages.Record) {
	w.t.Helper()
	time.Sleep(time.Millisecond)
	data, err := lineage.EncodeStored(records)
	w.must(err)
	_, err = w.js.Publish(w.t.Context(), lineage.StoredSubject(records), data)
	w.must(err)
}

// relay stores the next records of a partition.
func (w *lineageWorld) relay(p int) {
	if w.stored[p] < len(w.commits[p]) {
		w.store(w.commits[p][w.stored[p]])
		w.stored[p]++
	}
}

// held are the messages of LINEAGE.
func (w *lineageWorld) held() (all []*jetstream.RawStreamMsg) {
	w.t.Helper()
	info, err := w.stream.Info(w.t.Context())
	w.must(err)
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && seq > 0; seq++ {
		if m, err := w.stream.GetMsg(w.t.Context(), seq); err == nil {
			all = append(all, m)
		}
	}
	return all
}

// placeIn returns the partition and the index of the commit of a message.
func (w *lineageWorld) placeIn(m *jetstream.RawStreamMsg) (p, i int) {
	w.t.Helper()
	records, err := lineage.DecodeStored(m.Data)
	w.must(err)
	return int(records[0].Partition), int(records[0].Commit) - 1
}

// lose has LINEAGE lose its last messages, whose sequences it gives again. The relays store
// them again, in another order and among others.
func (w *lineageWorld) lose() {
	all := w.held()
	keep := len(all) - w.rng.IntN(min(len(all), 8)+1)
	cfg := w.stream.CachedInfo().Config
	if keep > 0 {
		cfg.FirstSeq = all[0].Sequence
	}
	w.must(w.js.DeleteStream(w.t.Context(), streams.StreamLineage))
	var err error
	w.stream, err = w.js.CreateStream(w.t.Context(), cfg)
	w.must(err)
	clear(w.stored)
	for i, m := range all[:keep] {
		for ; i > 0 && w.last() < m.Sequence-1; w.remove(w.last()) { // a hole stays one
			_, err := w.js.Publish(w.t.Context(), m.Subject, nil)
			w.must(err)
		}
		_, err := w.js.Publish(w.t.Context(), m.Subject, m.Data)
		w.must(err)
		p, i := w.placeIn(m)
		w.stored[p] = max(w.stored[p], i+1)
	}
	for range w.rng.IntN(12) {
		p := w.rng.IntN(len(w.commits))
		w.commit(p)
		w.relay(p)
	}
}

func (w *lineageWorld) last() uint64 {
	info, err := w.stream.Info(w.t.Context())
	w.must(err)
	return info.State.LastSeq
}

func (w *lineageWorld) remove(seq uint64) { w.must(w.stream.DeleteMsg(w.t.Context(), seq)) }

// repair derives a partition again from one of its commits: it publishes behind the end,
// and then removes the former messages, the last first. The reader reads meanwhile.
func (w *lineageWorld) repair(p int) {
	if w.stored[p] == 0 {
		return
	}
	from := w.rng.IntN(w.stored[p])
	var old []uint64
	for _, m := range w.held() {
		if of, i := w.placeIn(m); of == p && i >= from {
			old = append(old, m.Sequence)
		}
	}
	if w.caughtUp() && len(old) > 0 && w.rng.IntN(2) == 0 { // the reader's records are lost before
		w.remove(old[0])
		old = old[1:]
	}
	for _, records := range w.commits[p][from:w.stored[p]] {
		w.store(records)
		if w.rng.IntN(4) == 0 {
			w.read()
		}
	}
	for _, seq := range slices.Backward(old) {
		w.remove(seq)
		if w.rng.IntN(4) == 0 {
			w.read()
		}
	}
}

// caughtUp reads everything stored.
func (w *lineageWorld) caughtUp() bool {
	for w.read() {
	}
	return true
}

// read reads a page as a process that has only the cursor, and may keep a part of it.
func (w *lineageWorld) read() (more bool) {
	w.t.Helper()
	at, err := lineage.ParseCursor(w.cursor)
	w.must(err)
	page, err := w.c.LineagePage(w.t.Context(), LineageFilter(session.DefaultTenant, w.tree), at, 1+w.rng.IntN(6), 1<<(8+w.rng.IntN(10)))
	w.must(err)
	took := len(page.Records)
	if w.cursor = page.Next; took > 0 && w.rng.IntN(2) == 0 {
		took = 1 + w.rng.IntN(took)
		w.cursor = page.Records[took-1].Cursor
	}
	for _, r := range page.Records[:took] {
		w.got = append(w.got, recordText(&r.Record))
	}
	return page.More || took < len(page.Records)
}

func recordText(r *messages.Record) string {
	return fmt.Sprintf("%d %3d.%d %s", r.Partition, r.Seq, r.K, r.Session)
}

// TestCursorOverRepairs stores LINEAGE, loses it, stores it again in other orders and
// repairs it at random, and compares a reader that keeps only the text of its cursor with a
// list of all records: none is missing, none is repeated, and the records of a partition
// are in order.
func TestCursorOverRepairs(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			layer.BesideOperator(t, func(t *testing.T, c, operator *Projections) {
				rng := rand.New(rand.NewPCG(seed, 1))
				partitions := 1 + rng.IntN(4)
				stream, err := operator.conn.JS.Stream(t.Context(), streams.StreamLineage)
				w := &lineageWorld{t: t, c: c, js: operator.conn.JS, stream: stream, rng: rng, commits: make([][][]messages.Record, partitions), stored: make([]int, partitions)}
				w.must(err)
				if rng.IntN(2) == 0 {
					w.tree = session.ID(fmt.Sprintf("s0-1-%d", rng.IntN(partitions)))
				}
				for range 120 {
					p := rng.IntN(partitions)
					switch n := rng.IntN(20); {
					case n < 7:
						w.commit(p)
					case n < 12:
						w.relay(p)
					case n < 16:
						w.read()
					case n < 18:
						w.lose()
					default:
						w.repair(p)
					}
				}
				for p := range partitions {
					for w.stored[p] < len(w.commits[p]) {
						w.relay(p)
					}
				}
				w.caughtUp()
				var want []string
				for _, commits := range w.commits {
					for _, records := range commits {
						for i := range records {
							if w.tree == "" || records[i].Root == w.tree {
								want = append(want, recordText(&records[i]))
							}
						}
					}
				}
				slices.SortStableFunc(w.got, func(a, b string) int { return int(a[0]) - int(b[0]) })
				if diff := gocmp.Diff(want, w.got); diff != "" {
					t.Errorf("%d partitions, tree %q (-all +read):\n%s", partitions, w.tree, diff)
				}
				if len(w.cursor) > 100 {
					t.Errorf("the cursor %s has %d bytes", w.cursor, len(w.cursor))
				}
			})
		})
	}
}
