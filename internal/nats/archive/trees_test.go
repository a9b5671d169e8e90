package archive

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// TestTreesKeepNoCommits folds logs of long texts. The resulting state of a session does
// not keep the texts of its commits in memory: a prune holds the state of all sessions of a
// store at once.
func TestTreesKeepNoCommits(t *testing.T) {
	const sessions, text = 500, 16 << 10
	f := forest{sessions: map[session.Key]*wood{}, up: map[session.Key]session.Key{}}
	words := strings.Repeat("words ", text/len("words "))
	grow := func(k session.Key, root session.ID) {
		at := commitlog.Position{}
		for seq, e := range []session.Event{
			session.OpenedEvent(session.Opening{Kind: session.OpenLeaf}),
			session.ChunkEvent(session.UserText(words)),
			commitlog.ArchivedEvent(commitlog.Archival{File: string(root) + ".json"}),
		} {
			c := commitlog.Commit{
				Key: k, Root: root, Seq: uint64(seq) + 1, Epoch: 1, Prev: at.Hash, //nolint:gosec // below 3
				Events: []session.Event{session.ChunkEvent(session.UserText(words)), e},
			}
			raw := must.Get(commitlog.Encode(c))(t)
			c = must.Get(commitlog.Decode(raw))(t)
			at = commitlog.Position{Token: at.Token + 1, Seq: c.Seq, Hash: commitlog.HashOf(raw)}
			f.fold(commitlog.Entry{Commit: c, At: at}, len(raw), false)
		}
	}
	before := heap()
	for i := range sessions {
		grow(session.Key{Tenant: "acme", ID: session.ID(fmt.Sprintf("s%d-1-0", i))}, session.ID(fmt.Sprintf("s%d-1-0", i/2*2)))
	}
	trees := f.trees()
	if grown := int64(heap()) - int64(before); grown > sessions*text/4 { //nolint:gosec // far below 2^63
		t.Errorf("%d bytes for %d sessions", grown, sessions)
	}
	if len(trees) != sessions/2 || trees[0].Sessions[1].Archived == nil {
		t.Errorf("%d trees, want %d of two archived sessions", len(trees), sessions/2)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
