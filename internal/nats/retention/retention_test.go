package retention

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// inWorld runs f beside a node, in virtual time.
func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		f(t, newWorld(t))
	})
}

// TestPruneAndRestore archives a tree with branches, finds it closed to readers and writers
// alike, and restores it.
func TestPruneAndRestore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		root := w.done("tree", messages.Task{ID: "r1"})
		before, err := w.texts(root)
		must.Do(t, err)
		time.Sleep(keep)
		young := w.done("agent", messages.Task{ID: "r2"})

		dry := w.options()
		dry.DryRun = true
		if got, want := states(w.prune(dry)), []string{"due 3", "kept 1 used 0s ago, kept for 2m"}; !slices.Equal(got, want) {
			t.Fatalf("dry run: %q, want %q", got, want)
		}
		if left, _ := os.ReadDir(w.dir); len(left) > 0 {
			t.Errorf("the dry run wrote %v", left)
		}
		if now, err := w.texts(root); err != nil || now != before {
			t.Errorf("after the dry run: %q, %v", now, err)
		}

		// A client has read it at a version, which a node keeps.
		at := string(root) + ":1"
		must.Get(w.client.Sessions.Get(t.Context(), at))(t)
		out := w.prune(w.options())
		if got, want := states(out), []string{"archived 3", "kept 1 used 0s ago, kept for 2m"}; !slices.Equal(got, want) {
			t.Fatalf("prune: %q, want %q", got, want)
		}
		doc, err := os.ReadFile(out[0].File)
		if err != nil || int64(len(doc)) != out[0].Size {
			t.Fatalf("archive of %d bytes, want %d: %v", len(doc), out[0].Size, err)
		}
		if _, r, err := dossier.VerifyTree(doc, nil); err != nil || len(r.Sessions) != 3 || r.Blobs == 0 {
			t.Errorf("verified: %+v, %v", r, err)
		}

		// Readers get an error with the cause and the remedy; the other sessions continue.
		for _, s := range out[0].Sessions {
			_, err := w.texts(s.ID)
			a, ok := errors.AsType[*session.ArchivedError](err)
			if !ok || !strings.HasSuffix(out[0].File, a.File) || !strings.Contains(err.Error(), "rath cluster import "+a.File) {
				t.Errorf("session %s: %v", s.ID, err)
			}
		}
		if s, err := w.client.Sessions.Get(t.Context(), at); !errors.Is(err, session.ErrArchived) {
			t.Errorf("a client reads %d purged rows: %v", s.Total, err)
		}
		if _, err := w.texts(young); err != nil {
			t.Errorf("the young one: %v", err)
		}
		// One message is left of each, and no process begins it again.
		for _, s := range out[0].Sessions {
			at, err := w.conn.Logs.Log().Append(t.Context(), commitlog.Position{}, commitlog.Commit{
				Key: key(s.ID), Root: s.ID, Seq: 1, Epoch: 1, Events: []session.Event{session.OpenedEvent(session.Opening{Kind: session.OpenLeaf})},
			})
			if !errors.Is(err, session.ErrConflict) {
				t.Errorf("begun again at %+v: %v", at, err)
			}
		}
		// A run on it, and a fork of it, are refused with the reason; a task of
		// long ago is not run again.
		w.begin("agent", messages.Task{ID: "r3", Session: string(root)})
		w.begin("agent", messages.Task{ID: "r4", ForkOf: string(root)})
		w.begin("agent", messages.Task{ID: "r5", ForkOf: string(root) + ":2"})
		for _, id := range []run.ID{"r3", "r4", "r5"} {
			if r := w.result(id); r.State != run.Failed || r.Code != run.CodeArchived || !strings.Contains(r.Error, "rath cluster import") {
				t.Errorf("%s: %+v", id, r)
			}
		}
		w.again("tree", messages.Task{ID: "r1", Input: json.RawMessage(`"hello"`)})
		if again := w.prune(w.options()); len(again) != 1 || again[0].State != Kept {
			t.Errorf("pruned again: %q", states(again))
		}

		back, err := bring(t.Context(), w.conn, doc, "ana")
		if err != nil || len(back) != 3 || back[0].There {
			t.Fatalf("Restore: %+v, %v", back, err)
		}
		if now, err := w.texts(root); err != nil || now != before {
			t.Errorf("brought back: %q, want %q: %v", now, before, err)
		}
		back, err = bring(t.Context(), w.conn, doc, "ana")
		if err != nil || len(back) != 3 || !back[0].There {
			t.Errorf("Restore again: %+v, %v", back, err)
		}
		w.done("agent", messages.Task{ID: "r6", Session: string(root), Input: json.RawMessage(`"again"`)})
		if now, err := w.texts(root); err != nil || now != before+"|again|echo: again" {
			t.Errorf("it goes on: %q, %v", now, err)
		}
		// It is used again, so it is not pruned with the next round.
		if got := states(w.prune(w.options())); slices.ContainsFunc(got, func(s string) bool { return !strings.HasPrefix(s, "kept") }) {
			t.Errorf("pruned again: %q", got)
		}
		time.Sleep(keep)
		if got, want := states(w.prune(w.options())), []string{"archived 1", "archived 3"}; !slices.Equal(got, want) {
			t.Errorf("later: %q, want %q", got, want)
		}
	})
}

