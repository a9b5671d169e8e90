package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/internal/sessiontest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// behind makes all direct reads of a stream reach a replica that holds its first n
// messages only.
func behind(stream string, n int) func(b []byte) bool {
	return func(b []byte) bool {
		const mark, batch = `"next_by_subj":"rath.`, `"batch":512`
		if !bytes.Contains(b, []byte("DIRECT.GET."+stream)) || !bytes.Contains(b, []byte(mark)) {
			return true
		}
		var from uint64
		_, _ = fmt.Sscanf(string(b[bytes.Index(b, []byte(`{"seq":`)):]), `{"seq":%d`, &from)
		if from > uint64(n) {
			return natstest.Replace(mark, `"next_by_subj":"none.`)(b)
		}
		return natstest.Replace(batch, fmt.Sprintf(`"batch":%d`, uint64(n)+1-from))(b)
	}
}

// putLineage stores one record of a session for each commit from one to another.
func putLineage(t *testing.T, c *Conn, id session.ID, first, last uint64) {
	t.Helper()
	_, partition, _ := id.Locate()
	for n := first; n <= last; n++ {
		r := lineage.Record{
			Schema: lineage.Schema, Kind: lineage.Chunk, Tenant: session.DefaultTenant, Session: id, Root: id,
			Partition: partition, Seq: n, Commit: n,
		}
		if n == first {
			r.Kind = lineage.Opened
		}
		records := []lineage.Record{r}
		data, err := lineage.EncodeStored(records)
		if err == nil {
			_, err = c.JS.Publish(t.Context(), lineage.StoredSubject(records), data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestLineageFromReplicaBehind reads lineage page by page while the replica that
// answers lacks what the leader has. No record is left out, and none comes twice.
func TestLineageFromReplicaBehind(t *testing.T) {
	const all, held, others = 12, 5, 3
	for _, tree := range []bool{false, true} {
		for _, limit := range []int{0, 2} {
			t.Run(fmt.Sprintf("of one tree=%v limit=%d", tree, limit), func(t *testing.T) {
				inBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
					mine, other := c.HomeOf("default", "r1"), c.HomeOf("default", "r2")
					sessiontest.Grow(t, c.Log(), session.Key{Tenant: session.DefaultTenant, ID: mine}, session.Position{}, 1)
					s, err := c.ServeQueries(t.Context(), &Queries{Values: journal.NewValues(c.Log())})
					if err != nil {
						t.Fatal(err)
					}
					putLineage(t, c, mine, 1, all)
					putLineage(t, c, other, all+1, all+others) // behind the tree's last record
					w.Set(nil, behind(streams.StreamLineage, held))
					want, q := all+others, messages.Query{Limit: limit}
					if tree {
						want, q.Session = all, string(mine)
					}
					var got []uint64
					for {
						data, err := c.Query(t.Context(), session.DefaultTenant, messages.QueryLineage, q)
						var page messages.Lineage
						if err == nil {
							err = json.Unmarshal(data, &page)
						}
						if err != nil {
							t.Fatal(err)
						}
						for _, r := range page.Records {
							got = append(got, r.At)
						}
						if q.After = page.Next; q.After >= page.Last {
							break
						}
						if len(page.Records) == 0 {
							t.Fatalf("an empty page ends at %d of %d", page.Next, page.Last)
						}
					}
					w.Set(nil, nil)
					if len(got) != want {
						t.Errorf("read the records %v, want 1 to %d", got, want)
					}
					for i, at := range got {
						if at != uint64(i+1) {
							t.Fatalf("read the records %v, want 1 to %d", got, want)
						}
					}
					if err := s.Stop(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// TestLettersFromReplicaBehind lists dead letters, one of which was dealt with, while the
// replica that answers has none of that yet.
func TestLettersFromReplicaBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
		at := refusedLetter(t, c)
		list := func(when string, want int) {
			w.Set(nil, behind(streams.StreamDLQ, 0))
			got := listedLetters(t, c)
			w.Set(nil, nil)
			if len(got) != want {
				t.Errorf("%s: %d letters are listed, want %d", when, len(got), want)
			}
		}
		list("after the refusal", 1)
		if _, err := c.controlDead(t.Context(), session.DefaultTenant, at, messages.VerbLetterDrop, messages.Control{By: "ana"}); err != nil {
			t.Fatal(err)
		}
		list("after it was dropped", 0)
	})
}
