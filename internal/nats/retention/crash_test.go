package retention

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

var errCrash = errors.New("crash")

// TestCrashes ends a prune after each of its steps. After each, every session can be read
// from its log or from an archive that verifies; the next prune finishes the work, and a
// restore brings its archives back.
func TestCrashes(t *testing.T) {
	steps := []string{"fence 0", "fence 1", "fence 2", "write", "rename", "archive", "purge 2", "purge 1", "purge 0", "free"}
	for i, step := range append(steps, "none") {
		t.Run(strings.ReplaceAll(step, " ", "-"), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				root := w.done("tree", messages.Task{ID: "r1"})
				before, err := w.texts(root)
				must.Do(t, err)
				time.Sleep(keep)
				var seen []string
				o := w.options()
				o.after = func(at string) error {
					if seen = append(seen, at); at == step {
						return errCrash
					}
					return nil
				}
				cut, err := Prune(t.Context(), w.op, o)
				if step == "none" {
					if err != nil || !slices.Equal(seen, steps) {
						t.Fatalf("steps %q, want %q: %v", seen, steps, err)
					}
				} else if !errors.Is(err, errCrash) || !slices.Equal(seen, steps[:i+1]) {
					t.Fatalf("steps %q: %v", seen, err)
				}
				for _, out := range cut {
					if out.State != Fenced && step != "none" && step != "free" || out.File != "" && len(w.archives()) == 0 {
						t.Errorf("it is told as %q, %q", states(cut), out.File)
					}
				}
				w.nothingLost(3)
				w.audited()

				// Another process continues, with another limit of age.
				later := w.options()
				later.Keep = func(session.Tenant) (time.Duration, bool) { return time.Hour, true }
				out := w.prune(later)
				if done := i >= len(steps)-2; done && len(out) != 0 || !done && (len(out) != 1 || out[0].State != Archived) {
					t.Fatalf("the next prune: %q", states(out))
				}
				w.nothingLost(3)
				if files, err := os.ReadDir(w.dir); err != nil || len(files) != 1 {
					t.Errorf("the directory has %v, want one archive: %v", files, err)
				}
				doc := w.archives()[0]
				if len(w.archives()) != 1 {
					t.Errorf("%d archives", len(w.archives()))
				}
				must.Get(bring(t.Context(), w.conn, doc, "ana"))(t)
				if now, err := w.texts(root); err != nil || now != before {
					t.Errorf("brought back: %q, want %q: %v", now, before, err)
				}
				w.audited()
			})
		})
	}
}

// archives are the files that verify.
func (w *world) archives() (docs [][]byte) {
	w.t.Helper()
	files := must.Get(os.ReadDir(w.dir))(w.t)
	for _, f := range files {
		doc := must.Get(os.ReadFile(w.dir + "/" + f.Name()))(w.t)
		if strings.HasSuffix(f.Name(), ".json") {
			if _, _, err := dossier.VerifyTree(doc, nil); err != nil {
				w.t.Errorf("%s: %v", f.Name(), err)
			}
			docs = append(docs, doc)
		}
	}
	return docs
}

// cutOff has a prune end after a step.
func (w *world) cutOff(step string) {
	w.t.Helper()
	o := w.options()
	o.after = func(at string) error {
		if at == step {
			return errCrash
		}
		return nil
	}
	if _, err := Prune(w.t.Context(), w.op, o); !errors.Is(err, errCrash) {
		w.t.Fatalf("after %s: %v", step, err)
	}
}

// nothingLost demands so many sessions, each from its log or from an archive whose last
// commit is the session's tombstone.
func (w *world) nothingLost(sessions int) {
	w.t.Helper()
	kept := map[session.ID]session.Hash{}
	for _, doc := range w.archives() {
		tree, _ := must.Pair(dossier.VerifyTree(doc, nil))(w.t)
		for _, l := range tree.Logs {
			kept[l.Session] = commitlog.HashOf([]byte(l.Commits[len(l.Commits)-1]))
		}
	}
	trees := must.Get(w.op.Archive.Trees(w.t.Context(), ""))(w.t)
	n := 0
	for _, t := range trees {
		for _, s := range t.Sessions {
			n++
			if s.Purged && kept[s.ID] != s.At.Hash {
				w.t.Errorf("session %s is purged, and no archive ends with its tombstone", s.ID)
			}
			if _, err := w.texts(s.ID); err != nil && !s.Purged {
				w.t.Errorf("session %s is not purged: %v", s.ID, err)
			}
		}
	}
	if n != sessions {
		w.t.Errorf("%d sessions are known, want %d", n, sessions)
	}
}

