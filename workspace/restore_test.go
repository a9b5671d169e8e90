package workspace_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/workspace"
)

func TestRestoreNeedsAnEmptyDirectory(t *testing.T) {
	b := blob.NewMemory()
	dir := t.TempDir()
	write(t, dir, map[string]string{"f": "x"})
	head := snapshot(t, b, dir, blob.Digest{})
	err := workspace.Restore(t.Context(), b, head, dir)
	if !errors.Is(err, workspace.ErrNotEmpty) || !strings.Contains(err.Error(), dir) {
		t.Errorf("into a full directory: %v", err)
	}
	empty := t.TempDir()
	if err := workspace.Restore(t.Context(), b, head, empty); err != nil {
		t.Errorf("into an empty directory: %v", err)
	}
	if err := workspace.Restore(t.Context(), b, head, filepath.Join(t.TempDir(), "a", "b")); err != nil {
		t.Errorf("into an absent directory: %v", err)
	}
	if err := workspace.Restore(t.Context(), b, head, filepath.Join(dir, "f")); err == nil {
		t.Error("into a file")
	}
	if err := workspace.Restore(t.Context(), b, blob.Digest{}, filepath.Join(t.TempDir(), "none")); err != nil {
		t.Errorf("the empty tree: %v", err)
	}
}

// TestFailedRestoreLeavesNothing restores trees whose blobs are missing or differ in length
// from the manifest.
func TestFailedRestoreLeavesNothing(t *testing.T) {
	b := blob.NewMemory()
	ref := must.Get(b.Put(t.Context(), strings.NewReader("some bytes")))(t)
	good := manifest.Entry{Path: "good", Kind: manifest.File, Size: ref.Size, Digest: ref.Digest}
	for name, tt := range map[string]struct {
		bad  manifest.Entry
		want error
	}{
		"missing": {file("sub/bad"), blob.ErrNotFound},
		"longer":  {manifest.Entry{Path: "sub/bad", Kind: manifest.File, Size: ref.Size - 1, Digest: ref.Digest}, manifest.ErrMalformed},
		"shorter": {manifest.Entry{Path: "sub/bad", Kind: manifest.File, Size: ref.Size + 1, Digest: ref.Digest}, manifest.ErrMalformed},
	} {
		tree := must.Get(manifest.NewTree([]manifest.Entry{good, dirEntry("sub"), tt.bad}))(t)
		head := must.Get(tree.Store(t.Context(), b))(t)
		parent := t.TempDir()
		if err := workspace.Restore(t.Context(), b, head, filepath.Join(parent, "absent")); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), "sub/bad") {
			t.Errorf("%s: %v", name, err)
		}
		if names, err := os.ReadDir(parent); err != nil || len(names) != 0 {
			t.Errorf("%s: left behind %v, %v", name, names, err)
		}
		empty := t.TempDir()
		if err := workspace.Restore(t.Context(), b, head, empty); !errors.Is(err, tt.want) {
			t.Errorf("%s, into an empty directory: %v", name, err)
		}
		if names, err := os.ReadDir(empty); err != nil || len(names) != 0 {
			t.Errorf("%s: left in the empty directory %v, %v", name, names, err)
		}
	}
}

func TestLimits(t *testing.T) {
	b := blob.NewMemory()
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "12345", "d/b": "12345", "d/c": "1"})
	for name, tt := range map[string]struct {
		limits workspace.Limits
		what   string
	}{
		"fits":           {workspace.Limits{Files: 4, Bytes: 11}, ""},
		"too many":       {workspace.Limits{Files: 3, Bytes: 11}, "files"},
		"too many above": {workspace.Limits{Files: 1, Bytes: 11}, "files"},
		"too large":      {workspace.Limits{Files: 4, Bytes: 10}, "bytes"},
	} {
		_, err := workspace.Snapshot(t.Context(), b, dir, blob.Digest{}, tt.limits)
		limit, ok := errors.AsType[*workspace.LimitError](err)
		if tt.what == "" && err != nil || tt.what != "" && (!ok || limit.What != tt.what || limit.Path == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A sparse file of a terabyte is rejected without being read.
	f, err := os.Create(filepath.Join(dir, "sparse"))
	must.Do(t, err)
	must.Do(t, errors.Join(f.Truncate(1<<40), f.Close()))
	_, err = workspace.Snapshot(t.Context(), b, dir, blob.Digest{}, workspace.Limits{})
	if limit, ok := errors.AsType[*workspace.LimitError](err); !ok || limit.Path != "sparse" || limit.Limit != workspace.DefaultBytes {
		t.Errorf("a sparse file: %v", err)
	}
}

func TestLinksStayInside(t *testing.T) {
	parts := []string{"", ".", "..", "d", "l", "s"}
	var targets []string
	for _, a := range parts {
		for _, b := range parts {
			for _, c := range parts {
				targets = append(targets, strings.Join([]string{a, b, c}, "/"))
			}
		}
	}
	accepted := 0
	for _, target := range targets {
		if !manifest.LinkStaysInside("d/l", target) {
			continue
		}
		accepted++
		entries := []manifest.Entry{dirEntry("d"), dirEntry("d/s"), link("d/l", target), link("l", "d"), link("s", "d/s")}
		tree := must.Get(manifest.NewTree(entries))(t)
		b := blob.NewMemory()
		head := must.Get(tree.Store(t.Context(), b))(t)
		dir := must.Get(filepath.EvalSymlinks(filepath.Dir(restore(t, b, head))))(t)
		dir = filepath.Join(dir, "restored")
		if real, err := filepath.EvalSymlinks(filepath.Join(dir, "d", "l")); err == nil && real != dir && !strings.HasPrefix(real, dir+string(filepath.Separator)) {
			t.Errorf("the link to %q leads to %s, out of %s", target, real, dir)
		}
	}
	if accepted < 20 {
		t.Errorf("only %d of %d targets are accepted", accepted, len(targets))
	}
}

func TestRead(t *testing.T) {
	b := blob.NewMemory()
	dir := t.TempDir()
	write(t, dir, map[string]string{"sub/f": "content"})
	head := snapshot(t, b, dir, blob.Digest{})
	data, err := workspace.Read(t.Context(), b, head, "sub/f")
	if err != nil || string(data) != "content" {
		t.Errorf("Read = %q, %v", data, err)
	}
	if _, err := workspace.Read(t.Context(), b, head, "sub/g"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := workspace.Read(t.Context(), b, head, "sub"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory: %v", err)
	}
}