// TestOfWhatIsArchived: a run that reads a session which is archived fails with that,
// also where a node remembers it, and so does one that read it before.
func TestOfWhatIsArchived(t *testing.T) {
	for _, workflow := range []string{"fork", "both"} {
		t.Run(workflow, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				old := w.done("agent", messages.Task{ID: "old"})
				time.Sleep(keep)
				w.begin(workflow, messages.Task{ID: "before", Input: fmt.Appendf(nil, `{"session":%q,"hold":true}`, old)})
				w.started("before", w.conn.Logs.HomeOf("default", "before"))
				if got := states(w.prune(w.options())); !slices.Contains(got, "archived 1") {
					t.Fatalf("%q", got)
				}
				w.begin(workflow, messages.Task{ID: "after", Input: fmt.Appendf(nil, `{"session":%q}`, old)})
				close(w.hold)
				for _, id := range []run.ID{"before", "after"} {
					if r := w.result(id); r.State != run.Failed || r.Code != run.CodeArchived || !strings.Contains(r.Error, "rath cluster import") {
						t.Errorf("%s: %+v", id, r)
					}
				}
				w.audited()
			})
		})
	}
}

// TestKept are trees that are kept, each with the reason.
func TestKept(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old := w.done("agent", messages.Task{ID: "old"})
		w.begin("hold", messages.Task{ID: "open"})
		apart := w.done("agent", messages.Task{ID: "apart"})
		must.Do(t, w.sys.Signal(t.Context(), journal.Signal{To: key(apart), Quarantine: &journal.Quarantined{Reason: "odd"}}))
		base := w.done("agent", messages.Task{ID: "base"})
		time.Sleep(keep)
		// A copy is a tree of its own, and cannot be read without the other.
		copied := w.done("copy", messages.Task{ID: "copy", ForkOf: string(base)})
		if copied == base {
			t.Fatal("the copy is its base")
		}
		w.done("agent", messages.Task{ID: "fork", ForkOf: string(old)})
		o := w.options()
		o.DryRun = true
		got := states(w.prune(o))
		slices.Sort(got)
		for i, want := range []string{
			"kept 1 run open is running in session ", "kept 1 session " + string(apart) + " is quarantined",
			"kept 2 used 0s ago", "kept 3 used ",
		} {
			if i >= len(got) || !strings.HasPrefix(got[i], want) {
				t.Errorf("%q, want number %d to begin %q", got, i, want)
			}
		}
		o.Keep = func(session.Tenant) (time.Duration, bool) { return 0, false }
		for _, s := range states(w.prune(o)) {
			if strings.HasPrefix(s, "due") {
				t.Errorf("a tenant that keeps everything: %s", s)
			}
		}
		close(w.hold)
		w.result("open")
	})
}

// TestNodesMayNotPurge: the credentials of a node do not do.
func TestNodesMayNotPurge(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		id := w.done("agent", messages.Task{ID: "r1"})
		time.Sleep(keep)
		out, err := Prune(t.Context(), w.conn, w.options())
		if !errors.Is(err, conn.ErrDenied) || !strings.Contains(err.Error(), "$JS.API.STREAM.PURGE.*") || !strings.Contains(err.Error(), "operator") {
			t.Errorf("%q, %v", states(out), err)
		}
		if err := w.conn.Logs.Archived(t.Context(), key(id)); err != nil {
			t.Errorf("it is fenced: %v", err)
		}
	})
}

// TestArchiveThatCannotBeReadBack keeps a tree whose file would exceed the limit of a read.
// In a file a character of a text may take six.
func TestArchiveThatCannotBeReadBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		input := must.Get(json.Marshal(strings.Repeat("<", 40<<10)))(t)
		root := w.done("agent", messages.Task{ID: "r1", Input: input})
		time.Sleep(keep)
		o := w.options()
		o.Limit = 400 << 10
		if out := w.prune(o); len(out) != 1 || out[0].State != Kept || !strings.Contains(out[0].Reason, "its file would have") {
			t.Errorf("%q, %d bytes", states(out), out[0].Size)
		}
		w.done("agent", messages.Task{ID: "r2", Session: string(root)}) // it is not fenced
		time.Sleep(keep)
		if got := states(w.prune(w.options())); !slices.Equal(got, []string{"archived 1"}) {
			t.Errorf("with the usual limit: %q", got)
		}
	})
}
