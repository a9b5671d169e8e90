package retention

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
)

// full is a device that takes no byte.
const full = "/dev/full"

// TestDirectoryIsTriedFirst: no tree is fenced for an existing directory that accepts no
// file, even from a superuser.
func TestDirectoryIsTriedFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		root := w.done("agent", messages.Task{ID: "r1"})
		time.Sleep(keep)
		o := w.options()
		o.Dir = "/proc/self"
		o.after = func(at string) error {
			t.Errorf("came to %s", at)
			return nil
		}
		out, err := Prune(t.Context(), w.op, o)
		if _, ok := errors.AsType[*fs.PathError](err); !ok || !strings.Contains(err.Error(), o.Dir) || len(out) > 0 {
			t.Errorf("%q, %v", states(out), err)
		}
		must.Report(t, w.conn.Logs.Archived(t.Context(), key(root)))
		w.done("agent", messages.Task{ID: "r2", Session: string(root)})
	})
}

// TestDiskFull has no room for the archive of one tree of two. That tree resumes and the
// other one is archived; with room the next prune archives the first, because it was not
// used meanwhile.
func TestDiskFull(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		root := w.done("tree", messages.Task{ID: "r1"})
		time.Sleep(time.Second)
		w.done("agent", messages.Task{ID: "r2"})
		before := must.Get(w.texts(root))(t)
		time.Sleep(keep)
		o := w.options()
		o.part = "x"
		var fences atomic.Int64
		o.after = func(at string) error {
			if strings.HasPrefix(at, "fence") {
				fences.Add(1)
			}
			if at == "fence 2" { // of the larger tree
				return os.Symlink(full, filepath.Join(w.dir, w.fencedFor(root)+".x.part"))
			}
			return nil
		}
		got := states(w.prune(o))
		if fences.Load() != 4 || len(got) != 2 || !strings.HasPrefix(got[0], "failed 3") || !strings.HasSuffix(got[0], "no space left on device") || got[1] != "archived 1" {
			t.Fatalf("%d fences, %q", fences.Load(), got)
		}
		if left, _ := os.ReadDir(w.dir); len(left) != 1 || !strings.HasSuffix(left[0].Name(), ".json") {
			t.Errorf("the directory has %v", left)
		}
		if now, err := w.texts(root); err != nil || now != before {
			t.Errorf("%q, want %q: %v", now, before, err)
		}
		for _, s := range w.treeOf(root).Sessions {
			if err := w.conn.Logs.Archived(t.Context(), key(s.ID)); err != nil {
				t.Errorf("it stays fenced: %v", err)
			}
		}
		w.audited()
		if got := states(w.prune(w.options())); !slices.Equal(got, []string{"archived 3"}) {
			t.Errorf("with room: %q", got)
		}
		w.audited()
	})
}
