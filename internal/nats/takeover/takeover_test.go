package takeover_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/remotelog"
	"github.com/rathcluster/rath/internal/nats/retention"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/internal/nats/takeover"
	"github.com/rathcluster/rath/internal/platform/scratch"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func TestMain(m *testing.M) {
	scratch.InMemory()
	os.Exit(m.Run())
}

// site is a node over a store, with a client that has no credentials.
type site struct {
	t      *testing.T
	store  string
	port   int
	node   *node.Instance
	client *client.Client
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, store: t.TempDir(), port: natstest.FreePort(t)}
	s.start()
	var err error
	if s.client, err = client.Connect(t.Context(), fmt.Sprintf("nats://127.0.0.1:%d", s.port), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must.Report(t, errors.Join(s.client.Close(), s.node.Close())) })
	return s
}

func (s *site) start() {
	s.t.Helper()
	var err error
	if s.node, err = node.Start(s.t.Context(), &node.Options{Store: s.store, NATS: node.NATS{Port: s.port, Level: "fsync"}, Models: node.Models{Default: "echo"}}); err != nil {
		s.t.Fatal(err)
	}
}

// run runs the agent on a session.
func (s *site) run(id run.ID, name string) session.ID {
	s.t.Helper()
	r, err := s.client.Do(s.t.Context(), "agent", messages.Task{ID: id, Input: []byte(`"hello"`), Session: name}, nil)
	if err != nil || r.State != run.Succeeded {
		s.t.Fatalf("run %s: %+v, %v", id, r, err)
	}
	return r.Session
}

// connect connects with the rights of the node, or of the operator.
func (s *site) connect(operator bool) *api.Conn {
	s.t.Helper()
	a := must.Get(supervise.ReadAttachment(s.store))(s.t)
	o := conn.Options{URL: a.URL, User: a.User, Password: a.Password, Inbox: conn.NodeInbox}
	if operator {
		o.User, o.Password = a.OperatorUser, a.OperatorPassword
	}
	c := must.Get(api.Connect(s.t.Context(), &streams.Options{Options: o, Level: streams.Lazy}))(s.t)
	return c
}

// prune archives and purges everything, and returns the archives.
func (s *site) prune() (docs [][]byte) {
	s.t.Helper()
	c := s.connect(true)
	defer c.Conn.Close()
	dir := s.t.TempDir()
	out := must.Get(retention.Prune(s.t.Context(), c, &retention.Options{Keep: func(session.Tenant) (time.Duration, bool) { return 0, true }, Dir: dir, Grace: -1}))(s.t)
	for _, o := range out {
		if o.State != retention.Archived {
			s.t.Fatalf("%+v", o)
		}
		doc := must.Get(os.ReadFile(o.File))(s.t)
		docs = append(docs, doc)
	}
	return docs
}

// imports has the node import a file for a client.
func (s *site) imports(ctx context.Context, doc []byte) ([]messages.Imported, error) {
	return s.client.Sessions.Import(ctx, doc)
}

// brought returns the restorations in the log of a session.
func (s *site) brought(id session.ID) (all []commitlog.Restoration) {
	s.t.Helper()
	for e, err := range remotelog.Of(s.client).Read(s.t.Context(), session.Key{Tenant: session.DefaultTenant, ID: id}, commitlog.Position{}) {
		must.Do(s.t, err)
		for _, ev := range e.Commit.Events {
			if ev.Kind == session.KindRestored {
				r := must.Get(commitlog.DecodeRestoration(ev))(s.t)
				all = append(all, r)
			}
		}
	}
	return all
}

