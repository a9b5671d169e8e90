package workspace_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/workspace"
)

// TestReadsFormerFormats restores heads of the formats 1 and 2; their successors keep the
// bytes of unchanged files at their location.
func TestReadsFormerFormats(t *testing.T) {
	for _, manifest := range []string{
		`{"format":1,"entries":[{"path":"a","kind":"file","size":5,"digest":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"},{"path":"d","kind":"dir"},{"path":"d/e","kind":"file","exec":true,"digest":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},{"path":"l","kind":"symlink","target":"d/e"}]}`,
		`{"format":2,"exclude":["*.log"],"entries":[{"path":"a","kind":"file","size":5,"digest":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"},{"path":"d","kind":"dir"},{"path":"d/e","kind":"file","exec":true,"digest":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},{"path":"l","kind":"symlink","target":"/usr"}]}`,
	} {
		b := &counting{Store: blob.NewMemory()}
		put := func(data string) blob.Digest {
			t.Helper()
			ref := must.Get(b.Put(t.Context(), strings.NewReader(data)))(t)
			return ref.Digest
		}
		put("hello")
		head := put(manifest)
		dir := restore(t, b, head)
		if got := modelOf(t, dir); len(got) != 4 {
			t.Fatalf("restored %v", got)
		}
		if again := snapshot(t, b, dir, head); again != head {
			t.Errorf("unchanged it is %s", again.Short())
		}
		write(t, dir, map[string]string{"d/new": "new"})
		before := b.puts.Load()
		next := snapshot(t, b, dir, head)
		if got := b.puts.Load() - before; got != 2 {
			t.Errorf("%d blobs for a new file, not its pack and the head", got)
		}
		if data, err := workspace.Read(t.Context(), b, next, "a"); err != nil || string(data) != "hello" {
			t.Errorf("a is %q, %v", data, err)
		}
	}
}

// TestManySnapshots: the size of a head does not grow with its predecessors, and an
// unchanged directory is not written again.
func TestManySnapshots(t *testing.T) {
	t.Parallel()
	b, dir := blob.NewMemory(), t.TempDir()
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprintf("d%d/e/%d", i%10, i)] = strings.Repeat(fmt.Sprint(i, " "), 40)
	}
	write(t, dir, files)
	head := snapshot(t, b, dir, blob.Digest{})
	r, most := rand.New(rand.NewPCG(1, 1)), 0
	for i := range 200 {
		p := fmt.Sprintf("d%d/e/%d", r.IntN(10), r.IntN(300))
		write(t, dir, map[string]string{p: fmt.Sprint("changed ", i)})
		head = snapshot(t, b, dir, head)
		tree := must.Get(manifest.Load(t.Context(), b, head))(t)
		most = max(most, len(slices.Collect(tree.Blobs())))
	}
	if most > 64+32+2 {
		t.Errorf("a head needs %d blobs", most)
	}
	if got, want := modelOf(t, restore(t, b, head)), modelOf(t, dir); len(got) != len(want) {
		t.Errorf("%d paths are restored of %d", len(got), len(want))
	}
}

// TestUnchangedDirectoryIsNotWritten: a head contains the directory of a changed file and
// its parents, and no other.
func TestUnchangedDirectoryIsNotWritten(t *testing.T) {
	b, dir := blob.NewMemory(), t.TempDir()
	write(t, dir, map[string]string{"a/b/c": "1", "x/y/z": "2"})
	first := snapshot(t, b, dir, blob.Digest{})
	write(t, dir, map[string]string{"a/b/c": "3"})
	head := text(t, b, snapshot(t, b, dir, first))
	if !strings.HasPrefix(head, `{"format":3,"heads":["`+first.String()+`"],`) || !strings.Contains(head, `{"name":"x","kind":"dir","dir":3,"head":1}`) || strings.Contains(head, `"z"`) {
		t.Error(head)
	}
	// A directory that moved is the same one.
	must.Do(t, os.Rename(filepath.Join(dir, "x"), filepath.Join(dir, "w")))
	if head := text(t, b, snapshot(t, b, dir, first)); !strings.Contains(head, `{"name":"w","kind":"dir","dir":3,"head":1}`) {
		t.Error(head)
	}
}

// zeros are a file that takes no room and is larger than a part.
func zeros(t *testing.T, p string, size int64) *os.File {
	t.Helper()
	f := must.Get(os.Create(p))(t)
	must.Do(t, f.Truncate(size))
	t.Cleanup(func() { f.Close() })
	return f
}

// TestLargeFile: a file is stored in parts, of which one that changed is stored again, and
// read and restored as a whole.
func TestLargeFile(t *testing.T) {
	b := &counting{Store: blob.NewMemory()}
	far := &asking{Store: b}
	dir := t.TempDir()
	const size = 5*(16<<20) + 3
	f := zeros(t, filepath.Join(dir, "large"), size)
	first := snapshot(t, far, dir, blob.Digest{})
	if got := b.puts.Load(); got != 5+1+1 {
		t.Errorf("%d blobs for six parts and a head", got)
	}
	must.Get(f.WriteAt([]byte("changed"), 40<<20))(t)
	before := b.puts.Load()
	head := snapshot(t, far, dir, first)
	if got := b.puts.Load() - before; got != 1+1 {
		t.Errorf("%d blobs for one part and a head", got)
	}
	restored := restore(t, far, head)
	want, err := os.ReadFile(filepath.Join(dir, "large"))
	must.Do(t, err)
	got, err := os.ReadFile(filepath.Join(restored, "large"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes are restored, %v", len(got), err)
	}
	if again := snapshot(t, far, restored, head); again != head {
		t.Errorf("unchanged it is %s", again.Short())
	}
}

// TestDefaultLimits stores and reads a workspace at the limits.
func TestDefaultLimits(t *testing.T) {
	if workspace.DefaultFiles != 200_000 || workspace.DefaultBytes != 2560<<20 {
		t.Errorf("%d files and %d bytes", workspace.DefaultFiles, workspace.DefaultBytes)
	}
	b, digest := blob.NewMemory(), blob.Sum([]byte("x"))
	entries := make([]manifest.Entry, 0, workspace.DefaultFiles)
	for i := range workspace.DefaultFiles / 200 {
		dir := fmt.Sprintf("a directory of %d/", i)
		entries = append(entries, manifest.Entry{Path: strings.TrimSuffix(dir, "/"), Kind: manifest.Dir})
		for j := range 199 {
			entries = append(entries, manifest.Entry{Path: fmt.Sprint(dir, "a file with a name of a few words ", j), Kind: manifest.File, Size: 1 << 10, Digest: digest})
		}
	}
	tree := must.Get(manifest.NewTree(entries))(t)
	head := must.Get(tree.Store(t.Context(), b))(t)
	must.Report(t, workspace.Check(t.Context(), b, head, workspace.Limits{}))
	if tree, err := manifest.Load(t.Context(), b, head); err != nil || tree.Len() != workspace.DefaultFiles {
		t.Errorf("%d entries are read: %v", tree.Len(), err)
	}
}

func text(t *testing.T, b blob.Store, d blob.Digest) string {
	t.Helper()
	rc := must.Get(b.Get(t.Context(), d))(t)
	defer rc.Close()
	data := must.Get(io.ReadAll(rc))(t)
	return string(data)
}
