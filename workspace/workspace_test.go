package workspace_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/platform/scratch"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/workspace"
)

func TestMain(m *testing.M) {
	scratch.InMemory()
	// Parallel tests wait for the clocks of files more than they compute.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

var someDigest = blob.Sum([]byte("x"))

func file(p string) manifest.Entry {
	return manifest.Entry{Path: p, Kind: manifest.File, Size: 1, Digest: someDigest}
}

func dirEntry(p string) manifest.Entry { return manifest.Entry{Path: p, Kind: manifest.Dir} }

func link(p, target string) manifest.Entry {
	return manifest.Entry{Path: p, Kind: manifest.Symlink, Target: target}
}

// write makes files below dir; a path that ends in a slash is a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if name[len(name)-1] == '/' {
			must.Do(t, os.MkdirAll(p, 0o755))
			continue
		}
		must.Do(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must.Do(t, os.WriteFile(p, []byte(text), 0o644))
	}
}

func snapshot(t *testing.T, b blob.Store, dir string, base blob.Digest) blob.Digest {
	t.Helper()
	head := must.Get(workspace.Snapshot(t.Context(), b, dir, base, workspace.Limits{}))(t)
	return head
}

func restore(t *testing.T, b blob.Store, head blob.Digest) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "restored")
	must.Do(t, workspace.Restore(t.Context(), b, head, dir))
	return dir
}

func TestRoundTrip(t *testing.T) {
	b := blob.NewMemory()
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.txt": "a\n", "sub/b.txt": "b\n", "sub/empty": "", "void/": "", "a/b": "x", "a.b": "y"})
	head := snapshot(t, b, dir, blob.Digest{})
	copied := restore(t, b, head)
	if again := snapshot(t, b, copied, blob.Digest{}); again != head {
		t.Errorf("the restored directory has head %s, want %s", again, head)
	}
	tree := must.Get(manifest.Load(t.Context(), b, head))(t)
	var paths []string
	for e := range tree.Entries() {
		paths = append(paths, e.Path)
	}
	want := []string{"a", "a.b", "a.txt", "a/b", "sub", "sub/b.txt", "sub/empty", "void"}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
}

// TestCheck: a manifest is held to the limits by the sizes that it states.
func TestCheck(t *testing.T) {
	sized := func(p string, size int64) manifest.Entry {
		e := file(p)
		e.Size = size
		return e
	}
	for name, tt := range map[string]struct {
		entries    []manifest.Entry
		limits     workspace.Limits
		what, path string
	}{
		"empty":      {nil, workspace.Limits{}, "", ""},
		"just fits":  {[]manifest.Entry{dirEntry("a"), sized("a/b", 6), link("c", "a"), sized("d", 4)}, workspace.Limits{Files: 4, Bytes: 10}, "", ""},
		"one file":   {[]manifest.Entry{dirEntry("a"), sized("a/b", 6), link("c", "a"), sized("d", 4)}, workspace.Limits{Files: 3, Bytes: 10}, "files", "d"},
		"one byte":   {[]manifest.Entry{sized("a", 6), sized("d", 5)}, workspace.Limits{Files: 4, Bytes: 10}, "bytes", "d"},
		"defaults":   {[]manifest.Entry{sized("a", workspace.DefaultBytes), sized("b", 1)}, workspace.Limits{}, "bytes", "b"},
		"overflow":   {[]manifest.Entry{sized("a", 9), sized("b", math.MaxInt64), sized("c", math.MaxInt64)}, workspace.Limits{Bytes: 10}, "bytes", "b"},
		"long paths": {longPaths(), workspace.Limits{}, "bytes of paths and link targets", ""},
	} {
		tree, err := manifest.NewTree(tt.entries)
		must.Do(t, err)
		b := blob.NewMemory()
		head, err := tree.Store(t.Context(), b)
		must.Do(t, err)
		err = workspace.Check(t.Context(), b, head, tt.limits)
		limit, ok := errors.AsType[*workspace.LimitError](err)
		if tt.what == "" && err != nil || tt.what != "" && (!ok || limit.What != tt.what || tt.path != "" && limit.Path != tt.path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// longPaths are few entries whose paths are more than a workspace may list.
func longPaths() []manifest.Entry {
	var list []manifest.Entry
	dir := strings.Repeat("d", 255)
	for range 14 {
		list = append(list, dirEntry(dir))
		dir += "/" + strings.Repeat("d", 255)
	}
	list = append(list, dirEntry(dir))
	for i := range manifest.MaxListing / len(dir) {
		list = append(list, dirEntry(fmt.Sprintf("%s/%d", dir, i)))
	}
	return list
}
