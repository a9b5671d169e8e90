//go:build linux || darwin

package workspace_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/workspace"
)

// settle takes snapshots until the index has this many files: until the file system's clock
// has advanced since their last change.
func settle(t testing.TB, x *workspace.Index, b blob.Store, dir string, files int) blob.Digest {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		head := must.Get(x.Snapshot(t.Context(), b, dir, blob.Digest{}, workspace.Limits{}))(t)
		if x.Known() == files {
			return head
		}
		if time.Now().After(end) {
			t.Fatalf("the index knows %d files, not %d", x.Known(), files)
		}
	}
}

// same fails unless a snapshot with the index equals one that reads all files.
func same(t *testing.T, x *workspace.Index, b blob.Store, dir string, base blob.Digest) blob.Digest {
	t.Helper()
	got := must.Get(x.Snapshot(t.Context(), b, dir, base, workspace.Limits{}))(t)
	fresh := blob.NewMemory()
	sameTree(t, "with the index", b, got, fresh, snapshot(t, fresh, dir, blob.Digest{}))
	return got
}

// TestIndexSeesHostileChange changes files and resets all metadata that a program can set.
func TestIndexSeesHostileChange(t *testing.T) {
	times := func(t *testing.T, p string) time.Time {
		fi := must.Get(os.Lstat(p))(t)
		return fi.ModTime()
	}
	for name, change := range map[string]func(t *testing.T, dir string) error{
		"the same size, and the time set back": func(t *testing.T, dir string) error {
			p := filepath.Join(dir, "a")
			was := times(t, p)
			if err := os.WriteFile(p, []byte("evil"), 0o644); err != nil {
				return err
			}
			return os.Chtimes(p, was, was)
		},
		"another file of the same size and time under the path": func(t *testing.T, dir string) error {
			p, other := filepath.Join(dir, "a"), filepath.Join(dir, "new")
			was := times(t, p)
			if err := os.WriteFile(other, []byte("evil"), 0o644); err != nil {
				return err
			}
			if err := os.Chtimes(other, was, was); err != nil {
				return err
			}
			return os.Rename(other, p)
		},
		"two files of the same size and time exchanged": func(t *testing.T, dir string) error {
			a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
			for _, pair := range [][2]string{{a, c}, {b, a}, {c, b}} {
				if err := os.Rename(pair[0], pair[1]); err != nil {
					return err
				}
			}
			return nil
		},
		"removed and made again": func(t *testing.T, dir string) error {
			p := filepath.Join(dir, "a")
			was := times(t, p)
			if err := os.Remove(p); err != nil {
				return err
			}
			if err := os.WriteFile(p, []byte("evil"), 0o644); err != nil {
				return err
			}
			return os.Chtimes(p, was, was)
		},
		"a directory exchanged for another": func(t *testing.T, dir string) error {
			if err := os.Rename(filepath.Join(dir, "d"), filepath.Join(dir, "x")); err != nil {
				return err
			}
			if err := os.Rename(filepath.Join(dir, "e"), filepath.Join(dir, "d")); err != nil {
				return err
			}
			return os.Rename(filepath.Join(dir, "x"), filepath.Join(dir, "e"))
		},
		"made executable": func(t *testing.T, dir string) error { return os.Chmod(filepath.Join(dir, "a"), 0o755) },
		"made a link": func(t *testing.T, dir string) error {
			if err := os.Remove(filepath.Join(dir, "a")); err != nil {
				return err
			}
			return os.Symlink("good", filepath.Join(dir, "a"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, dir, x := blob.NewMemory(), t.TempDir(), new(workspace.Index)
			write(t, dir, map[string]string{"a": "good", "b": "well", "d/f": "1", "e/f": "2"})
			for _, p := range []string{"a", "b", "d/f", "e/f"} {
				must.Do(t, os.Chtimes(filepath.Join(dir, p), time.Unix(1e9, 0), time.Unix(1e9, 0)))
			}
			head := settle(t, x, b, dir, 4)
			must.Do(t, change(t, dir))
			if now := same(t, x, b, dir, head); now == head {
				t.Error("the change is not in the head")
			}
		})
	}
}

// TestSettled: times that the clock of a file system may show twice are not trusted.
func TestSettled(t *testing.T) {
	began := time.Unix(1_700_000_000, 500_000_000)
	for _, tt := range []struct {
		mtime, ctime time.Duration // before the walk began
		want         bool
	}{
		{time.Hour, time.Second, true},
		{time.Hour, 60 * time.Millisecond, true},
		{time.Hour, 40 * time.Millisecond, false},
		{time.Hour, 0, false},
		{time.Hour, -time.Hour, false},
		{10 * time.Millisecond, time.Second, false},
		{-time.Hour, time.Hour, false},
		{time.Hour, 1500 * time.Millisecond, false}, // whole seconds: there are no fractions
		{time.Hour, 2500 * time.Millisecond, true},
	} {
		if got := workspace.Settled(began.Add(-tt.mtime), began.Add(-tt.ctime), began); got != tt.want {
			t.Errorf("modified %v and changed %v before: %v", tt.mtime, tt.ctime, got)
		}
	}
}

// TestIndexOfRacyFile writes a file again and again right after it was read, always of
// the same size and time.
func TestIndexOfRacyFile(t *testing.T) {
	b, dir, x := blob.NewMemory(), t.TempDir(), new(workspace.Index)
	p, at := filepath.Join(dir, "a"), time.Unix(1e9, 0)
	for i := range 150 {
		must.Do(t, os.WriteFile(p, fmt.Appendf(nil, "%08d", i), 0o644))
		must.Do(t, os.Chtimes(p, at, at))
		same(t, x, b, dir, blob.Digest{})
	}
}

// TestIndexIsUsed: an unchanged file is not read again, after a snapshot and after a
// restore; a file with a second name is still an error.
func TestIndexIsUsed(t *testing.T) {
	b, dir, x := blob.NewMemory(), t.TempDir(), new(workspace.Index)
	large := strings.Repeat("2", 2<<20)
	write(t, dir, map[string]string{"a": "1", "b": "2", "large": large})
	head := settle(t, x, b, dir, 3)
	x.Forge("a", blob.Sum([]byte("2")))
	forged := must.Get(x.Snapshot(t.Context(), b, dir, head, workspace.Limits{}))(t)
	if data, err := workspace.Read(t.Context(), b, forged, "a"); err != nil || string(data) != "2" {
		t.Errorf("the file was read although nothing touched it: %q, %v", data, err)
	}
	must.Do(t, os.Link(filepath.Join(dir, "b"), filepath.Join(dir, "c")))
	if _, err := x.Snapshot(t.Context(), b, dir, head, workspace.Limits{}); err == nil {
		t.Error("a file with a second name was taken")
	}

	restored := filepath.Join(t.TempDir(), "restored")
	must.Do(t, x.Restore(t.Context(), slow{b, blob.Sum([]byte(large))}, head, restored))
	if x.Known() == 0 {
		t.Error("nothing is known of what was restored a while ago")
	}
	write(t, restored, map[string]string{"a": "9"})
	same(t, x, b, restored, head)
}

// slow returns one blob only after the file system's clock has advanced.
type slow struct {
	blob.Store
	blob blob.Digest
}

func (s slow) Get(ctx context.Context, d blob.Digest) (io.ReadCloser, error) {
	if d == s.blob {
		time.Sleep(100 * time.Millisecond)
	}
	return s.Store.Get(ctx, d)
}

// TestIndexAgainstNaiveModel makes random changes, also such as hide themselves, and
// compares with a reader of all files, for snapshots and imports alike.
func TestIndexAgainstNaiveModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 2))
			dir, cache := t.TempDir(), t.TempDir()
			b, far := blob.NewMemory(), &asking{Store: blob.NewMemory()}
			x, base := new(workspace.Index), blob.Digest{}
			for step := range 12 {
				mutate(t, r, dir)
				hide(t, r, dir)
				if r.IntN(3) == 0 {
					time.Sleep(60 * time.Millisecond) // so that the index records a file
				}
				if r.IntN(8) == 0 {
					far.Store = blob.NewMemory() // another store, or this one was emptied
				}
				base = same(t, x, b, dir, base)
				if diff := modelOf(t, restore(t, b, base)); len(diff) != len(modelOf(t, dir)) {
					t.Fatalf("seed %d, step %d: %d paths restored", seed, step, len(diff))
				}
				head, fresh := importWith(t, far, cache, dir), blob.NewMemory()
				sameTree(t, fmt.Sprintf("seed %d, step %d, imported", seed, step), far, head, fresh, snapshot(t, fresh, dir, blob.Digest{}))
				restore(t, far, head) // all of it is there
			}
		})
	}
}

