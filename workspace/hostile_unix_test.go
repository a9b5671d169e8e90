//go:build unix

package workspace_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
	"github.com/rathcluster/rath/workspace"
)

// TestRefused puts things into a directory that no workspace can hold.
func TestRefused(t *testing.T) {
	outside := t.TempDir()
	write(t, outside, map[string]string{"canary": "secret"})
	for name, tt := range map[string]struct {
		path   string // of the rejected entry
		reason string
		make   func(p string) error
	}{
		"FIFO": {"d/x", workspace.SpecialFile, func(p string) error { return syscall.Mkfifo(p, 0o644) }},
		"hard link out": {"d/x", workspace.HardLink, func(p string) error {
			return os.Link(filepath.Join(outside, "canary"), p)
		}},
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{"a": "1", "d/f": "2", "z": "3"})
		if err := tt.make(filepath.Join(dir, "d", "x")); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, err := workspace.Snapshot(t.Context(), blob.NewMemory(), dir, blob.Digest{}, workspace.Limits{})
		refused, ok := errors.AsType[*workspace.RefusedError](err)
		if ok {
			sandboxtest.End(t, "leave to a snapshot: "+name, "refused: "+refused.Reason)
		}
		if !ok || refused.Path != tt.path || refused.Reason != tt.reason || !strings.Contains(err.Error(), tt.path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHardLinks: in a user's directory each name of a file is stored as a file.
func TestHardLinks(t *testing.T) {
	b, dir := blob.NewMemory(), t.TempDir()
	write(t, dir, map[string]string{"d/f": "1"})
	must.Do(t, os.Link(filepath.Join(dir, "d", "f"), filepath.Join(dir, "d", "x")))
	in := must.Get(workspace.Import(t.Context(), b, dir, nil))(t)
	want := model{"d": "dir", "d/f": "file false 1", "d/x": "file false 1"}
	if diff := cmp.Diff(want, modelOf(t, restore(t, b, in.Head))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestLinksOut stores and restores links as links and follows none.
func TestLinksOut(t *testing.T) {
	outside := t.TempDir()
	write(t, outside, map[string]string{"canary": "secret"})
	b, dir := blob.NewMemory(), t.TempDir()
	write(t, dir, map[string]string{"d/f": "1"})
	links := map[string]string{
		"d/absolute": outside, "root": "/", "d/out": "../../canary", "proc": "/proc/self/root", "sly": "d/../../x", "dangling": "../../nothing", "loop": "loop", "a": "z", "z": "a",
	}
	want := model{"d": "dir", "d/f": "file false 1"}
	for name, target := range links {
		must.Do(t, os.Symlink(target, filepath.Join(dir, name)))
		want[name] = "link " + target
	}
	in := must.Get(workspace.Import(t.Context(), b, dir, nil))(t)
	if head := snapshot(t, b, dir, blob.Digest{}); head != in.Head {
		t.Error("a snapshot and an import of the same files differ")
	}
	copied := restore(t, b, in.Head)
	if diff := cmp.Diff(want, modelOf(t, copied)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(model{"canary": "file false secret"}, modelOf(t, outside)); diff != "" {
		t.Errorf("changed outside:\n%s", diff)
	} else {
		sandboxtest.End(t, "leave to a snapshot: links that lead outside, loops", "kept as links, none is followed")
	}
}

// TestSparseFile leaves a file of 1 TiB that takes no room: a snapshot does not read it.
func TestSparseFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"sparse": "x"})
	must.Do(t, os.Truncate(filepath.Join(dir, "sparse"), 1<<40))
	_, err := workspace.Snapshot(t.Context(), blob.NewMemory(), dir, blob.Digest{}, workspace.Limits{})
	if _, ok := errors.AsType[*workspace.LimitError](err); !ok {
		t.Errorf("%v", err)
	}
	sandboxtest.End(t, "leave to a snapshot: a sparse file of 1 TiB", "refused before it is read: larger than a file may be")
}

// TestManyNames leaves few entries whose paths and targets are more than a manifest may hold:
// a snapshot reads no further than that.
func TestManyNames(t *testing.T) {
	dir := t.TempDir()
	deep, err := os.OpenRoot(dir)
	must.Do(t, err)
	defer deep.Close()
	below := strings.TrimSuffix(strings.Repeat(strings.Repeat("d", 255)+"/", 14), "/")
	must.Do(t, deep.MkdirAll(below, 0o755))
	if deep, err = deep.OpenRoot(below); err != nil {
		t.Fatal(err)
	}
	defer deep.Close()
	target := strings.Repeat("t", 4095)
	if runtime.GOOS == "darwin" {
		target = target[:1023] // its most
	}
	for i := range manifest.MaxListing / (len(below) + len(target)) {
		must.Do(t, deep.Symlink(target, fmt.Sprintf("l%05d", i)))
	}
	_, err = workspace.Snapshot(t.Context(), blob.NewMemory(), dir, blob.Digest{}, workspace.Limits{})
	limit, ok := errors.AsType[*workspace.LimitError](err)
	if !ok || limit.What != "bytes of paths and link targets" || limit.Limit != manifest.MaxListing || strings.Contains(err.Error(), "raise") {
		t.Errorf("%v", err)
	}
}

func TestRefusedSocketAndName(t *testing.T) {
	// The path of a socket must be short.
	dir, err := os.MkdirTemp("", "ws")
	must.Do(t, err)
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	must.Do(t, err)
	defer l.Close()
	_, err = workspace.Snapshot(t.Context(), blob.NewMemory(), dir, blob.Digest{}, workspace.Limits{})
	if refused, ok := errors.AsType[*workspace.RefusedError](err); !ok || refused.Reason != workspace.SpecialFile {
		t.Errorf("a socket: %v", err)
	} else {
		sandboxtest.End(t, "leave to a snapshot: a socket", "refused: "+refused.Reason)
	}
	if runtime.GOOS == "darwin" {
		return // its file systems reject such names themselves
	}
	dir = t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "bad\xffname"), nil, 0o644))
	b := blob.NewMemory()
	if diff := cmp.Diff(modelOf(t, dir), modelOf(t, restore(t, b, snapshot(t, b, dir, blob.Digest{})))); diff != "" {
		t.Errorf("a name that is not UTF-8 (-want +got)\n%s", diff)
	} else {
		sandboxtest.End(t, "leave to a snapshot: a name that is not UTF-8", "kept")
	}
}