// TestImport imports an archive with a client's rights: to the store that purged it, and to
// another store, again and again. The log names the importing user.
func TestImport(t *testing.T) {
	t.Parallel()
	here, other := newSite(t), newSite(t)
	id := here.run("r1", "notes")
	docs := here.prune()
	if len(docs) != 1 {
		t.Fatalf("%d archives", len(docs))
	}
	for _, tt := range []struct {
		at     *site
		reason string
	}{{here, "brought back from its archive"}, {other, "brought from an archive; it was not here before"}} {
		for i, note := range []string{"", "was there already"} {
			rows, err := tt.at.imports(t.Context(), docs[0])
			want := messages.Imported{Session: id, Rows: 2, Kind: dossier.FormTree, Note: note}
			if err != nil || len(rows) != 1 || rows[0] != want {
				t.Fatalf("import %d: %+v, %v", i, rows, err)
			}
		}
		if got := tt.at.brought(id); len(got) != 1 || got[0] != (commitlog.Restoration{By: messages.UserAnonymous, Reason: tt.reason}) {
			t.Errorf("the log says %+v", got)
		}
		// It resumes, and its ids are in use.
		tt.at.run("r2", "notes")
		if r, err := tt.at.client.Runs.Get(t.Context(), "r1"); err != nil || r.State != run.Succeeded {
			t.Errorf("its run: %+v, %v", r, err)
		}
	}
	records := must.Get(other.client.Lineage.Page(t.Context(), string(id), "", 0))(t)
	seen := false
	for _, r := range records.Records {
		if r.Record.Kind == "restored" {
			seen = r.Record.By == messages.UserAnonymous && strings.Contains(r.Record.Summary, "not here before")
		}
	}
	if !seen {
		t.Errorf("lineage does not say who brought it: %+v", records)
	}
	// Both went on, and are other sessions now.
	if _, err := other.imports(t.Context(), docs[0]); err != nil {
		t.Errorf("once more, while it is used: %v", err)
	}
	longer := here.prune()[0]
	if _, err := other.imports(t.Context(), longer); !errors.Is(err, run.ErrState) {
		t.Errorf("other commits than those that are there: %v", err)
	}
}

// TestBadArchives are rejected, and leave nothing in the store.
func TestBadArchives(t *testing.T) {
	t.Parallel()
	here, other := newSite(t), newSite(t)
	id := here.run("r1", "")
	doc := here.prune()[0]
	for name, tt := range map[string]struct {
		doc  string
		want error
	}{
		"truncated":         {string(doc[:len(doc)*2/3]), run.ErrMalformed},
		"altered":           {strings.Replace(string(doc), "hello", "hullo", 1), run.ErrMalformed},
		"of another tenant": {strings.ReplaceAll(string(doc), `"default"`, `"acme"`), run.ErrMalformed}, // its chain holds no more
		"empty":             {"", run.ErrMalformed},
		"of no kind":        {"archive", run.ErrMalformed},
	} {
		rows, err := other.imports(t.Context(), []byte(tt.doc))
		if !errors.Is(err, tt.want) || len(rows) > 0 {
			t.Errorf("%s: %+v, %v", name, rows, err)
		}
	}
	// A whole archive, asked for by a user of another tenant.
	c := other.connect(false)
	if _, err := takeover.File(t.Context(), c, "acme", "ana", doc); !errors.Is(err, session.ErrTenant) {
		t.Errorf("of another tenant: %v", err)
	}
	must.Report(t, c.Conn.Close())
	if _, err := other.client.Sessions.Get(t.Context(), string(id)); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("something came in: %v", err)
	}
}

// TestUnsignedArchive: a store does not sign imported results.
func TestUnsignedArchive(t *testing.T) {
	t.Parallel()
	here, other := newSite(t), newSite(t)
	here.run("r1", "")
	tree, _, err := dossier.VerifyTree(here.prune()[0], nil)
	if err != nil || len(tree.Signatures) != 1 {
		t.Fatalf("%+v, %v", tree.Signatures, err)
	}
	tree.Signatures = nil
	doc, err := tree.Encode()
	must.Do(t, err)
	must.Get(other.imports(t.Context(), doc))(t)
	other.run("r2", "") // the relay has passed the imported commits
	if r, err := other.client.Runs.Result(t.Context(), "r1"); err != nil || r.State != run.Succeeded || r.Signature != "" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := other.client.Runs.Result(t.Context(), "r2"); err != nil || r.Signature == "" {
		t.Errorf("its own run is not signed: %v", err)
	}
}

