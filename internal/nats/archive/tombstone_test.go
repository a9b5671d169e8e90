package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/session"
)

// buried makes a session of five commits, of which the last one archives it,
// and purges it. It returns the commits and the tombstone's position.
func buried(t *testing.T, c, op *Archive) (k session.Key, raws []string, at commitlog.Position) {
	t.Helper()
	ctx := t.Context()
	k = session.Key{Tenant: "acme", ID: c.logs.Minter().ID("old")}
	raws, at = sessiontest.Archive(t, c.logs.Log(), k)
	if err := c.Purge(ctx, k, at); !errors.Is(err, conn.ErrDenied) {
		t.Fatalf("the node purged: %v", err)
	}
	must.Do(t, op.Purge(ctx, k, at))
	if err := op.Purge(ctx, k, at); err != nil {
		t.Fatalf("again: %v", err)
	}
	return k, raws, at
}

// readable returns how many commits a log has, and the error that it ends with.
func readable(ctx context.Context, c *Archive, k session.Key, after commitlog.Position) (n int, err error) {
	for _, err := range c.logs.Log().Read(ctx, k, after) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// TestTombstone: of a purged log one message is left, which every reader and
// every writer understands.
func TestTombstone(t *testing.T) {
	layer.BesideOperator(t, func(t *testing.T, c, op *Archive) {
		ctx := t.Context()
		k, raws, at := buried(t, c, op)
		if n, err := readable(ctx, c, k, commitlog.Position{}); n != 0 || !errors.Is(err, session.ErrArchived) {
			t.Errorf("Read: %d commits, %v", n, err)
		}
		_, err := c.logs.Log().Last(ctx, k)
		if a, ok := errors.AsType[*session.ArchivedError](err); !ok || a.File != "old.json" || a.Partial {
			t.Errorf("Last: %v", err)
		}
		// A writer with the log's end, or an earlier position, or none.
		events := []session.Event{session.ChunkEvent(session.UserText("late"))}
		for seq := range uint64(5) {
			var from commitlog.Position
			if seq > 0 {
				from = commitlog.Position{Seq: seq, Token: seq, Hash: commitlog.HashOf([]byte(raws[seq-1]))}
			}
			_, err := c.logs.Log().Append(ctx, from, commitlog.Commit{Key: k, Root: k.ID, Seq: seq + 1, Epoch: 1, Prev: from.Hash, Events: events})
			if !errors.Is(err, session.ErrConflict) {
				t.Errorf("Append after commit %d: %v", seq, err)
			}
		}
		if err := op.Purge(ctx, k, commitlog.Position{Seq: 4, Token: at.Token, Hash: at.Hash}); !errors.Is(err, session.ErrForeign) {
			t.Errorf("Purge of another commit: %v", err)
		}
		// Foreign bytes behind it have no effect.
		_, subject, err := eventlog.EventSubject(k)
		must.Do(t, err)
		must.Get(op.messages.Publish(ctx, &nats.Msg{Subject: subject, Data: []byte("noise")}))(t)
		if n, err := readable(ctx, c, k, commitlog.Position{}); n != 0 || !errors.Is(err, session.ErrArchived) {
			t.Errorf("with noise: %d commits, %v", n, err)
		}
		first := commitlog.Commit{Key: k, Root: k.ID, Seq: 1, Epoch: 1, Events: []session.Event{session.OpenedEvent(session.Opening{Kind: session.OpenLeaf})}}
		if _, err := c.logs.Log().Append(ctx, commitlog.Position{}, first); !errors.Is(err, session.ErrConflict) {
			t.Errorf("begun again: %v", err)
		}
		if back, fresh, err := c.Restore(ctx, k, raws); err != nil || !back || fresh {
			t.Fatalf("Restore: %v, %v, %v", back, fresh, err)
		}
		if n, err := readable(ctx, c, k, commitlog.Position{}); n != 5 || err != nil {
			t.Errorf("brought back: %d commits, %v", n, err)
		}
	})
}

// TestPurgedWhileItIsRead purges a log between two pages of a read: no reader takes the
// first page for the whole log, nor its earlier state of the log.
func TestPurgedWhileItIsRead(t *testing.T) {
	layer.BesideOperator(t, func(t *testing.T, c, op *Archive) {
		ctx := t.Context()
		const commits = conn.PageMessages + 10
		k := session.Key{Tenant: "acme", ID: c.logs.Minter().ID("old")}
		l := c.logs.Log()
		early, late := journal.NewValues(l), journal.NewValues(l)
		var at, known commitlog.Position
		for seq := uint64(1); seq <= commits; seq++ {
			e := session.ChunkEvent(session.UserText(fmt.Sprint("words ", seq)))
			switch seq {
			case 1:
				e = session.OpenedEvent(session.Opening{Kind: session.OpenLeaf})
			case commits:
				e = commitlog.ArchivedEvent(commitlog.Archival{File: "old.json"})
			}
			var err error
			if at, err = l.Append(ctx, at, commitlog.Commit{Key: k, Root: k.ID, Seq: seq, Epoch: 1, Prev: at.Hash, Events: []session.Event{e}}); err != nil {
				t.Fatal(err)
			}
			if seq == 3 {
				known = at
				must.Get(early.At(ctx, session.Ref{Key: k}))(t)
			}
			if seq == commits-1 { // the tombstone looks like the next commit
				must.Get(late.At(ctx, session.Ref{Key: k}))(t)
			}
		}
		n, failed := 0, error(nil)
		for _, err := range l.Read(ctx, k, commitlog.Position{}) {
			if failed = err; err != nil {
				break
			}
			if n++; n == 1 {
				must.Do(t, op.Purge(ctx, k, at))
			}
		}
		if n >= commits || !errors.Is(failed, session.ErrArchived) {
			t.Errorf("Read of %d commits: %d and %v, want to hear that it is archived", commits, n, failed)
		}
		if n, err := readable(ctx, c, k, known); n != 0 || !errors.Is(err, session.ErrArchived) {
			t.Errorf("Read after commit %d: %d commits, %v", known.Seq, n, err)
		}
		for name, values := range map[string]*journal.Values{"early": early, "just before the fence": late} {
			if s, err := values.At(ctx, session.Ref{Key: k}); !errors.Is(err, session.ErrArchived) {
				t.Errorf("the newest version, read %s: %s, %v", name, s.Ref(), err)
			}
		}
	})
}

// TestAppendedBehindATombstone resumes a session that is purged at the same time: the
// writer finds that it was too late, as every reader does.
func TestAppendedBehindATombstone(t *testing.T) {
	layer.BesideOperator(t, func(t *testing.T, c, op *Archive) {
		ctx := t.Context()
		k, raws, at := buried(t, c, op)
		late := commitlog.Commit{
			Key: k, Root: k.ID, Seq: at.Seq + 1, Epoch: 1, Prev: at.Hash, Events: []session.Event{commitlog.RestoredEvent(commitlog.Restoration{})},
		}
		must.Get(c.logs.Log().Append(ctx, at, late))(t)
		if n, err := readable(ctx, c, k, commitlog.Position{}); n != 0 || !errors.Is(err, session.ErrArchived) {
			t.Errorf("Read: %d commits, %v", n, err)
		}
		if e, err := c.logs.Log().Last(ctx, k); !errors.Is(err, session.ErrArchived) {
			t.Errorf("Last: commit %d, %v", e.At.Seq, err)
		}
		if a, ok := errors.AsType[*session.ArchivedError](c.logs.Archived(ctx, k)); !ok || a.Fenced {
			t.Errorf("Archived: %+v", a)
		}
		if back, fresh, err := c.Restore(ctx, k, raws); err != nil || !back || fresh {
			t.Fatalf("Restore: %v, %v, %v", back, fresh, err)
		}
		last, err := c.logs.Log().Last(ctx, k)
		if err != nil || last.At.Seq != at.Seq {
			t.Fatalf("brought back: commit %d, %v", last.At.Seq, err)
		}
		must.Get(c.logs.Log().Append(ctx, last.At, late))(t)
		if last, err = c.logs.Log().Last(ctx, k); err != nil || last.At.Seq != at.Seq+1 {
			t.Errorf("let go on: commit %d, %v", last.At.Seq, err)
		}
	})
}

// TestForeignTombstone: bytes that look like a tombstone do not bury a log before them.
func TestForeignTombstone(t *testing.T) {
	layer.BesideOperator(t, func(t *testing.T, c, op *Archive) {
		ctx := t.Context()
		k := session.Key{Tenant: "acme", ID: c.logs.Minter().ID("live")}
		open := commitlog.Commit{Key: k, Root: k.ID, Seq: 1, Epoch: 1, Events: []session.Event{session.OpenedEvent(session.Opening{Kind: session.OpenLeaf})}}
		at := must.Get(c.logs.Log().Append(ctx, commitlog.Position{}, open))(t)
		raw := must.Get(commitlog.Encode(commitlog.Commit{
			Key: k, Root: k.ID, Seq: 9, Epoch: 1, Events: []session.Event{commitlog.ArchivedEvent(commitlog.Archival{File: "old.json"})},
		}))(t)
		_, subject := must.Pair(eventlog.EventSubject(k))(t)
		must.Get(op.messages.Publish(ctx, &nats.Msg{Subject: subject, Data: raw}))(t)
		for after, want := range map[commitlog.Position]int{{}: 1, at: 0} {
			if n, err := readable(ctx, c, k, after); n != want || err != nil {
				t.Errorf("Read after commit %d: %d commits, %v", after.Seq, n, err)
			}
		}
	})
}

// TestPurgeOfWhatGoesOn: after a fence was lifted, a purge removes nothing.
func TestPurgeOfWhatGoesOn(t *testing.T) {
	layer.BesideOperator(t, func(t *testing.T, c, op *Archive) {
		ctx := t.Context()
		k := session.Key{Tenant: "acme", ID: c.logs.Minter().ID("old")}
		var at, fence commitlog.Position
		for i, e := range []session.Event{
			session.OpenedEvent(session.Opening{Kind: session.OpenLeaf}),
			commitlog.ArchivedEvent(commitlog.Archival{File: "old.json"}),
			commitlog.RestoredEvent(commitlog.Restoration{By: "ana"}),
		} {
			var err error
			at, err = c.logs.Log().Append(ctx, at, commitlog.Commit{Key: k, Root: k.ID, Seq: uint64(i) + 1, Epoch: 1, Prev: at.Hash, Events: []session.Event{e}})
			must.Do(t, err)
			if i == 1 {
				fence = at
			}
		}
		if err := op.Purge(ctx, k, fence); !errors.Is(err, session.ErrForeign) || !strings.Contains(err.Error(), "goes on") {
			t.Errorf("Purge: %v", err)
		}
		if n, err := readable(ctx, c, k, commitlog.Position{}); n != 3 || err != nil {
			t.Errorf("%d commits are left: %v", n, err)
		}
	})
}

// TestRestoreIsCutOff brings a log back in part. No reader takes the part for the
// whole, and a further Restore does the rest.
func TestRestoreIsCutOff(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		for n := range 6 {
			t.Run(fmt.Sprintf("%d-%v", n, fresh), func(t *testing.T) {
				layer.BesideOperator(t, func(t *testing.T, c, op *Archive) {
					ctx := t.Context()
					k, raws, at := buried(t, c, op)
					if fresh { // as in a store that never had it
						stream, subject := must.Pair(eventlog.EventSubject(k))(t)
						must.Do(t, op.purge(ctx, stream, purgeRequest{Filter: subject}))
					}
					r := &restoring{c: c, key: k, raws: raws, end: commitlog.Position{Seq: at.Seq, Hash: at.Hash}}
					var err error
					if r.stream, r.subject, err = eventlog.EventSubject(k); err != nil {
						t.Fatal(err)
					}
					must.Do(t, r.look(ctx))
					for range n {
						must.Do(t, r.put(ctx))
					}
					whole := !fresh && n == 5
					empty := fresh && n == 0
					got, err := readable(ctx, c, k, commitlog.Position{})
					switch {
					case whole && (got != 5 || err != nil), empty && (got != 0 || err != nil),
						!whole && !empty && !errors.Is(err, session.ErrArchived):
						t.Errorf("Read: %d commits, %v", got, err)
					}
					_, err = c.logs.Log().Last(ctx, k)
					switch {
					case whole && err != nil, empty && !errors.Is(err, session.ErrNotFound), !whole && !empty && !errors.Is(err, session.ErrArchived):
						t.Errorf("Last: %v", err)
					}
					// Nor does a reader with a position in the middle, from a snapshot.
					if n >= 3 && !fresh && !whole {
						var mid commitlog.Position
						for e, err := range c.logs.Log().Read(ctx, k, commitlog.Position{}) {
							if err == nil && e.At.Seq == 2 {
								mid = e.At
							}
						}
						if _, err := readable(ctx, c, k, mid); !errors.Is(err, session.ErrArchived) {
							t.Errorf("Read after commit 2: %v", err)
						}
					}
					if back, _, err := c.Restore(ctx, k, raws); err != nil || back == whole {
						t.Errorf("Restore: %v, %v", back, err)
					}
					if got, err := readable(ctx, c, k, commitlog.Position{}); got != 5 || err != nil {
						t.Errorf("brought back: %d commits, %v", got, err)
					}
				})
			})
		}
	}
}

