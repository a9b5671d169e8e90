package sessiontest

import (
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

var ids = commitlog.IDGenerator{Generation: 1, Partitions: 2}

// Key is of the session of a body in two partitions of generation 1.
func Key(body string) session.Key {
	return session.Key{Tenant: session.DefaultTenant, ID: ids.ID(body)}
}

// Commit returns the commit after a position, with a chunk of the given text.
func Commit(k session.Key, at commitlog.Position, what string) commitlog.Commit {
	e := session.ChunkEvent(session.UserText(what))
	e.Time = time.Unix(1, 0)
	return commitlog.Commit{Key: k, Root: k.ID, Seq: at.Seq + 1, Epoch: 1, Prev: at.Hash, Events: []session.Event{e}}
}

// Append appends c after a position, or ends the test.
func Append(tb testing.TB, l commitlog.Log, at commitlog.Position, c commitlog.Commit) commitlog.Position {
	tb.Helper()
	pos := must.Get(l.Append(tb.Context(), at, c))(tb)
	return pos
}

// Grow appends n commits after a position.
func Grow(tb testing.TB, l commitlog.Log, k session.Key, at commitlog.Position, n int) commitlog.Position {
	tb.Helper()
	for range n {
		at = Append(tb, l, at, Commit(k, at, fmt.Sprintf("text %d", at.Seq+1)))
	}
	return at
}

// ReadAll returns the entries after a position.
func ReadAll(tb testing.TB, l commitlog.Log, k session.Key, after commitlog.Position) []commitlog.Entry {
	tb.Helper()
	var out []commitlog.Entry
	for e, err := range l.Read(tb.Context(), k, after) {
		must.Do(tb, err)
		out = append(out, e)
	}
	return out
}

// Archive appends a log of five commits, of which the last one archives the session, and
// returns them with the end of the log.
func Archive(tb testing.TB, l commitlog.Log, k session.Key) (raws []string, at commitlog.Position) {
	tb.Helper()
	ctx := tb.Context()
	for seq := uint64(1); seq <= 5; seq++ {
		e := session.ChunkEvent(session.UserText(fmt.Sprint("words ", seq)))
		switch seq {
		case 1:
			e = session.OpenedEvent(session.Opening{Kind: session.OpenLeaf})
		case 5:
			e = commitlog.ArchivedEvent(commitlog.Archival{File: "old.json"})
		}
		var err error
		if at, err = l.Append(ctx, at, commitlog.Commit{Key: k, Root: k.ID, Seq: seq, Epoch: 1, Prev: at.Hash, Events: []session.Event{e}}); err != nil {
			tb.Fatal(err)
		}
	}
	for e, err := range l.Read(ctx, k, commitlog.Position{}) {
		must.Do(tb, err)
		raws = append(raws, e.Raw)
	}
	return raws, at
}
