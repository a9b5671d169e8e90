package eventlog

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// TestAppendedReadsAsStored: a writer's commits are not decoded again, and readers get the
// same commits as if they were.
func TestAppendedReadsAsStored(t *testing.T) {
	said := session.ChunkEvent(session.UserText("hello"))
	said.Batch, said.Time = "r1/0", time.Date(2026, 11, 27, 1, 2, 3, 4567890, time.FixedZone("there", 3600))
	spilled := said
	spilled.Data, spilled.Blob = "", blob.Ref{Digest: blob.Digest{1}, Size: 9}
	for name, events := range map[string][]session.Event{"whole": {said, said}, "spilled": {said, spilled}} {
		t.Run(name, func(t *testing.T) {
			c := commitlog.Commit{Key: session.Key{Tenant: "acme", ID: "s1"}, Root: "s1", Seq: 1, Epoch: 1, Events: events}
			raw := must.Get(Successor(commitlog.Position{}, c))(t)
			want, hash := must.Pair(commitlog.Successor(c.Key, commitlog.Position{}, raw))(t)
			r := newRecent()
			r.appended(hash, c, len(raw))
			c.Events[0].Kind = "used.again"
			defer func() { c.Events[0].Kind = said.Kind }()
			for range 2 { // a reader that loads data leaves the stored form to the next one
				got, same, err := r.successor(c.Key, commitlog.Position{}, raw)
				if err != nil || same != hash {
					t.Fatalf("hash %s, %v; want %s", same.Short(), err, hash.Short())
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("it reads differently (-stored +read):\n%s", diff)
				}
				e := commitlog.Entry{Commit: got, At: commitlog.Position{Seq: 1, Hash: hash}}
				if name == "spilled" {
					e.Commit.Events[1].Data = said.Data
				}
				for i, f := range r.facts(e) {
					if f.Err != nil || f.Data != said.Data {
						t.Errorf("fact %d: %q, %v", i, f.Data, f.Err)
					}
				}
			}
			if one, other := r.facts(commitlog.Entry{Commit: want, At: commitlog.Position{Hash: hash}}), r.facts(commitlog.Entry{Commit: want, At: commitlog.Position{Hash: hash}}); name == "whole" && &one[0] != &other[0] {
				t.Error("the facts of one commit were decoded twice")
			}
		})
	}
}

// TestRecentIsBounded: many small commits are kept, and of large ones few.
func TestRecentIsBounded(t *testing.T) {
	r := newRecent()
	keep := func(kind byte, n, bytes, want int) {
		t.Helper()
		for i := range n {
			r.appended(session.Hash{kind, byte(i), byte(i >> 8)}, commitlog.Commit{}, bytes)
		}
		if last := n - 1; len(r.of) != want || r.bytes > max(recentBytes, bytes) || r.get(session.Hash{kind, byte(last), byte(last >> 8)}) == nil {
			t.Errorf("%d commits with %d bytes are kept of %d with %d each, want the last %d", len(r.of), r.bytes, n, bytes, want)
		}
	}
	keep(1, 3*recentSize, 100, recentSize)
	keep(2, 9, recentBytes/4, 4)
	keep(3, 1, 2*recentBytes, 1)
	keep(4, 3*recentSize, 100, recentSize)
	r.forget()
	keep(5, recentSize-1, recentBytes/recentSize, recentSize-1)
}