// TestRestoreRefuses restores commits that do not belong to the existing log.
func TestRestoreRefuses(t *testing.T) {
	layer.BesideOperator(t, func(t *testing.T, c, op *Archive) {
		ctx := t.Context()
		k, raws, _ := buried(t, c, op)
		for name, bad := range map[string][]string{
			"cut":    raws[:4],
			"a gap":  append(raws[:1:1], raws[2:]...),
			"forged": append(raws[:4:4], strings.Replace(raws[4], "old.json", "new.json", 1)),
		} {
			if back, _, err := c.Restore(ctx, k, bad); !errors.Is(err, session.ErrForeign) || back {
				t.Errorf("%s: %v, %v", name, back, err)
			}
		}
		if n, err := readable(ctx, c, k, commitlog.Position{}); n != 0 || !errors.Is(err, session.ErrArchived) {
			t.Errorf("after that: %d commits, %v", n, err)
		}
		// Another session that lives under the id.
		live := session.Key{Tenant: "acme", ID: c.logs.Minter().ID("live")}
		e := session.OpenedEvent(session.Opening{Kind: session.OpenLeaf})
		must.Get(c.logs.Log().Append(ctx, commitlog.Position{}, commitlog.Commit{Key: live, Root: live.ID, Seq: 1, Epoch: 1, Events: []session.Event{e}}))(t)
		var theirs []string
		for e, err := range c.logs.Log().Read(ctx, live, commitlog.Position{}) {
			must.Do(t, err)
			theirs = append(theirs, e.Raw)
		}
		mark := must.Get(commitlog.Encode(commitlog.Commit{
			Key: live, Root: live.ID, Seq: 2, Epoch: 1, Prev: commitlog.HashOf([]byte(theirs[0])),
			Events: []session.Event{commitlog.ArchivedEvent(commitlog.Archival{File: "live.json"})},
		}))(t)
		if back, _, err := c.Restore(ctx, live, append(theirs, string(mark))); !errors.Is(err, session.ErrForeign) || back {
			t.Errorf("over a session that goes on: %v, %v", back, err)
		}
	})
}

