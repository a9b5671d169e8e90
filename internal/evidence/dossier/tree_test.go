package dossier

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/offload"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// archivedTree writes a session with files and a fork of it into a log, and
// archives both.
func archivedTree(t *testing.T) (log commitlog.Log, store blob.Store, ids []session.ID) {
	t.Helper()
	ctx := t.Context()
	blobs := blob.NewMemory()
	store = blobs
	file := must.Get(store.Put(ctx, strings.NewReader("a file's text")))(t)
	files := must.Get(manifest.NewTree([]manifest.Entry{
		{Path: "a.txt", Kind: manifest.File, Size: file.Size, Digest: file.Digest},
		{Path: "gone.txt", Kind: manifest.File, Size: 4, Digest: blob.Sum([]byte("gone"))},
	}))(t)
	head := must.Get(files.Store(ctx, store))(t)
	log = offload.New(&commitlog.Memory{}, func(session.Tenant) blob.Store { return store }, nil)
	l := putArchived(t, log, "s1", session.OpenedEvent(session.Opening{Kind: session.OpenLeaf}), session.PlacedEvent(session.Placement{Backend: "local", Head: head}),
		session.ChunkEvent(session.UserText(strings.Repeat("long ", 10<<10))))
	l.Version = 2
	putArchived(t, log, "s2", session.OpenedEvent(session.Opening{Kind: session.OpenFork, Parents: []session.Link{l}}))
	return log, store, []session.ID{"s1", "s2"}
}

// putArchived writes a log of one event to a commit and archives the session. It
// returns the last commit before the one that archives.
func putArchived(t *testing.T, log commitlog.Log, id session.ID, events ...session.Event) (last session.Link) {
	t.Helper()
	var at commitlog.Position
	for i, e := range append(events, commitlog.ArchivedEvent(commitlog.Archival{File: "tree.json"})) {
		last = session.Link{Ref: session.Ref{Key: session.Key{Tenant: "acme", ID: id}}, Seq: at.Seq, Hash: at.Hash, Token: at.Token}
		var err error
		if at, err = log.Append(t.Context(), at, commitlog.Commit{Key: last.Key, Root: "s1", Seq: uint64(i + 1), Epoch: 1, Prev: at.Hash, Events: []session.Event{e}}); err != nil {
			t.Fatal(err)
		}
	}
	return last
}

