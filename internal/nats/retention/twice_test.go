package retention

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// others are prunes that come upon a tree which one has in hand.
var others = map[string]func(o *Options){
	"the same":               func(*Options) {},
	"with another directory": func(o *Options) { o.Dir = filepath.Join(o.Dir, "other") },
	"that lifts fences":      func(o *Options) { o.Keep = func(session.Tenant) (time.Duration, bool) { return 0, false } },
	"that archives nothing":  func(o *Options) { o.Limit = 1 },
}

// TestPruneWithinAnother has another prune begin and end at a step of one.
func TestPruneWithinAnother(t *testing.T) {
	for name, change := range others {
		for _, step := range []string{"fence 0", "fence 2", "write", "archive", "purge 2"} {
			t.Run(strings.ReplaceAll(name+" at "+step, " ", "-"), func(t *testing.T) {
				twice(t, func(w *world, prune func(*Options)) {
					o, other := w.options(), w.options()
					change(other)
					o.after = func(at string) error {
						if at == step {
							prune(other)
						}
						return nil
					}
					prune(o)
				})
			})
		}
	}
}

// TestPrunesAtOnce runs two prunes of the same tree concurrently, for an untouched tree and
// for one with the fences of another prune.
func TestPrunesAtOnce(t *testing.T) {
	for name, change := range others {
		for _, left := range []string{"", "fence 0", "fence 2", "archive", "purge 2"} {
			t.Run(strings.ReplaceAll(strings.TrimSpace(name+" "+left), " ", "-"), func(t *testing.T) {
				twice(t, func(w *world, prune func(*Options)) {
					if left != "" {
						w.cutOff(left)
					}
					var both sync.WaitGroup
					other := w.options()
					change(other)
					both.Go(func() { prune(other) })
					both.Go(func() { prune(w.options()) })
					both.Wait()
				})
			})
		}
	}
}

// twice makes a tree that is due, prunes it more than once, and demands that it is
// complete: either in the logs, or in an archive that the tombstones name. A further prune
// finishes the work, and a restore brings the tree back.
func twice(t *testing.T, do func(w *world, prune func(*Options))) {
	inWorld(t, func(t *testing.T, w *world) {
		root := w.done("tree", messages.Task{ID: "r1"})
		before := must.Get(w.texts(root))(t)
		time.Sleep(keep)
		do(w, func(o *Options) {
			out, err := Prune(t.Context(), w.op, o)
			if err != nil {
				t.Errorf("prune: %v", err)
			}
			for _, one := range out {
				if one.State == Fenced || one.State == Archived && one.File == "" {
					t.Errorf("it is told as %q, %q", states(out), one.File)
				}
			}
		})
		doc := w.whole(root)
		w.audited()
		if out := w.prune(w.options()); doc == nil && (len(out) != 1 || out[0].State != Archived) || doc != nil && len(out) != 0 {
			t.Fatalf("the next prune: %q", states(out))
		}
		if doc = w.whole(root); doc == nil {
			t.Fatal("it is not archived")
		}
		must.Get(bring(t.Context(), w.conn, doc, "ana"))(t)
		if now, err := w.texts(root); err != nil || now != before {
			t.Errorf("brought back: %q, want %q: %v", now, before, err)
		}
		w.audited()
	})
}

// whole demands that all of a tree is stored or all of it is purged, and returns
// its archive in the second case: the file that each tombstone names.
func (w *world) whole(root session.ID) []byte {
	w.t.Helper()
	tree := w.treeOf(root)
	_, purged := marks(&tree)
	switch purged {
	case 0:
		return nil
	case len(tree.Sessions):
	default:
		w.t.Fatalf("%d of %d sessions are purged", purged, len(tree.Sessions))
	}
	heads := map[session.ID]session.Hash{}
	for _, s := range tree.Sessions {
		heads[s.ID] = s.At.Hash
	}
	for _, dir := range []string{w.dir, filepath.Join(w.dir, "other")} {
		doc, err := os.ReadFile(filepath.Join(dir, tree.Sessions[0].Archived.File))
		if err != nil {
			continue
		}
		must.Pair(dossier.VerifyTree(doc, &dossier.VerifyOptions{Heads: heads}))(w.t)
		for _, s := range tree.Sessions {
			if s.Archived.File != tree.Sessions[0].Archived.File {
				w.t.Errorf("the tombstone of %s names %s, that of %s %s", s.ID, s.Archived.File, root, tree.Sessions[0].Archived.File)
			}
		}
		return doc
	}
	w.t.Fatalf("there is no file %s, which the tombstones name", tree.Sessions[0].Archived.File)
	return nil
}

// purgedFirst is a log that a prune purges after another prune has read it to resume the
// session.
type purgedFirst struct {
	commitlog.Log
	purge func()
}

func (l purgedFirst) Append(ctx context.Context, at commitlog.Position, c commitlog.Commit) (commitlog.Position, error) {
	l.purge()
	return l.Log.Append(ctx, at, c)
}

// TestLiftedTooLate has a prune resume a session at the moment in which another one purges
// it. The session stays archived, and can be restored completely.
func TestLiftedTooLate(t *testing.T) {
	twice(t, func(w *world, prune func(*Options)) {
		w.cutOff("archive")
		trees := must.Get(w.op.Archive.Trees(w.t.Context(), ""))(w.t)
		last := trees[0].Sessions[len(trees[0].Sessions)-1]
		log := purgedFirst{w.op.Logs.Log(), func() {
			must.Report(w.t, w.op.Archive.Purge(w.t.Context(), key(last.ID), last.At))
		}}
		store := journal.NewStore(log, &journal.StoreOptions{Incarnation: "operator"})
		must.Do(w.t, store.Apply(w.t.Context(), journal.Signal{To: key(last.ID), Restore: &commitlog.Restoration{By: "ana", Reason: "kept"}}))
		w.audited()
		prune(w.options())
	})
}
