package workspace_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/workspace"
)

// TestTrackedComesIn: files that git tracks are imported although a .gitignore excludes
// them, and exported again. All other excluded files stay out, and so do all that a
// .rathignore excludes.
func TestTrackedComesIn(t *testing.T) {
	b, dir := blob.NewMemory(), t.TempDir()
	write(t, dir, map[string]string{
		".gitignore": "dist/\n*.log\nmy key\n", "sub/.gitignore": "gen\n*.js\n", ".rathignore": "secret\n",
		"dist/lib.js": "1", "dist/deep/a b[1].js": "2", "dist/other.js": "x", "dist/deep/other": "x", "a.log": "3", "b.log": "x", "my key": "4",
		"sub/gen/x": "5", "sub/gen/y": "x", "sub/z.js": "6", "secret/s": "x", "main": "7",
	})
	tracked := []string{"main", "dist/lib.js", "dist/deep/a b[1].js", "a.log", "my key", "sub/gen/x", "sub/z.js", "secret/s", "gone/f"}
	in, err := workspace.Import(t.Context(), b, dir, &workspace.ImportOptions{Tracked: tracked})
	must.Do(t, err)
	want := strings.Fields(".gitignore .rathignore a.log dist dist/deep dist/lib.js main sub sub/.gitignore sub/gen sub/gen/x sub/z.js")
	want = append(want, "dist/deep/a b[1].js", "my key")
	slices.Sort(want)
	if diff := cmp.Diff(want, keys(modelOf(t, restore(t, b, in.Head)))); diff != "" {
		t.Errorf("came in (-want +got)\n%s", diff)
	}
	var out []string
	for _, l := range in.LeftOut {
		out = append(out, l.Path)
	}
	if diff := cmp.Diff([]string{"b.log", "dist/deep/other", "dist/other.js", "secret/", "sub/gen/y"}, out); diff != "" {
		t.Errorf("left out (-want +got)\n%s", diff)
	}
	copied := restore(t, b, in.Head)
	write(t, copied, map[string]string{"dist/lib.js": "new", "dist/new.js": "planted", "sub/gen/z": "planted", "c.log": "planted"})
	plan, err := workspace.NewPlan(t.Context(), b, in.Head, snapshot(t, b, copied, in.Head), nil)
	if err != nil || !slices.Equal(plan.Paths, []string{"dist/lib.js"}) {
		t.Errorf("goes out: %q, %v", plan.Paths, err)
	}
}

// TestNamesThatAreBytes imports, changes and exports a file whose name is not UTF-8.
func TestNamesThatAreBytes(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		return // their names are text
	}
	b, dir := blob.NewMemory(), t.TempDir()
	write(t, dir, map[string]string{"caf\xe9.txt": "1", "d\xff/\xfe\xe9": "2", "ok": "3", "caf\u00e9.txt": "4", "caf\uefe9.txt": "5", "out\xe9/x": "6", ".rathignore": "out*\n", "no\xe9": "7", "sub/.gitignore": "no\xe9\n", "sub/no\xe9": "8"})
	must.Do(t, os.Symlink("d\xff/\xfe\xe9", filepath.Join(dir, "link")))
	in := must.Get(workspace.Import(t.Context(), b, dir, nil))(t)
	copied := restore(t, b, in.Head)
	want := modelOf(t, dir)
	for _, p := range []string{"out\xe9", "out\xe9/x", "sub/no\xe9"} {
		delete(want, p)
	}
	if diff := cmp.Diff(want, modelOf(t, copied)); diff != "" {
		t.Errorf("came in (-want +got)\n%s", diff)
	}
	write(t, copied, map[string]string{"caf\xe9.txt": "new", "d\xff/more\xfd": "added"})
	remove(t, copied, "d\xff/\xfe\xe9")
	must.Do(t, apply(t, b, in.Head, snapshot(t, b, copied, in.Head), dir, nil))
	want = modelOf(t, copied)
	got := modelOf(t, dir)
	for _, p := range []string{"out\xe9", "out\xe9/x", "sub/no\xe9"} {
		delete(got, p)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("went out (-want +got)\n%s", diff)
	}
	// No character that a file system ignores hides in such a name.
	from, to := worked(t, b, t.TempDir(), func(copied string) {
		write(t, copied, map[string]string{".g\u200cit/config": "x", ".h\u200cg/hgrc": "x"})
	})
	if plan, err := workspace.NewPlan(t.Context(), b, from, to, nil); err != nil || len(plan.Paths) > 0 {
		t.Errorf("goes out: %q, %v", plan.Paths, err)
	}
}

// TestNameTooLong: a name that no head keeps stays out of a copy, and is named.
func TestNameTooLong(t *testing.T) {
	b, dir := blob.NewMemory(), t.TempDir()
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		return // they have no such names
	}
	write(t, dir, map[string]string{strings.Repeat("\xe9", 200): "1", "ok": "2"})
	in, err := workspace.Import(t.Context(), b, dir, nil)
	if err != nil || len(in.LeftOut) != 1 || in.LeftOut[0].Why != workspace.BadName {
		t.Fatalf("%+v, %v", in.LeftOut, err)
	}
	if diff := cmp.Diff(model{"ok": "file false 2"}, modelOf(t, restore(t, b, in.Head))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