// hide makes a few changes that look like none.
func hide(t *testing.T, r *rand.Rand, dir string) {
	t.Helper()
	var files []string
	must.Do(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, p)
		}
		return err
	}))
	if len(files) == 0 {
		return
	}
	pick := func() string { return files[r.IntN(len(files))] }
	for range r.IntN(4) {
		p := pick()
		fi, err := os.Lstat(p)
		if err != nil {
			continue // a rename took it
		}
		switch r.IntN(4) {
		case 0:
			_ = os.Rename(p, pick())
		case 1:
			_ = os.Chtimes(p, time.Unix(1e9, 0), time.Unix(1e9, 0))
		default:
			data := bytes.Repeat([]byte{byte('a' + r.IntN(26))}, int(fi.Size()))
			must.Do(t, os.WriteFile(p, data, 0o644))
			_ = os.Chtimes(p, fi.ModTime(), fi.ModTime())
		}
	}
}

// importWith imports a directory as the command line does.
func importWith(t *testing.T, b blob.Store, cache, dir string) blob.Digest {
	t.Helper()
	in := must.Get(workspace.Import(t.Context(), b, dir, &workspace.ImportOptions{Cache: cache, Store: "there"}))(t)
	return in.Head
}

// TestImportMade does not produce again a directory that the store has; another key, or a
// store that lost it, calls produce again.
func TestImportMade(t *testing.T) {
	dir, cache, made := t.TempDir(), t.TempDir(), t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(made, "pack"), []byte("objects"), 0o600))
	n := 0
	get := func(b blob.Store, key string) blob.Digest {
		t.Helper()
		head, err := workspace.ImportMade(t.Context(), b, dir, &workspace.ImportOptions{Cache: cache, Store: "there"}, key, func() (string, error) {
			n++
			return made, nil
		})
		must.Do(t, err)
		data, err := workspace.Read(t.Context(), b, head, "pack")
		if err != nil || string(data) != "objects" {
			t.Errorf("the store has %q, %v", data, err)
		}
		return head
	}
	b := blob.NewMemory()
	files := importWith(t, b, cache, dir)
	first := get(b, "one commit")
	for i, key := range []string{"one commit", "another commit", "another commit"} {
		if head, want := get(b, key), min(i+1, 2); head != first || n != want {
			t.Errorf("%s is head %s, and %s at first; made %d times, want %d", key, head, first, n, want)
		}
	}
	if importWith(t, b, cache, dir) != files {
		t.Error("the files have another head now")
	}
	if get(blob.NewMemory(), "one commit"); n != 3 {
		t.Errorf("a store that lost it: made %d times", n)
	}
}