// TestTree writes an archive, reads it back, and detects changes in it.
func TestTree(t *testing.T) {
	log, store, ids := archivedTree(t)
	tree, err := CollectTree(t.Context(), log, store, session.Key{Tenant: "acme", ID: "s1"}, ids, &CollectOptions{Stated: []Fact{{FactRelease, "v1"}}})
	must.Do(t, err)
	// The offloaded text, the manifest and the stored file.
	if len(tree.Logs) != 2 || len(tree.Blobs) != 3 || len(tree.Left) != 1 {
		t.Fatalf("%d logs, %d blobs, %d left out", len(tree.Logs), len(tree.Blobs), len(tree.Left))
	}
	doc, err := tree.Encode()
	must.Do(t, err)
	if !IsTree(doc) || IsTree([]byte(`{"format":1,"layout":2,"run":"r"}`)) || IsTree(nil) {
		t.Error("what an archive is")
	}
	same := slices.Clone(doc)
	heads := map[session.ID]session.Hash{}
	for _, c := range tree.report(FormTree).Sessions {
		heads[c.Session] = c.Head
	}
	again, r, err := VerifyTree(doc, &VerifyOptions{Head: heads["s1"], Heads: heads})
	if err != nil || r.Anchored != 2 || r.Commits != 6 || r.Left != 1 || len(r.Stated) != 2 || r.Stated[0] != tree.Stated[0] || r.Stated[1].Value != "it is no longer stored" {
		t.Fatalf("%+v, %v", r, err)
	}
	if back, err := again.Encode(); err != nil || string(back) != string(same) || string(doc) != string(same) {
		t.Errorf("it changes when it is read: %v", err)
	}
	if text := r.String(); !strings.Contains(text, "archive of tree s1 of acme\n2 sessions, 6 commits, 3 blobs") {
		t.Errorf("report: %s", text)
	}
	for name, bad := range map[string]func(string) string{
		"a byte of a commit":  func(s string) string { return strings.Replace(s, `\"seq\":2`, `\"seq\":3`, 1) },
		"a byte of a blob":    func(s string) string { return strings.Replace(s, "a file's text", "a file's test", 1) },
		"cut":                 func(s string) string { return s[:len(s)/2] },
		"more":                func(s string) string { return s + "\n" },
		"another tenant":      func(s string) string { return strings.Replace(s, `"tenant":"acme"`, `"tenant":"evil"`, 1) },
		"a later format":      func(s string) string { return strings.Replace(s, `{"format":1`, `{"format":2`, 1) },
		"white space":         func(s string) string { return strings.Replace(s, `{"format":1`, `{ "format":1`, 1) },
		"a session left out":  func(s string) string { return withoutLog(s) },
		"the end of a log":    func(s string) string { return withoutLine(s, 6) },
		"a commit in between": func(s string) string { return withoutLine(s, 4) },
	} {
		doc := bad(string(same))
		_, _, err := VerifyTree([]byte(doc), nil)
		if _, ok := errors.AsType[*Failure](err); !ok || doc == string(same) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, o := range map[string]*VerifyOptions{
		"another head":    {Head: commitlog.HashOf([]byte("x"))},
		"another session": {Heads: map[session.ID]session.Hash{"s9": heads["s1"]}},
	} {
		if _, _, err := VerifyTree(same, o); err == nil {
			t.Errorf("%s: verified", name)
		}
	}
}

// TestTreeReferences checks that each reference to another log of the archive is compared
// with that log, not only the references that rows come from.
func TestTreeReferences(t *testing.T) {
	log := &commitlog.Memory{}
	leaf := session.OpenedEvent(session.Opening{Kind: session.OpenLeaf})
	good := putArchived(t, log, "s1", leaf)
	other, later := good, good
	other.Hash, later.Seq = commitlog.HashOf([]byte("x")), good.Seq+2
	for i, c := range []struct {
		link session.Link
		kind Kind
	}{{good, ""}, {other, Link}, {later, Cut}} {
		for name, fact := range map[string]any{
			journal.KindStepCompleted:  journal.StepCompleted{Run: "r", Path: "1", Kind: journal.StepReject, Attempt: 1, Links: []session.Link{c.link}},
			journal.KindEnded:          journal.Ended{Run: "r", State: run.Succeeded, Attempt: 1, Result: &c.link},
			journal.KindSignalReceived: journal.SignalReceived{Run: "r", N: 1, Kind: journal.Report, Branch: &journal.BranchEnd{Link: c.link, State: run.Succeeded}},
			journal.KindFanOut:         journal.FanOut{Run: "r", Path: "1", Base: c.link},
		} {
			e, err := journal.NewEvent(name, fact)
			must.Do(t, err)
			id := session.ID(fmt.Sprint("s2-", i, strings.ReplaceAll(name, ".", "-")))
			putArchived(t, log, id, leaf, e)
			_, err = CollectTree(t.Context(), log, nil, session.Key{Tenant: "acme", ID: "s1"}, []session.ID{"s1", id}, nil)
			if f, ok := errors.AsType[*Failure](err); ok != (c.kind != "") || ok && f.Kind != c.kind || !ok && err != nil {
				t.Errorf("%s, link %d: %v, want %q", name, i, err, c.kind)
			}
		}
	}
}

// withoutLine drops a line, counted from 0, and fixes the comma of the previous line.
func withoutLine(s string, n int) string {
	lines := strings.Split(s, "\n")
	if !strings.HasSuffix(lines[n], ",") {
		lines[n-1] = strings.TrimSuffix(lines[n-1], ",")
	}
	return strings.Join(slices.Delete(lines, n, n+1), "\n")
}

// withoutLog drops the first session.
func withoutLog(s string) string {
	before, _, _ := strings.Cut(s, `{"session":"s1"`)
	j := strings.Index(s, `{"session":"s2"`)
	return before + s[j:]
}

// TestCollectTreeRefuses checks trees that cannot be archived.
func TestCollectTreeRefuses(t *testing.T) {
	log, store, ids := archivedTree(t)
	for name, c := range map[string]struct {
		ids []session.ID
		o   *CollectOptions
		is  func(error) bool
	}{
		"without its parent":  {ids[1:], nil, func(err error) bool { f, ok := errors.AsType[*Failure](err); return ok && f.Kind == Link }},
		"no such session":     {[]session.ID{"s9"}, nil, func(err error) bool { return errors.Is(err, session.ErrNotFound) }},
		"too many commits":    {ids, &CollectOptions{Commits: 100}, func(err error) bool { return errors.Is(err, ErrTooLarge) }},
		"too much in blobs":   {ids, &CollectOptions{Blobs: 100}, func(err error) bool { return errors.Is(err, ErrTooLarge) }},
		"a blob over the top": {ids, &CollectOptions{Blobs: 55 << 10}, func(err error) bool { return err == nil }},
	} {
		_, err := CollectTree(t.Context(), log, store, session.Key{Tenant: "acme", ID: "s1"}, c.ids, c.o)
		if !c.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
