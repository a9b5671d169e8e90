package eventlog

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/commitlog"
	"github.com/rathcluster/rath/session"
)

// TestAppendedReadsAsStored: what a writer appends is not decoded again, and its readers
// find it as if it were.
func TestAppendedReadsAsStored(t *testing.T) {
	said := session.ChunkEvent(session.UserText("hello"))
	said.Batch, said.Time = "r1/0", time.Date(2026, 11, 27, 1, 2, 3, 4567890, time.FixedZone("there", 3600))
	spilled := said
	spilled.Data, spilled.Blob = "", blob.Ref{Digest: blob.Digest{1}, Size: 9}
	for name, events := range map[string][]session.Event{"whole": {said, said}, "spilled": {said, spilled}} {
		t.Run(name, func(t *testing.T) {
			c := commitlog.Commit{Key: session.Key{Tenant: "acme", ID: "s1"}, Root: "s1", Seq: 1, Epoch: 1, Events: events}
			raw, err := Successor(session.Position{}, c)
			if err != nil {
				t.Fatal(err)
			}
			want, hash, err := commitlog.Successor(c.Key, session.Position{}, raw)
			if err != nil {
				t.Fatal(err)
			}
			r := newRecent()
			r.appended(hash, c)
			c.Events[0].Kind = "used.again"
			defer func() { c.Events[0].Kind = said.Kind }()
			for range 2 { // a reader that loads data leaves the next one what is stored
				got, same, err := r.successor(c.Key, session.Position{}, raw)
				if err != nil || same != hash {
					t.Fatalf("hash %s, %v; want %s", same.Short(), err, hash.Short())
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("it reads differently (-stored +read):\n%s", diff)
				}
				e := commitlog.Entry{Commit: got, At: session.Position{Seq: 1, Hash: hash}}
				if name == "spilled" {
					e.Commit.Events[1].Data = said.Data
				}
				for i, f := range r.facts(e) {
					if f.Err != nil || f.Data != said.Data {
						t.Errorf("fact %d: %q, %v", i, f.Data, f.Err)
					}
				}
			}
			if one, other := r.facts(commitlog.Entry{Commit: want, At: session.Position{Hash: hash}}), r.facts(commitlog.Entry{Commit: want, At: session.Position{Hash: hash}}); name == "whole" && &one[0] != &other[0] {
				t.Error("the facts of one commit were decoded twice")
			}
		})
	}
}
