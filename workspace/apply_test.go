package workspace_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/workspace"
)

// change returns two heads: the files of dir before and after f.
func change(t *testing.T, b blob.Store, files map[string]string, f func(dir string)) (from, to blob.Digest) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, files)
	from = snapshot(t, b, dir, blob.Digest{})
	f(dir)
	return from, snapshot(t, b, dir, from)
}

// apply carries a difference into a directory.
func apply(t *testing.T, b blob.Store, from, to blob.Digest, dir string, o *workspace.PlanOptions) error {
	t.Helper()
	p, err := workspace.NewPlan(t.Context(), b, from, to, o)
	if err != nil {
		return err
	}
	return p.Apply(t.Context(), dir)
}

func remove(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		must.Do(t, os.RemoveAll(filepath.Join(dir, n)))
	}
}

func TestApplyKeepsWhatIsNotItsOwn(t *testing.T) {
	b := blob.NewMemory()
	from, to := change(t, b, map[string]string{"edit": "1", "drop/f": "2", "keep": "3"}, func(dir string) {
		remove(t, dir, "drop")
		write(t, dir, map[string]string{"edit": "new", "made/deep/f": "4"})
	})
	dir := restore(t, b, from)
	write(t, dir, map[string]string{"keep": "the owner's edit", "drop/untracked": "x", "made/": "", "other": "y"})
	must.Do(t, os.Chmod(filepath.Join(dir, "edit"), 0o600))
	must.Do(t, apply(t, b, from, to, dir, nil))
	want := model{
		"edit": "file false new", "keep": "file false the owner's edit", "other": "file false y",
		"drop": "dir", "drop/untracked": "file false x",
		"made": "dir", "made/deep": "dir", "made/deep/f": "file false 4",
	}
	if diff := cmp.Diff(want, modelOf(t, dir)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if fi, err := os.Stat(filepath.Join(dir, "edit")); err != nil || fi.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("the owner's permissions became %v, %v", fi.Mode(), err)
	}
}

func TestApplyConflicts(t *testing.T) {
	b := blob.NewMemory()
	from, to := change(t, b, map[string]string{"edit": "1", "drop": "2", "turn/f": "3", "file": "4", "in/f": "5"}, func(dir string) {
		remove(t, dir, "drop", "turn", "file")
		write(t, dir, map[string]string{"edit": "new", "add": "new", "turn": "now a file", "file/f": "now a directory", "in/new": "6"})
	})
	for name, tt := range map[string]struct {
		owner func(dir string)
		want  []string
	}{
		"edited":                  {func(dir string) { write(t, dir, map[string]string{"edit": "mine"}) }, []string{"edit"}},
		"edited what goes":        {func(dir string) { write(t, dir, map[string]string{"drop": "mine"}) }, []string{"drop"}},
		"added the same name":     {func(dir string) { write(t, dir, map[string]string{"add": "mine"}) }, []string{"add"}},
		"added below what turns":  {func(dir string) { write(t, dir, map[string]string{"turn/mine": "x"}) }, []string{"turn/mine"}},
		"removed what is edited":  {func(dir string) { remove(t, dir, "edit") }, []string{"edit"}},
		"replaced by a directory": {func(dir string) { remove(t, dir, "edit"); write(t, dir, map[string]string{"edit/": ""}) }, []string{"edit"}},
		"removed the directory":   {func(dir string) { remove(t, dir, "in") }, []string{"in"}},
		"several": {
			func(dir string) { write(t, dir, map[string]string{"edit": "mine", "add": "mine", "drop": "mine"}) },
			[]string{"add", "drop", "edit"},
		},
	} {
		dir := restore(t, b, from)
		tt.owner(dir)
		before := modelOf(t, dir)
		err := apply(t, b, from, to, dir, nil)
		conflict, ok := errors.AsType[*workspace.ConflictError](err)
		if !ok {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(tt.want, conflict.Paths); diff != "" {
			t.Errorf("%s: conflicts (-want +got)\n%s", name, diff)
		}
		if diff := cmp.Diff(before, modelOf(t, dir)); diff != "" {
			t.Errorf("%s: something was changed all the same:\n%s", name, diff)
		}
	}
}

// TestApplyIsDoneAlready applies changes that the owner has made, too.
func TestApplyIsDoneAlready(t *testing.T) {
	b := blob.NewMemory()
	from, to := change(t, b, map[string]string{"a": "1", "b": "2"}, func(dir string) {
		remove(t, dir, "b")
		write(t, dir, map[string]string{"a": "new", "c": "3"})
	})
	dir := restore(t, b, from)
	remove(t, dir, "b")
	write(t, dir, map[string]string{"a": "new"})
	must.Do(t, apply(t, b, from, to, dir, nil))
	if diff := cmp.Diff(model{"a": "file false new", "c": "file false 3"}, modelOf(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// TestApplyWithoutBlobs changes no file if the new contents are missing.
func TestApplyWithoutBlobs(t *testing.T) {
	b := blob.NewMemory()
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "1", "b": "2"})
	from := snapshot(t, b, dir, blob.Digest{})
	tree := must.Get(manifest.NewTree([]manifest.Entry{file("a"), file("c")}))(t)
	to := must.Get(tree.Store(t.Context(), b))(t)
	before := modelOf(t, dir)
	if err := apply(t, b, from, to, dir, nil); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("Apply = %v", err)
	}
	if diff := cmp.Diff(before, modelOf(t, dir)); diff != "" {
		t.Errorf("something was changed:\n%s", diff)
	}
}

// TestApplyStaysInside applies through a link that the owner put in place of
// a directory.
func TestApplyStaysInside(t *testing.T) {
	b := blob.NewMemory()
	from, to := change(t, b, map[string]string{"d/f": "1"}, func(dir string) {
		write(t, dir, map[string]string{"d/f": "2", "d/g": "3"})
	})
	outside := t.TempDir()
	write(t, outside, map[string]string{"f": "1"})
	dir := restore(t, b, from)
	remove(t, dir, "d")
	must.Do(t, os.Symlink(outside, filepath.Join(dir, "d")))
	if err := apply(t, b, from, to, dir, nil); err == nil {
		t.Error("applied through a link that leads out")
	}
	if diff := cmp.Diff(model{"f": "file false 1"}, modelOf(t, outside)); diff != "" {
		t.Errorf("changed outside:\n%s", diff)
	}
}
