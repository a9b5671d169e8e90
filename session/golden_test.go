package session_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

var update = flag.Bool("update", false, "write the golden files; only for a new schema")

// golden compares got with a file, which -update writes.
func golden(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, got, 0o644))
	}
	want := must.Get(os.ReadFile(path))(t)
	want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-file +now):\n%s", name, diff)
	}
	return want
}

// TestGolden: the stored bytes of schema 1, and their fold, never change.
func TestGolden(t *testing.T) {
	w := newWorld(t)
	origin := session.Origin{
		Agent: "writer", Workflow: "report", Node: "n1", Run: "r1", Step: "0", Time: at(0),
		Placement: session.Placement{Backend: "local", Epoch: 2, Head: blob.Digest{7}, Isolation: "namespace", Spec: "./dir"},
		Usage:     session.Usage{Calls: 1, Input: 100, Output: 20, CacheRead: 50, CacheWrite: 10, MicroUSD: 1234},
	}
	trunk := w.open(
		key("trunk"), session.Opening{Kind: session.OpenLeaf, Name: "n", Run: "r1"},
		session.ChunkEvent(session.SystemText("Be brief.")), session.ChunkEvent(session.UserText("Say \"h\u00e9llo\" <b>\n\u2028")),
	)
	trunk = w.commit(trunk.Key(),
		session.ChunkEvent(session.AssistantText("", session.ToolCall{ID: "c1", Name: "read", Args: `{"path": "a", "x": 1.5}`}).Of(origin).WithOpaque("sig")),
		session.Event{Kind: "step.done", Schema: 1, Batch: "r1/0", Data: `{"path":"0","run":"r1"}`},
		session.ChunkEvent(session.Result("c1", "read", `{"ok":false,"error_kind":"timeout"}`, true).WithBody(blob.Ref{Digest: blob.Digest{1}, Size: 99})),
	)
	branch := w.fork(key("branch"), session.OpenFork, trunk)
	branch = w.commit(branch.Key(), session.ChunkEvent(session.AssistantText("Hello.").Of(origin)))
	copied := w.fork(key("copy"), session.OpenDetach, trunk)
	trunk = w.commit(trunk.Key(), session.PlacedEvent(session.Placement{Backend: "docker", Spec: "alpine"}))
	j := must.Get(session.JoinOf(trunk, session.JoinAdopt, "better", 0, branch))(t)
	trunk = w.commit(trunk.Key(), session.JoinedEvent(j))
	l, _ := copied.Link()
	w.commit(trunk.Key(), commitlog.RejectedEvent(commitlog.Rejection{Branch: l, Reason: "not needed", State: session.ClosedRejected}))
	w.commit(branch.Key(), session.ClosedEvent(session.Closing{By: trunk.Key(), Reason: "better", State: session.ClosedAdopted}))
	j = must.Get(session.JoinOf(session.Session{}, session.JoinConcatenate, "", 0, w.newest[trunk.Key()], w.newest[copied.Key()]))(t)
	w.open(key("both"), session.Opening{Kind: session.OpenMerge, Parents: []session.Link{j.Parents[0].Link, j.Parents[1].Link}}, session.JoinedEvent(j))

	keys := []session.Key{key("trunk"), key("branch"), key("copy"), key("both")}
	var stored bytes.Buffer
	for _, k := range keys {
		for e, err := range w.log.Read(t.Context(), k, commitlog.Position{}) {
			must.Do(t, err)
			stored.WriteString(e.Raw)
			stored.WriteByte('\n')
		}
	}
	file := golden(t, "schema1.commits.jsonl", stored.Bytes())

	// Fold the contents of the file.
	old := newWorld(t)
	old.fresh = true
	for line := range bytes.Lines(file) {
		c, err := commitlog.Decode(bytes.TrimSuffix(line, []byte("\n")))
		must.Do(t, err)
		last, err := old.log.Last(t.Context(), c.Key)
		if err != nil && c.Seq > 1 {
			t.Fatal(err)
		}
		must.Get(old.log.Append(t.Context(), last.At, c))(t)
	}
	var shown []shown
	for _, k := range keys {
		d := describe(old.fold(k, 0))
		d.Link.Token = 0 // the log's own
		shown = append(shown, d)
	}
	projection := must.Get(json.MarshalIndent(shown, "", "\t"))(t)
	golden(t, "schema1.projection.json", append(projection, '\n'))
}