// TestChainOverTombstones reads a stream as a relay does that begins at each of
// its messages.
func TestChainOverTombstones(t *testing.T) {
	layer.BesideOperator(t, func(t *testing.T, c, op *Archive) {
		ctx := t.Context()
		k, raws, _ := buried(t, c, op)
		must.Pair(c.Restore(ctx, k, raws))(t)
		last := must.Get(c.logs.Log().Last(ctx, k))(t)
		e := commitlog.RestoredEvent(commitlog.Restoration{Reason: "needed"})
		must.Get(c.logs.Log().Append(ctx, last.At, commitlog.Commit{Key: k, Root: k.ID, Seq: 6, Epoch: 1, Prev: last.At.Hash, Events: []session.Event{e}}))(t)
		g, p, _ := k.ID.Locate()
		var all []conn.Message
		must.Do(t, op.logs.DumpStream(ctx, streams.EventStream(g, p), false, func(m eventlog.Stored) error {
			if m.Subject != "" {
				all = append(all, conn.Message{Subject: m.Subject, Seq: m.Seq, Header: m.Header, Data: m.Data})
			}
			return nil
		}))
		if len(all) != 7 {
			t.Fatalf("%d messages, want a tombstone, five copies and one", len(all))
		}
		for from := range all {
			for mode, want := range map[eventlog.Copies]string{
				eventlog.NoCopies:    map[bool]string{true: "5 6", false: "6"}[from == 0],
				eventlog.FreshCopies: map[bool]string{true: "5 6", false: "6"}[from == 0],
				eventlog.AllCopies:   strings.TrimSpace("5 1 2 3 4 5 6"[2*from:]),
			} {
				h := eventlog.NewChain(c.logs, g, p)
				h.Copies = mode
				var got []string
				for _, m := range all[from:] {
					e, ok, err := h.Next(ctx, m)
					if err != nil {
						t.Fatalf("from %d: %v", from, err)
					}
					if ok {
						got = append(got, fmt.Sprint(e.At.Seq))
					}
				}
				if strings.Join(got, " ") != want {
					t.Errorf("mode %d from message %d: commits %q, want %q", mode, from, got, want)
				}
			}
		}
	})
}
