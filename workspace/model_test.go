package workspace_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
	"github.com/rathcluster/rath/workspace"
)

// model is a directory as a naive program would describe it: path to "dir",
// "link <target>" or "file <mode> <bytes>".
type model map[string]string

// modelOf reads a directory with the plain functions of package os.
func modelOf(t *testing.T, dir string) model {
	t.Helper()
	m := make(model)
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		switch d.Type() {
		case os.ModeDir:
			m[filepath.ToSlash(rel)] = "dir"
		case os.ModeSymlink:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			m[filepath.ToSlash(rel)] = "link " + target
		default:
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fi, err := d.Info()
			if err != nil {
				return err
			}
			m[filepath.ToSlash(rel)] = fmt.Sprintf("file %v %s", fi.Mode()&0o100 != 0, data)
		}
		return nil
	})
	must.Do(t, err)
	return m
}

// mutate makes a few random changes below dir.
func mutate(t *testing.T, r *rand.Rand, dir string) {
	t.Helper()
	names := []string{"a", "b", "c", "a.b", "a-b", "ü", "x y"}
	pick := func() string {
		var p strings.Builder
		p.WriteString(names[r.IntN(len(names))])
		for r.IntN(2) == 0 {
			p.WriteString("/" + names[r.IntN(len(names))])
		}
		return p.String()
	}
	for range 1 + r.IntN(8) {
		p := filepath.Join(dir, filepath.FromSlash(pick()))
		// Changes that do not fit (a file in the way, say) are skipped.
		switch r.IntN(8) {
		case 0:
			_ = os.RemoveAll(p)
		case 1:
			_ = os.MkdirAll(p, 0o755)
		case 2:
			_ = os.MkdirAll(filepath.Dir(p), 0o755)
			_ = os.Symlink(names[r.IntN(len(names))], p)
		case 3:
			if fi, err := os.Lstat(p); err == nil && fi.Mode().IsRegular() {
				_ = os.Chmod(p, []os.FileMode{0o644, 0o755}[r.IntN(2)])
			}
		default:
			if os.MkdirAll(filepath.Dir(p), 0o755) == nil {
				if fi, err := os.Lstat(p); err != nil || fi.Mode().IsRegular() {
					text := strings.Repeat(fmt.Sprintf("line %d\n", r.IntN(5)), r.IntN(6))
					_ = os.WriteFile(p, []byte(text), 0o644)
				}
			}
		}
	}
}

// counting counts the stored blobs.
type counting struct {
	blob.Store
	puts atomic.Int64
}

func (c *counting) Put(ctx context.Context, r io.Reader) (blob.Ref, error) {
	c.puts.Add(1)
	return c.Store.Put(ctx, r)
}

// asking counts the blobs that a remote store is asked for.
type asking struct {
	blob.Store
	asked int
	lost  bool // it reports that it lacks every blob
}

func (a *asking) Missing(ctx context.Context, all []blob.Digest) ([]blob.Digest, error) {
	a.asked += len(all)
	var missing []blob.Digest
	for _, d := range all {
		rc, err := a.Get(ctx, d)
		if err != nil || a.lost {
			missing = append(missing, d)
			continue
		}
		rc.Close()
	}
	return missing, nil
}

func TestAgainstNaiveModel(t *testing.T) {
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := &counting{Store: blob.NewMemory()}
		dir := t.TempDir()
		var heads []blob.Digest
		var models []model
		base := blob.Digest{}
		for range 6 {
			mutate(t, r, dir)
			want := modelOf(t, dir)
			head := snapshot(t, b, dir, base)
			sameTree(t, fmt.Sprintf("seed %d, with a base", seed), b, head, b, snapshot(t, b, dir, blob.Digest{}))
			before := b.puts.Load()
			if again := snapshot(t, b, dir, head); again != head || b.puts.Load() != before {
				t.Fatalf("seed %d: nothing changed, but %d blobs were stored", seed, b.puts.Load()-before)
			}
			if diff := cmp.Diff(want, modelOf(t, restore(t, b, head))); diff != "" {
				t.Fatalf("seed %d: restored (-want +got):\n%s", seed, diff)
			}
			heads, models, base = append(heads, head), append(models, want), head
		}
		i, j := r.IntN(len(heads)), r.IntN(len(heads))
		checkDiff(t, b, heads[i], heads[j])
		checkApply(t, b, heads[i], heads[j], models[j])
	}
}