// TestPartOfAnArchiveIsMissed: the prune of a partly purged tree does not continue without
// the archive of the rest.
func TestPartOfAnArchiveIsMissed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.done("tree", messages.Task{ID: "r1"})
		time.Sleep(keep)
		w.cutOff("purge 2")
		elsewhere := w.options()
		elsewhere.Dir = t.TempDir()
		out, err := Prune(t.Context(), w.op, elsewhere)
		if err != nil || len(out) != 1 || out[0].State != Failed || !strings.Contains(out[0].Reason, "name the directory where it is") {
			t.Errorf("%q, %v", states(out), err)
		}
		w.nothingLost(3)
		if got := states(w.prune(w.options())); !slices.Equal(got, []string{"archived 3"}) {
			t.Errorf("with the right directory: %q", got)
		}
	})
}

// TestRaces uses a tree at any moment of its archiving: the tree is kept.
func TestRaces(t *testing.T) {
	for _, tc := range []struct {
		name, at string
		do       func(w *world, root, other session.ID)
		want     string
	}{
		{"a run before the fence", "fence 0", func(w *world, _, other session.ID) {
			w.begin("hold", messages.Task{ID: "late", Session: string(other)})
			w.started("late", other)
		}, "journal: late is running in session"},
		{"a message before the fence", "fence 0", func(w *world, _, other session.ID) {
			must.Do(w.t, w.sys.Signal(w.t.Context(), journal.Signal{To: key(other), Received: &journal.SignalReceived{Kind: journal.Message, Text: "wait"}}))
		}, ""}, // it is archived with it
		{"a run at the fence", "fence 1", func(w *world, _, other session.ID) {
			w.begin("hold", messages.Task{ID: "late", Session: string(other)})
			if r := w.result("late"); r.Code != run.CodeArchived {
				w.t.Errorf("the run: %+v", r)
			}
		}, ""},
		{"a fork of what was read before", "fence 1", func(w *world, root, _ session.ID) {
			s := must.Get(journal.NewValues(w.conn.Logs.Log()).At(w.t.Context(), session.Ref{Key: key(root)}))(w.t)
			l, _ := s.Link()
			child := w.conn.Logs.Minter().ID("child")
			must.Get(journal.NewStore(w.conn.Logs.Log(), nil).Claim(w.t.Context(), journal.Claim{
				Session: key(child), Home: key(child), Run: "late", Root: root, Revision: "1",
				Task: &journal.Task{ID: "late", Workflow: "agent", Session: key(child), Input: []byte(`"x"`)},
				Open: session.Opening{Kind: session.OpenFork, Parents: []session.Link{l}},
			}))(w.t)
		}, "run late is "},
	} {
		t.Run(strings.ReplaceAll(tc.name, " ", "-"), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				root := w.done("agent", messages.Task{ID: "r1"})
				time.Sleep(time.Second)
				other := w.done("agent", messages.Task{ID: "r2", ForkOf: string(root)})
				time.Sleep(keep)
				o := w.options()
				o.after = func(at string) error {
					if at == tc.at {
						tc.do(w, root, other)
					}
					return nil
				}
				out := w.prune(o)
				if tc.want == "" {
					if len(out) != 1 || out[0].State != Archived {
						t.Fatalf("%q", states(out))
					}
					return
				}
				if len(out) != 1 || out[0].State != Kept || !strings.Contains(out[0].Reason, tc.want) {
					t.Fatalf("%q, want %q", states(out), tc.want)
				}
				close(w.hold)
				w.done("agent", messages.Task{ID: "r3", Session: string(root)}) // nothing is fenced any more
			})
		})
	}
}

