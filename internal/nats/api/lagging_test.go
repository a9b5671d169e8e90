package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestLineageFromReplicaBehind reads lineage page by page while the answering replica lacks
// records of the leader. It omits no record, and repeats none.
func TestLineageFromReplicaBehind(t *testing.T) {
	const all, held, others = 12, 5, 3
	for _, tree := range []bool{false, true} {
		for _, limit := range []int{0, 2} {
			t.Run(fmt.Sprintf("of one tree=%v limit=%d", tree, limit), func(t *testing.T) {
				layer.InBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
					mine, other := c.Logs.HomeOf("default", "r1"), c.Logs.HomeOf("default", "r2")
					sessiontest.Grow(t, c.Logs.Log(), session.Key{Tenant: session.DefaultTenant, ID: mine}, commitlog.Position{}, 1)
					s := must.Get(c.ServeQueries(t.Context(), &Queries{Values: journal.NewValues(c.Logs.Log())}))(t)
					streamstest.PutLineage(t, c.Conn.JS, mine, 1, all)
					streamstest.PutLineage(t, c.Conn.JS, other, all+1, all+others) // behind the tree's last record
					w.Set(nil, streamstest.Behind(streams.StreamLineage, held))
					want, q := all+others, wire.Query{Limit: limit}
					if tree {
						want, q.Session = all, string(mine)
					}
					var got []uint64
					for {
						data, err := c.Requests.Query(t.Context(), session.DefaultTenant, messages.QueryLineage, q)
						var page messages.LineagePage
						if err == nil {
							err = json.Unmarshal(data, &page)
						}
						must.Do(t, err)
						for _, r := range page.Records {
							got = append(got, r.Record.Seq)
						}
						if q.Cursor = page.Next; !page.More {
							break
						}
						if len(page.Records) == 0 {
							t.Fatalf("an empty page after the records %v", got)
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
					must.Report(t, s.Stop())
				})
			})
		}
	}
}

// TestLettersFromReplicaBehind lists dead letters, one of which was handled, while the
// answering replica does not have that yet.
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
		must.Get(c.controls.controlDead(t.Context(), ofLetter(at, messages.VerbLetterDrop), messages.Control{By: "ana"}))(t)
		list("after it was dropped", 0)
	})
}

// TestNamedFromReplicaBehind has a bound node look for a tool and a workflow by their names
// while the replica that answers has neither.
func TestNamedFromReplicaBehind(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
		store, err := c.ServeStore(t.Context(), nil)
		must.Do(t, err)
		queries, err := c.ServeQueries(t.Context(), &Queries{Values: journal.NewValues(c.Logs.Log())})
		must.Do(t, err)
		b, err := c.Bind(t.Context(), "acme")
		if err == nil {
			err = b.Offer(t.Context(), []messages.Workflow{{Name: "own"}})
		}
		if err == nil {
			err = c.Dispatch.Registry.Enter(t.Context(), wire.ToolKey("acme", "send"), []byte(`{"name":"send"}`))
		}
		must.Do(t, err)
		for _, behind := range []bool{false, true} {
			if behind {
				const bucket, empty = "$KV.REGISTRY.", "$KV.NOTTHERE."
				w.Set(nil, func(b []byte) bool {
					if bytes.Contains(b, []byte("DIRECT.GET.KV_REGISTRY")) {
						for bytes.Contains(b, []byte(bucket)) {
							natstest.Replace(bucket, empty)(b)
						}
					}
					return true
				})
			}
			ws, err := b.Workflows(t.Context(), "own", "none")
			if err != nil || len(ws) != 1 || ws[0].Name != "own" {
				t.Errorf("behind=%v: the workflows %+v, %v", behind, ws, err)
			}
			ts, err := b.Tools(t.Context(), "acme", "send", "none")
			if err != nil || len(ts) != 1 || ts[0].Name != "send" {
				t.Errorf("behind=%v: the tools %+v, %v", behind, ts, err)
			}
		}
		w.Set(nil, nil)
		must.Report(t, errors.Join(store.Stop(), queries.Stop()))
	})
}