// TestArchiveWithOpenRun: a run that a forger left open does not resume where it is
// imported, with an approval that no person gave.
func TestArchiveWithOpenRun(t *testing.T) {
	t.Parallel()
	here, other := newSite(t), newSite(t)
	here.run("r1", "")
	tree, _ := must.Pair(dossier.VerifyTree(here.prune()[0], nil))(t)
	var forged []string
	prev := commitlog.Position{}
	for _, raw := range tree.Logs[0].Commits {
		c := must.Get(commitlog.Decode([]byte(raw)))(t)
		c.Events = slices.DeleteFunc(c.Events, func(e session.Event) bool { return e.Kind == journal.KindEnded })
		if len(c.Events) == 0 {
			continue
		}
		c.Seq, c.Prev = prev.Seq+1, prev.Hash
		data := must.Get(commitlog.Encode(c))(t)
		forged, prev = append(forged, string(data)), commitlog.Position{Seq: c.Seq, Hash: commitlog.HashOf(data)}
	}
	if len(forged) == 0 || slices.Equal(forged, tree.Logs[0].Commits) {
		t.Fatal("nothing is forged")
	}
	tree.Logs[0].Commits, tree.Signatures = forged, nil
	doc := consistent(t, tree)
	if rows, err := other.imports(t.Context(), doc); !errors.Is(err, run.ErrState) || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("%+v, %v", rows, err)
	}
	if _, err := other.client.Runs.Get(t.Context(), "r1"); !errors.Is(err, run.ErrUnknownRun) {
		t.Errorf("the run is there: %v", err)
	}
}

// consistent returns the archive of a forged tree, which holds together.
func consistent(t *testing.T, tree *dossier.Evidence) []byte {
	t.Helper()
	doc := must.Get(tree.Encode())(t)
	if _, _, err := dossier.VerifyTree(doc, nil); err != nil {
		t.Fatalf("it does not hold together: %v", err)
	}
	return doc
}

// TestArchiveNamesDirectory rejects a session that a forger sent to a directory of the
// node, because the next run on it would copy the directory's contents.
func TestArchiveNamesDirectory(t *testing.T) {
	t.Parallel()
	here, other := newSite(t), newSite(t)
	here.run("r1", "")
	tree, _ := must.Pair(dossier.VerifyTree(here.prune()[0], nil))(t)
	commits := tree.Logs[0].Commits
	last := must.Get(commitlog.Decode([]byte(commits[len(commits)-1])))(t)
	sent := session.PlacedEvent(session.Placement{Backend: "local", Spec: t.TempDir()})
	sent.Time = last.Events[0].Time
	last.Events = slices.Insert(last.Events, 0, sent)
	data := must.Get(commitlog.Encode(last))(t)
	commits[len(commits)-1], tree.Signatures = string(data), nil
	doc := consistent(t, tree)
	if rows, err := other.imports(t.Context(), doc); !errors.Is(err, run.ErrState) || !strings.Contains(err.Error(), "directory") {
		t.Errorf("%+v, %v", rows, err)
	}
}

// TestNodeEndsMeanwhile: the client repeats the request when a node is back, which resumes
// where the other one stopped.
func TestNodeEndsMeanwhile(t *testing.T) {
	t.Parallel()
	here, other := newSite(t), newSite(t)
	var id session.ID
	for i := range 60 {
		id = here.run(run.ID(fmt.Sprint("r", i)), "notes")
	}
	doc := here.prune()[0]
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	type outcome struct {
		rows []messages.Imported
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		rows, err := other.imports(ctx, doc)
		done <- outcome{rows, err}
	}()
	// Once it has begun, readers see the session as being restored.
	for begun := false; !begun; {
		_, err := other.client.Sessions.Get(ctx, string(id))
		begun = err == nil || errors.Is(err, session.ErrArchived)
		if ctx.Err() != nil {
			t.Fatal("it does not begin")
		}
	}
	must.Do(t, other.node.Close())
	other.start()
	got := <-done
	for !other.client.Connected() && ctx.Err() == nil { // it may have been done before
		time.Sleep(10 * time.Millisecond)
	}
	if got.err != nil || len(got.rows) != 1 || got.rows[0].Rows != 120 {
		t.Fatalf("%+v, %v", got.rows, got.err)
	}
	if got := other.brought(id); len(got) != 1 {
		t.Errorf("the log says %+v", got)
	}
	other.run("again", "notes")
}