// started waits until a run executes.
func (w *world) started(id run.ID, home session.ID) {
	w.t.Helper()
	for range 100 {
		g, err := journal.NewValues(w.conn.Logs.Log()).Recorded(w.t.Context(), key(home), id)
		if err == nil && g.State == run.Running {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.t.Fatalf("run %s does not start", id)
}

// TestRestoreElsewhere restores an archive in another store, where it is listed and
// resumes, and rejects it in a store with another history.
func TestRestoreElsewhere(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		root := w.done("tree", messages.Task{ID: "r1"})
		before, err := w.texts(root)
		must.Do(t, err)
		time.Sleep(keep)
		w.prune(w.options())
		doc := w.archives()[0]

		other := newWorld(t)
		if back, err := bring(t.Context(), other.conn, doc, "ana"); err != nil || len(back) != 3 || back[0].There {
			t.Fatalf("%+v, %v", back, err)
		}
		if now, err := other.texts(root); err != nil || now != before {
			t.Errorf("%q, want %q: %v", now, before, err)
		}
		must.Do(t, other.conn.Projections.WaitCaughtUp(t.Context()))
		r, err := other.client.Runs.Get(t.Context(), "r1")
		if err != nil || r.State != run.Succeeded || r.Session != root {
			t.Errorf("its run: %+v, %v", r, err)
		}
		other.begin("agent", messages.Task{ID: "r1"})
		live, err := other.client.Runs.Get(t.Context(), "r1")
		if err != nil || live.Workflow != "tree" {
			t.Errorf("the id was used again: %+v, %v", live, err)
		}
		other.done("agent", messages.Task{ID: "r2", Session: string(root)})
		other.audited()

		// The two histories are different now.
		time.Sleep(keep)
		if got := states(other.prune(other.options())); !slices.Equal(got, []string{"archived 3"}) {
			t.Fatalf("%q", got)
		}
		longer := other.archives()[0]
		if _, err := bring(t.Context(), w.conn, longer, "ana"); !errors.Is(err, session.ErrForeign) || !strings.Contains(err.Error(), "not the archive of the purged session") {
			t.Errorf("an archive of another history: %v", err)
		}
		if _, err := bring(t.Context(), other.conn, doc, "ana"); !errors.Is(err, session.ErrForeign) {
			t.Errorf("an older archive over a newer tombstone: %v", err)
		}
		w.audited()
		other.audited()
	})
}

// TestNotAnArchive are files that cannot be restored.
func TestNotAnArchive(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.done("agent", messages.Task{ID: "r1"})
		time.Sleep(keep)
		w.prune(w.options())
		doc := string(w.archives()[0])
		lines := strings.SplitAfter(doc, "\n")
		for name, bad := range map[string]string{
			"cut":       strings.Join(lines[:len(lines)-2], ""),
			"altered":   strings.Replace(doc, "hello", "hullo", 1),
			"shortened": strings.Join(slices.Delete(slices.Clone(lines), 4, 5), ""),
			"no json":   "archive",
			"empty":     "",
		} {
			back, err := bring(t.Context(), w.conn, []byte(bad), "ana")
			if _, ok := errors.AsType[*dossier.Failure](err); !ok || len(back) > 0 {
				t.Errorf("%s: %+v, %v", name, back, err)
			}
		}
		if err := w.op.Archive.Purge(t.Context(), key(w.conn.Logs.HomeOf("default", "r1")), commitlog.Position{Seq: 9, Token: 1}); err == nil {
			t.Error("something else than a tombstone was left")
		}
	})
}

// TestPartsOfOthers prunes beside files of killed prunes: old ones are removed, whatever
// their purpose, and no other file is.
func TestPartsOfOthers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.done("agent", messages.Task{ID: "r1"})
		time.Sleep(keep)
		old := time.Now().Add(-24 * time.Hour) // of a bubble, whose time is long ago
		for name, stays := range map[string]bool{
			"default-s9-20250101T000000Z.json.ABC.part": false, ".rath-123.part": false,
			"default-s8-20250101T000000Z.json.DEF.part": true, // just begun
			"notes.part": true, "default-s9-20250101T000000Z.json": true,
		} {
			name = filepath.Join(w.dir, name)
			must.Do(t, os.WriteFile(name, []byte("{"), 0o600))
			if just := stays && strings.HasSuffix(name, "DEF.part"); !just {
				must.Do(t, os.Chtimes(name, old, old))
			}
			defer func() {
				if _, err := os.Stat(name); (err == nil) != stays {
					t.Errorf("%s: %v, want it there: %v", name, err, stays)
				}
			}()
		}
		if got := states(w.prune(w.options())); !slices.Equal(got, []string{"archived 1"}) {
			t.Errorf("%q", got)
		}
	})
}

// TestUsedSinceAPruneWasCutOff uses a session after a prune has fenced a part of its tree:
// the tree is kept as long as any other, and all of it resumes.
func TestUsedSinceAPruneWasCutOff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		root := w.done("agent", messages.Task{ID: "r1"})
		time.Sleep(time.Second)
		other := w.done("agent", messages.Task{ID: "r2", ForkOf: string(root)})
		time.Sleep(keep)
		w.cutOff("fence 0")
		time.Sleep(time.Second)
		w.done("agent", messages.Task{ID: "r3", Session: string(other)})
		if got := states(w.prune(w.options())); len(got) != 1 || !strings.HasPrefix(got[0], "kept 2 used ") {
			t.Fatalf("the next prune: %q", got)
		}
		w.done("agent", messages.Task{ID: "r4", Session: string(root)})
		time.Sleep(keep)
		if got := states(w.prune(w.options())); !slices.Equal(got, []string{"archived 2"}) {
			t.Errorf("later: %q", got)
		}
	})
}
