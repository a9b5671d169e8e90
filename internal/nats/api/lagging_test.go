package api

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/internal/sessiontest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestLineageFromReplicaBehind reads lineage page by page while the replica that
// answers lacks what the leader has. No record is left out, and none comes twice.
func TestLineageFromReplicaBehind(t *testing.T) {
	const all, held, others = 12, 5, 3
	for _, tree := range []bool{false, true} {
		for _, limit := range []int{0, 2} {
			t.Run(fmt.Sprintf("of one tree=%v limit=%d", tree, limit), func(t *testing.T) {
				layer.InBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
					mine, other := c.HomeOf("default", "r1"), c.HomeOf("default", "r2")
					sessiontest.Grow(t, c.Log(), session.Key{Tenant: session.DefaultTenant, ID: mine}, session.Position{}, 1)
					s, err := c.ServeQueries(t.Context(), &Queries{Values: journal.NewValues(c.Log())})
					if err != nil {
						t.Fatal(err)
					}
					streamstest.PutLineage(t, c.JS, mine, 1, all)
					streamstest.PutLineage(t, c.JS, other, all+1, all+others) // behind the tree's last record
					w.Set(nil, streamstest.Behind(streams.StreamLineage, held))
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
	layer.InBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
		at := refusedLetter(t, c)
		list := func(when string, want int) {
			w.Set(nil, streamstest.Behind(streams.StreamDLQ, 0))
			got := listedLetters(t, c)
			w.Set(nil, nil)
			if len(got) != want {
				t.Errorf("%s: %d letters are listed, want %d", when, len(got), want)
			}
		}
		list("after the refusal", 1)
		if _, err := c.controlDead(t.Context(), ofLetter(at, messages.VerbLetterDrop), messages.Control{By: "ana"}); err != nil {
			t.Fatal(err)
		}
		list("after it was dropped", 0)
	})
}