// TestImportAsksForWhatChanged asks a store for the blobs of the last head and for new
// packs, not for files, and stores missing blobs again.
func TestImportAsksForWhatChanged(t *testing.T) {
	const files = 300
	first := &counting{Store: blob.NewMemory()}
	far := &asking{Store: first}
	dir, cache := t.TempDir(), t.TempDir()
	for i := range files {
		write(t, dir, map[string]string{fmt.Sprintf("%03d", i): fmt.Sprint(i)})
	}
	settle(t, new(workspace.Index), blob.NewMemory(), dir, files)
	asks := func(want int, puts int64, why string) blob.Digest {
		t.Helper()
		far.asked = 0
		before := first.puts.Load()
		head := importWith(t, far, cache, dir)
		if got := first.puts.Load() - before; far.asked != want || got != puts {
			t.Errorf("%s: asked for %d blobs and put %d, not %d and %d", why, far.asked, got, want, puts)
		}
		restore(t, far, head)
		return head
	}
	asks(1, 2, "the first import")
	asks(2, 0, "nothing changed")
	write(t, dir, map[string]string{"007": "bond"})
	asks(2+1, 2, "one file changed")
	settle(t, new(workspace.Index), blob.NewMemory(), dir, files)
	far.Store = blob.NewMemory()
	asks(1, 0, "another store")
	far.Store = first // it lacks the recorded head
	asks(1, 2, "the first store again")
	far.lost = true
	asks(2+1, 2, "the packs are gone")
}