// sameTree fails unless two heads, each of a store, are the same files.
func sameTree(t *testing.T, where string, b blob.Store, got blob.Digest, other blob.Store, want blob.Digest) {
	t.Helper()
	load := func(b blob.Store, head blob.Digest) *manifest.Tree {
		tree, err := manifest.Load(t.Context(), b, head)
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		return tree
	}
	if changes := manifest.Compare(load(other, want), load(b, got)); len(changes) > 0 {
		t.Fatalf("%s: %s is not %s: %+v", where, got.Short(), want.Short(), changes)
	}
}

// checkDiff applies the changes to the list of entries by hand.
func checkDiff(t *testing.T, b blob.Store, from, to blob.Digest) {
	t.Helper()
	load := func(head blob.Digest) (*manifest.Tree, map[string]manifest.Entry) {
		tree := must.Get(manifest.Load(t.Context(), b, head))(t)
		m := make(map[string]manifest.Entry)
		for e := range tree.Entries() {
			m[e.Path] = e
		}
		return tree, m
	}
	before, got := load(from)
	after, want := load(to)
	for _, c := range manifest.Compare(before, after) {
		if got[c.Path] != c.Before || c.Before == c.After {
			t.Fatalf("change %+v, the tree has %+v", c, got[c.Path])
		}
		if c.Kind == manifest.Removed {
			delete(got, c.Path)
		} else {
			got[c.Path] = c.After
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the changes do not lead there:\n%s", diff)
	}
}

// checkApply carries a difference into a copy, twice.
func checkApply(t *testing.T, b blob.Store, from, to blob.Digest, want model) {
	t.Helper()
	dir := restore(t, b, from)
	for range 2 {
		must.Do(t, apply(t, b, from, to, dir, nil))
		if diff := cmp.Diff(want, modelOf(t, dir)); diff != "" {
			t.Fatalf("applied (-want +got):\n%s", diff)
		}
	}
}

func TestForksAreIndependent(t *testing.T) {
	b := blob.NewMemory()
	dir := t.TempDir()
	write(t, dir, map[string]string{"shared": "before", "sub/x": "x"})
	head := snapshot(t, b, dir, blob.Digest{})
	one, two := restore(t, b, head), restore(t, b, head)
	f := must.Get(os.OpenFile(filepath.Join(one, "shared"), os.O_WRONLY|os.O_APPEND, 0))(t)
	must.Get(f.WriteString(" and after"))(t)
	must.Do(t, f.Close())
	if got := modelOf(t, two)["shared"]; got != "file false before" {
		t.Errorf("a write in one fork shows in the other: %q", got)
	}
	if snapshot(t, b, two, head) != head || snapshot(t, b, one, head) == head {
		t.Error("the heads of the forks are wrong")
	}
}

// TestSnapshotWhileFileGrows checks that each head is whole, at any
// moment.
func TestSnapshotWhileFileGrows(t *testing.T) {
	b := blob.NewMemory()
	dir := t.TempDir()
	name := filepath.Join(dir, "log")
	write(t, dir, map[string]string{"log": "", "still": "x"})
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			stopped <- err
			return
		}
		defer f.Close()
		// Past the size that is read at once, and then cut off again.
		line := bytes.Repeat([]byte("0123456789abcdef"), 4096)
		for i := 0; ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if _, err := f.Write(line); err != nil {
				stopped <- err
				return
			}
			if i%40 == 39 {
				if err := f.Truncate(0); err != nil {
					stopped <- err
					return
				}
			}
		}
	}()
	base := blob.Digest{}
	for range 30 {
		base = snapshot(t, b, dir, base)
		data := must.Get(workspace.Read(t.Context(), b, base, "log"))(t)
		e, _ := lookup(t, b, base, "log")
		if e.Size != int64(len(data)) {
			t.Fatalf("the manifest says %d bytes, the blob has %d", e.Size, len(data))
		}
	}
	sandboxtest.End(t, "write and shorten a file while a snapshot reads it", "each head is whole")
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}

func lookup(t *testing.T, b blob.Store, head blob.Digest, p string) (manifest.Entry, bool) {
	t.Helper()
	tree := must.Get(manifest.Load(t.Context(), b, head))(t)
	return tree.Lookup(path.Clean(p))
}
