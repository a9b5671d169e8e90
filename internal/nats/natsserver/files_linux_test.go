package natsserver

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// tree is a store whose server is the test.
type tree struct {
	t      *testing.T
	dir    string
	f      *files
	mu     sync.Mutex
	synced map[string]bool
	lie    string // is said to be missing
}

func plant(t *testing.T) *tree {
	t.Helper()
	w := &tree{t: t, dir: t.TempDir(), synced: map[string]bool{}}
	w.write("A/streams/S/meta.inf", `{"name":"S"}`)
	w.write("A/streams/S/msgs/1.blk", "one")
	w.write("A/streams/S/obs/c/o.dat", "at")
	w.write("A/streams/LOSSY/meta.inf", `{"name":"LOSSY","persist_mode":"async"}`)
	w.write("A/streams/LOSSY/msgs/1.blk", "one")
	var err error
	if w.f, err = openFiles(w.dir, w.flush); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.f.close() })
	return w
}

func (w *tree) path(name string) string { return filepath.Join(w.dir, filesDir, name) }

func (w *tree) write(name, text string) {
	w.t.Helper()
	err := os.MkdirAll(filepath.Dir(w.path(name)), 0o700)
	if err == nil {
		err = os.WriteFile(w.path(name), []byte(text), 0o600)
	}
	must.Do(w.t, err)
}

func (w *tree) rename(from, to string) {
	w.t.Helper()
	must.Do(w.t, os.Rename(w.path(from), w.path(to)))
}

func (w *tree) flush(path string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	name := strings.TrimPrefix(strings.TrimPrefix(path, w.path("")), "/")
	if w.lie != "" && name == w.lie {
		return fs.ErrNotExist
	}
	w.synced[name] = true
	return nil
}

// expect syncs, and wants these files and directories synced, and of the rest none.
func (w *tree) expect(what string, names ...string) {
	w.t.Helper()
	w.synced = map[string]bool{}
	if err := w.f.sync(); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	if got := slices.Sorted(maps.Keys(w.synced)); !slices.Equal(got, names) {
		w.t.Errorf("%s: synced %q, want %q", what, got, names)
	}
}

// TestFiles: files that a server wrote are synced, once, with the directories of new ones.
func TestFiles(t *testing.T) {
	w := plant(t)
	if err := w.f.sync(); err != nil || !w.synced["A/streams/S/msgs/1.blk"] || !w.synced["A/streams/S/obs/c/o.dat"] || !w.synced["A/streams/S/msgs"] {
		t.Errorf("at the start: synced %v, error %v", w.synced, err)
	}
	if w.synced["A/streams/LOSSY/msgs/1.blk"] {
		t.Error("a stream that may be lost was waited for")
	}
	w.expect("nothing")
	w.write("A/streams/S/msgs/1.blk", "one two")
	w.write("A/streams/S/obs/c/o.dat", "at two") // where a consumer stands
	w.write("A/streams/LOSSY/msgs/1.blk", "one two")
	w.expect("a message", "A/streams/S/msgs/1.blk")
	w.expect("nothing more")
	w.write("A/streams/S/msgs/1.blk", "one two three")
	w.write("A/streams/S/msgs/2.blk", "four")
	w.expect("a new block", "A/streams/S/msgs", "A/streams/S/msgs/1.blk", "A/streams/S/msgs/2.blk")
	w.write("A/streams/S/msgs/1.blk.tmp", "1-3")
	w.expect("a block being rewritten")
	w.rename("A/streams/S/msgs/1.blk.tmp", "A/streams/S/msgs/1.blk")
	w.expect("a block rewritten", "A/streams/S/msgs", "A/streams/S/msgs/1.blk")
	w.write("A/streams/S/msgs/2.blk", "four five")
	must.Do(t, os.Remove(w.path("A/streams/S/msgs/2.blk")))
	w.expect("a block removed", "A/streams/S/msgs")
	w.write("B/streams/T/msgs/1.blk", "six")
	w.write("B/streams/T/meta.inf", `{"name":"T"}`)
	w.expect("a new account", "", "B", "B/streams", "B/streams/T", "B/streams/T/meta.inf", "B/streams/T/msgs", "B/streams/T/msgs/1.blk")
	w.write("B/streams/T/msgs/1.blk", "six seven")
	w.expect("a message there", "B/streams/T/msgs/1.blk")
	w.write("B/streams/U/msgs/1.blk", "eight")
	w.expect("a stream that does not say yet what it is", "B/streams", "B/streams/U", "B/streams/U/msgs", "B/streams/U/msgs/1.blk")
	w.write("B/streams/U/meta.inf.tmp", `{"persist_mode":"async"}`)
	w.rename("B/streams/U/meta.inf.tmp", "B/streams/U/meta.inf")
	w.expect("now it does", "B/streams/U", "B/streams/U/meta.inf")
	w.write("B/streams/U/msgs/1.blk", "eight nine")
	w.expect("a message there")
	w.rename("A/streams/S/msgs", "A/streams/S/__msgs__")
	w.write("A/streams/S/msgs/3.blk", "ten")
	if err := w.f.sync(); err != nil || !w.synced["A/streams/S/msgs/3.blk"] {
		t.Errorf("a purge: synced %v, error %v", w.synced, err)
	}
	w.write("A/streams/S/msgs/3.blk", "ten eleven")
	w.expect("a message after it", "A/streams/S/msgs/3.blk")
}

// TestFilesForgotten: after an overflow of the kernel's events, everything is synced.
func TestFilesForgotten(t *testing.T) {
	w := plant(t)
	w.expectAll("at the start")
	w.expect("nothing")
	must.Do(t, w.f.note(-1, unix.IN_Q_OVERFLOW, ""))
	w.expectAll("events were lost")
	w.f.suspect()
	w.expectAll("the server starts again")
}

func (w *tree) expectAll(what string) {
	w.t.Helper()
	w.synced = map[string]bool{}
	if err := w.f.sync(); err != nil || !w.synced["A/streams/S/msgs/1.blk"] || !w.synced["A/streams/S/meta.inf"] {
		w.t.Errorf("%s: synced %v, error %v", what, w.synced, err)
	}
}

// TestFileMissing: a file that cannot be found fails loudly.
func TestFileMissing(t *testing.T) {
	w := plant(t)
	w.expectAll("at the start")
	w.lie = "A/streams/S/msgs/1.blk"
	w.write(w.lie, "one two")
	if err := w.f.sync(); err == nil || !strings.Contains(err.Error(), "has not removed it") {
		t.Errorf("error %v", err)
	}
}

// TestKnownRelease fails with a nats-server whose files have not been examined: read how it
// stores them (msgs, obs, meta.inf, its renames), run the power cuts in e2e, and then name
// it.
func TestKnownRelease(t *testing.T) {
	if err := unknown("/proc"); err == nil || !strings.Contains(err.Error(), "lies on proc") {
		t.Errorf("error %v, want one about the file system and not about the release", err)
	}
}
