package workspace_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/manifest"
	"github.com/rathcluster/rath/workspace"
)

// TestReadsFormerFormats: heads of the formats 1 and 2, as they were written, are restored,
// and what follows from them leaves the bytes of their files where they are.
func TestReadsFormerFormats(t *testing.T) {
	for _, manifest := range []string{
		`{"format":1,"entries":[{"path":"a","kind":"file","size":5,"digest":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"},{"path":"d","kind":"dir"},{"path":"d/e","kind":"file","exec":true,"digest":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},{"path":"l","kind":"symlink","target":"d/e"}]}`,
		`{"format":2,"exclude":["*.log"],"entries":[{"path":"a","kind":"file","size":5,"digest":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"},{"path":"d","kind":"dir"},{"path":"d/e","kind":"file","exec":true,"digest":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},{"path":"l","kind":"symlink","target":"/usr"}]}`,
	} {
		b := &counting{Store: blob.NewMemory()}
		put := func(data string) blob.Digest {
			t.Helper()
			ref, err := b.Put(t.Context(), strings.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
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

// TestManySnapshots: what a head needs does not grow with the heads before it, and a
// directory that did not change is not written again.
func TestManySnapshots(t *testing.T) {
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
		tree, err := manifest.Load(t.Context(), b, head)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(slices.Collect(tree.Blobs())))
	}
	if most > 64+32+2 {
		t.Errorf("a head needs %d blobs", most)
	}
	if got, want := modelOf(t, restore(t, b, head)), modelOf(t, dir); len(got) != len(want) {
		t.Errorf("%d paths are restored of %d", len(got), len(want))
	}
}

// TestUnchangedDirectoryIsNotWritten: a head holds the directory of a file that changed and
// those above, and no other.
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
	if err := os.Rename(filepath.Join(dir, "x"), filepath.Join(dir, "w")); err != nil {
		t.Fatal(err)
	}
	if head := text(t, b, snapshot(t, b, dir, first)); !strings.Contains(head, `{"name":"w","kind":"dir","dir":3,"head":1}`) {
		t.Error(head)
	}
}

func text(t *testing.T, b blob.Store, d blob.Digest) string {
	t.Helper()
	rc, err := b.Get(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	data, err := io.ReadAll(rc)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