// TestOpenRath takes over a session file of OpenRath with a client's rights.
func TestOpenRath(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file := must.Get(os.ReadFile(filepath.Join("..", "..", "evidence", "openrath", "testdata", "v1.2.jsonl")))(t)
	for i, note := range []string{"", "was there already"} {
		rows, err := s.imports(t.Context(), file)
		if err != nil || len(rows) != 1 || rows[0].Rows == 0 || !strings.Contains(rows[0].Note, note) {
			t.Fatalf("import %d: %+v, %v", i, rows, err)
		}
		v, err := s.client.Sessions.Get(t.Context(), string(rows[0].Session))
		if err != nil || v.Opened != session.OpenImport || len(v.Chunks) != rows[0].Rows {
			t.Errorf("%+v, %v", v, err)
		}
	}
	if _, err := s.imports(t.Context(), bytes.TrimSpace([]byte("{}\n"))); !errors.Is(err, run.ErrMalformed) {
		t.Errorf("a file of another kind: %v", err)
	}
}

// TestOpenRathGraph imports a session, its fork and the merge of both: the graph equals
// OpenRath's, in one tree. A missing parent is reported, and is no edge.
func TestOpenRathGraph(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	at := map[string]session.ID{}
	for _, f := range []struct {
		id, kind string
		parents  []string
		note     string
	}{
		{"a", "leaf_user", nil, ""},
		{"b", "op_fork", []string{"a"}, ""},
		{"c", "op_merge", []string{"a", "b", "gone"}, "without 1 parent"},
	} {
		parents := must.Get(json.Marshal(append(f.parents, f.parents...)))(t) // each counts once
		text := fmt.Sprintf(`{"record_type": "header", "schema_version": 1, "id": %q, "created_at": "2025-03-04T05:06:07.123456+00:00", "parent_session_ids": %s, "lineage_kind": %q}
{"record_type": "chunk", "index": 0, "kind": "user", "payload": {"content": "hello"}}
`, f.id, parents, f.kind)
		for i, note := range []string{f.note, "was there already"} {
			rows, err := s.imports(t.Context(), []byte(text))
			if err != nil || len(rows) != 1 || !strings.Contains(rows[0].Note, note) {
				t.Fatalf("import %d of %s: %+v, %v; want %q", i, f.id, rows, err, note)
			}
			at[f.id] = rows[0].Session
		}
	}
	g, err := s.client.Lineage.Graph(t.Context(), string(at["c"]), "")
	if err != nil || g.Root != at["a"] || len(g.Tree) != 3 {
		t.Fatalf("%+v, %v", g, err)
	}
	for _, b := range g.Tree {
		var from []session.ID
		for _, p := range b.Parents {
			if p.Version != 1 {
				t.Errorf("%s comes from %+v, want version 1", b.Name, p)
			}
			from = append(from, p.Session)
		}
		want := map[string][]session.ID{"b": {at["a"]}, "c": {at["a"], at["b"]}}[b.Name]
		if !slices.Equal(from, want) || b.Via != session.OpenImport {
			t.Errorf("%s comes from %v, want %v", b.Name, from, want)
		}
	}
	// A file names its session and not the root of the tree.
	v, err := s.client.Sessions.Get(t.Context(), string(at["b"]))
	if err != nil || v.Session != at["b"] {
		t.Errorf("%+v, %v", v, err)
	}
	s.run("on", string(at["b"])) // it goes on in its tree
	if g, err = s.client.Lineage.Graph(t.Context(), string(at["b"]), ""); err != nil || g.Root != at["a"] {
		t.Errorf("%+v, %v", g, err)
	}
}