// TestIndexFile ignores damaged, foreign and newer index files.
func TestIndexFile(t *testing.T) {
	b, dir, cache := blob.NewMemory(), t.TempDir(), filepath.Join(t.TempDir(), "rath", "index")
	write(t, dir, map[string]string{"a": "1", "d/b": "2"})
	settle(t, new(workspace.Index), b, dir, 2)
	importWith(t, b, cache, dir)
	names, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%v, %v", names, err)
	}
	fi, err := os.Lstat(names[0])
	if err != nil || fi.Mode() != 0o600 {
		t.Fatalf("%v, %v", fi.Mode(), err)
	}
	known := func() int { return workspace.LoadIndex(cache, dir).Known() }
	if known() != 2 {
		t.Fatalf("%d files are known", known())
	}
	data, err := os.ReadFile(names[0])
	must.Do(t, err)
	spoiled := map[string][]byte{"empty": nil, "newer": reSum(bytes.Replace(data, []byte("index 2"), []byte("index 3"), 1))}
	for i := range data {
		spoiled[fmt.Sprint("cut at ", i)] = data[:i]
		flipped := bytes.Clone(data)
		flipped[i] ^= 1
		spoiled[fmt.Sprint("flipped at ", i)] = flipped
	}
	for name, bad := range spoiled {
		must.Do(t, os.WriteFile(names[0], bad, 0o600))
		if known() != 0 {
			t.Errorf("%s: an index is read", name)
		}
	}
	sameTree(t, "after damage", b, importWith(t, b, cache, dir), b, snapshot(t, b, dir, blob.Digest{}))
	if known() != 2 {
		t.Errorf("after damage %d files are known", known())
	}
	if workspace.Decode(dir+"/other", data).Known() != 0 {
		t.Error("the index of another directory is read")
	}
	// A link is not followed, and a folder that cannot be made is no error.
	must.Do(t, os.Rename(names[0], filepath.Join(cache, "real")))
	must.Do(t, os.Symlink("real", names[0]))
	if known() != 0 {
		t.Error("a link is followed")
	}
	importWith(t, b, filepath.Join(dir, "a", "below a file"), dir)
}

// reSum sets the digest at the end to the digest of the preceding bytes.
func reSum(data []byte) []byte {
	body := data[:len(data)-sha256.Size]
	sum := sha256.Sum256(body)
	return append(bytes.Clone(body), sum[:]...)
}

// TestIndexesAreBounded: the folder keeps the most recently written indexes.
func TestIndexesAreBounded(t *testing.T) {
	b, cache := blob.NewMemory(), t.TempDir()
	for range 80 {
		dir := t.TempDir()
		write(t, dir, map[string]string{"a": "1"})
		importWith(t, b, cache, dir)
	}
	names, err := os.ReadDir(cache)
	if err != nil || len(names) != 64 {
		t.Errorf("%d indexes are kept, %v", len(names), err)
	}
}

func FuzzIndexFile(f *testing.F) {
	b, dir, x := blob.NewMemory(), f.TempDir(), new(workspace.Index)
	must.Do(f, os.WriteFile(filepath.Join(dir, "a"), []byte("1"), 0o644))
	settle(f, x, b, dir, 1)
	whole := x.Encode()
	f.Add(whole[:len(whole)-sha256.Size])
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := sha256.Sum256(body)
		data := append(bytes.Clone(body), sum[:]...)
		// Decoding and encoding preserve the index.
		if x := workspace.Decode("", data); x.Known() > 0 {
			if again := workspace.Decode("", x.Encode()); !bytes.Equal(again.Encode(), x.Encode()) {
				t.Error("an index is not what it was")
			}
		}
	})
}

// BenchmarkSnapshotUnchanged takes a snapshot of 5,000 unchanged files and compares the
// time with a bare walk that stats each, both at their best. It fails if the ratio exceeds
// the bar.
func BenchmarkSnapshotUnchanged(b *testing.B) {
	const (
		files = 5000
		bar   = 3.0
	)
	dir, blobs, x := b.TempDir(), blob.NewMemory(), new(workspace.Index)
	for i := range files {
		p := filepath.Join(dir, fmt.Sprintf("d%02d", i%50), fmt.Sprintf("%04d.txt", i))
		must.Do(b, os.MkdirAll(filepath.Dir(p), 0o755))
		must.Do(b, os.WriteFile(p, bytes.Repeat([]byte{byte(i)}, 10<<10), 0o644))
	}
	head := settle(b, x, blobs, dir, files)
	best := func(least time.Duration, do func()) time.Duration {
		began := time.Now()
		do()
		return min(least, time.Since(began))
	}
	walk, snap := time.Hour, time.Hour
	for b.Loop() {
		walk = best(walk, func() {
			must.Do(b, filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
				if err == nil {
					_, err = os.Lstat(p)
				}
				return err
			}))
		})
		snap = best(snap, func() {
			now, err := x.Snapshot(b.Context(), blobs, dir, head, workspace.Limits{})
			if err != nil || now != head {
				b.Fatalf("%s, %v", now.Short(), err)
			}
		})
	}
	b.ReportMetric(float64(walk.Microseconds())/1000, "ms-walk")
	b.ReportMetric(snap.Seconds()/walk.Seconds(), "x-walk")
	b.ReportMetric(bar, "x-walk-bar")
	if b.N > 5 && snap.Seconds() > bar*walk.Seconds() {
		b.Errorf("a snapshot of %d files that did not change takes %v, a walk %v: bar %.0f times", files, snap, walk, bar)
	}
}