// TestDeepTree has a path that is longer than the system takes at once.
func TestDeepTree(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	must.Do(t, err)
	name := strings.Repeat("d", 200)
	for range 25 {
		must.Do(t, root.Mkdir(name, 0o755))
		next := must.Get(root.OpenRoot(name))(t)
		root.Close()
		root = next
	}
	root.Close()
	_, err = workspace.Snapshot(t.Context(), blob.NewMemory(), dir, blob.Digest{}, workspace.Limits{})
	if refused, ok := errors.AsType[*workspace.RefusedError](err); !ok || refused.Reason != workspace.BadName {
		t.Errorf("%.200v", err)
	} else {
		sandboxtest.End(t, "leave to a snapshot: directories deeper than a path may be", "refused: "+refused.Reason)
	}
}

func TestModes(t *testing.T) {
	b := blob.NewMemory()
	dir := t.TempDir()
	write(t, dir, map[string]string{"run": "#!/bin/sh\n", "suid": "x", "plain": "x", "group": "x"})
	for name, mode := range map[string]os.FileMode{"run": 0o700, "suid": 0o755 | os.ModeSetuid | os.ModeSetgid, "plain": 0o600, "group": 0o654} {
		must.Do(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	copied := restore(t, b, snapshot(t, b, dir, blob.Digest{}))
	for name, exec := range map[string]bool{"run": true, "suid": true, "plain": false, "group": false} {
		fi := must.Get(os.Stat(filepath.Join(copied, name)))(t)
		if m := fi.Mode(); m&(os.ModeSetuid|os.ModeSetgid) != 0 || (m&0o100 != 0) != exec || m&0o600 != 0o600 {
			t.Errorf("%s is restored as %v", name, m)
		}
	}
	sandboxtest.End(t, "leave to a snapshot: set-user-ID bits", "left out")
}
