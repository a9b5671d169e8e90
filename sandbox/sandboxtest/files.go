package sandboxtest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

func testFiles(t *testing.T, s *suite) {
	b := s.open(t)
	binary := "\x00\xff\r\n" + strings.Repeat("x", 100_000)
	for _, name := range []string{"a.txt", "deep/er/and/deeper.txt", "name with blanks", "ünïcode-名.txt", "-dash", "a\nb"} {
		b.write(name, binary)
		if b.read(name) != binary {
			t.Errorf("%q came back differently", name)
		}
		b.write(name, "")
		if got := b.read(name); got != "" {
			t.Errorf("%q replaced by nothing holds %q", name, got)
		}
	}
	e, err := b.Files().Stat(t.Context(), "deep/er")
	if diff := cmp.Diff(sandbox.Entry{Name: "er", Path: "deep/er", Dir: true}, e); err != nil || diff != "" {
		t.Errorf("Stat: %v\n%s", err, diff)
	}
	fi, err := os.Stat(filepath.Join(b.dir, "a.txt"))
	if err != nil || fi.Mode().Perm() != 0o644 {
		t.Errorf("mode of a created file: %v, %v", fi.Mode(), err)
	}
}

func testFilesAndExec(t *testing.T, s *suite) {
	b := s.open(t)
	b.write("sub/in.txt", "from the host\n")
	b.want(b.sh("cat sub/in.txt && printf from-the-command > sub/out.txt"), sandbox.Exited, 0, "from the host\n")
	if got := b.read("sub/out.txt"); got != "from-the-command" {
		t.Errorf("read %q", got)
	}
	b.write("tool.sh", "#!/bin/sh\necho $1\n")
	b.want(b.sh("chmod +x tool.sh && ./tool.sh ran"), sandbox.Exited, 0, "ran\n")
}

func testReplace(t *testing.T, s *suite) {
	b := s.open(t)
	b.write("f", "old")
	w, err := b.Files().Create(t.Context(), "f")
	must.Do(t, err)
	must.Get(io.WriteString(w, "new"))(t)
	if got := b.read("f"); got != "old" {
		t.Errorf("before Close a reader sees %q", got)
	}
	must.Do(t, w.Close())
	if got := b.read("f"); got != "new" {
		t.Errorf("after Close a reader sees %q", got)
	}
	if err := w.Close(); err == nil {
		t.Error("a second Close succeeds")
	}
	list, err := b.Files().List(t.Context(), "")
	if err != nil || len(list) != 1 {
		t.Errorf("something was left beside the file: %v, %v", list, err)
	}
}

// testRemove removes and renames files; a renamed file keeps its mode.
func testRemove(t *testing.T, s *suite) {
	b := s.open(t)
	files := b.Files()
	b.want(b.sh("mkdir dir && printf run > tool && chmod 755 tool && printf x > gone && ln -s gone link"), sandbox.Exited, 0, "")
	b.write("tool", "#!/bin/sh\necho ran\n")
	for _, err := range []error{files.Rename(t.Context(), "tool", "new/place/tool"), files.Remove(t.Context(), "gone"), files.Remove(t.Context(), "link")} {
		must.Report(t, err)
	}
	b.want(b.sh("new/place/tool && ls -1d tool gone link 2>/dev/null || echo and no more"), sandbox.Exited, 0, "ran\nand no more\n")
	b.write("taken", "as it was")
	for name, err := range map[string]error{
		"remove a directory":        files.Remove(t.Context(), "dir"),
		"remove the whole":          files.Remove(t.Context(), "."),
		"rename a directory":        files.Rename(t.Context(), "dir", "other"),
		"rename below a file":       files.Rename(t.Context(), "new/place/tool", "taken/tool"),
		"rename to a name outside":  files.Rename(t.Context(), "new/place/tool", "../tool"),
		"rename to an absolute one": files.Rename(t.Context(), "new/place/tool", "/tmp/tool"),
	} {
		if !errors.Is(err, sandbox.ErrPath) {
			t.Errorf("%s: %v, want ErrPath", name, err)
		}
	}
	if err := files.Rename(t.Context(), "new/place/tool", "taken"); !errors.Is(err, fs.ErrExist) || b.read("taken") != "as it was" {
		t.Errorf("rename to a name that is taken: %v", err)
	}
	for _, err := range []error{files.Remove(t.Context(), "gone"), files.Rename(t.Context(), "gone", "other")} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("of a missing file: %v", err)
		}
	}
}

func testList(t *testing.T, s *suite) {
	b := s.open(t)
	b.write("b/two", "22")
	b.write("b/one", "1")
	b.write("b/Three", "")
	b.write("b/sub/x", "")
	b.link("one", "b/link")
	got, err := b.Files().List(t.Context(), "b")
	want := []sandbox.Entry{
		{Name: "Three", Path: "b/Three"},
		{Name: "link", Path: "b/link"},
		{Name: "one", Path: "b/one", Size: 1},
		{Name: "sub", Path: "b/sub", Dir: true},
		{Name: "two", Path: "b/two", Size: 2},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("List: %v (-want +got)\n%s", err, diff)
	}
	for _, root := range []string{"", "."} {
		got, err = b.Files().List(t.Context(), root)
		if diff := cmp.Diff([]sandbox.Entry{{Name: "b", Path: "b", Dir: true}}, got); err != nil || diff != "" {
			t.Errorf("List(%q): %v\n%s", root, err, diff)
		}
	}
	if _, err := b.Files().List(t.Context(), "b/one"); !errors.Is(err, sandbox.ErrPath) {
		t.Errorf("List of a file: %v", err)
	}
}

// calls returns the errors of the methods of Files for one name.
func calls(t *testing.T, b *box, name string) map[string]error {
	errs := make(map[string]error)
	r, err := b.Files().Open(t.Context(), name)
	if err == nil {
		r.Close()
	}
	errs["Open"] = err
	w, err := b.Files().Create(t.Context(), name)
	if err == nil {
		_, err = io.WriteString(w, "overwritten")
		err = errors.Join(err, w.Close())
	}
	errs["Create"] = err
	errs["Rename"] = b.Files().Rename(t.Context(), name, name+" renamed")
	_, errs["List"] = b.Files().List(t.Context(), name)
	_, errs["Stat"] = b.Files().Stat(t.Context(), name)
	return errs
}

// testLongList lists a directory of the maximum size, and one larger by one.
func testLongList(t *testing.T, s *suite) {
	b := s.open(t)
	for i := range sandbox.MaxList {
		b.host(fmt.Sprintf("d/%d", i), "")
	}
	if list, err := b.Files().List(t.Context(), "d"); err != nil || len(list) != sandbox.MaxList {
		t.Errorf("%d entries, %v", len(list), err)
	}
	b.host("d/one more", "")
	if _, err := b.Files().List(t.Context(), "d"); !errors.Is(err, sandbox.ErrTooMany) {
		t.Errorf("one entry more than is listed: %v", err)
	} else {
		s.end(t, "fill a directory with more than is listed", "ErrTooMany")
	}
}

func testMissing(t *testing.T, s *suite) {
	b := s.open(t)
	for _, name := range []string{"missing", "no/such/file"} {
		if _, err := b.Files().Open(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open(%q): %v", name, err)
		}
	}
	if _, err := b.Files().Stat(t.Context(), "missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat: %v", err)
	}
	if _, err := b.Files().List(t.Context(), "missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("List: %v", err)
	}
}

func testEscapes(t *testing.T, s *suite) {
	outside, file := canary(t)
	b := s.open(t)
	b.host("sub/file", "inside")
	rel := must.Get(filepath.Rel(b.dir, outside))(t)
	b.link(outside, "abs-dir")
	b.link(file, "abs-file")
	b.link(rel, "rel-dir")
	b.link(filepath.Join("..", rel), "sub/rel-dir")
	b.link("abs-dir", "chain-1")
	b.link("chain-1", "chain-2")
	b.link("..", "parent")
	b.link("/proc/self/root", "proc-root")
	b.link("loop-b", "loop-a")
	b.link("loop-a", "loop-b")
	base := filepath.Base(outside)
	for _, tt := range []struct {
		input string
		names []string
	}{
		{"have a name lead outside: relative, absolute", []string{
			"..", "../" + base + "/canary", "../../etc/passwd", "sub/../../x", "sub/../..", "/etc/passwd", file, "//etc/passwd", outside + "/canary",
		}},
		{"have a link lead outside: absolute, relative, chains, loops", []string{
			"abs-dir/canary", "rel-dir/canary", "sub/rel-dir/canary", "chain-2/canary", "parent/" + base, "parent/parent", "loop-a/x", "abs-dir/new", "chain-2/new/deep",
		}},
		{"have a link lead to /proc/self/root", []string{"proc-root/etc/passwd"}},
		{"use names that are too long, hold NUL, go below a file", []string{"nul\x00byte", "sub/file/below", strings.Repeat("n", 300)}},
	} {
		for _, name := range tt.names {
			for method, err := range calls(t, b, name) {
				if !errors.Is(err, sandbox.ErrPath) {
					t.Errorf("%s(%q) = %v, want ErrPath", method, name, err)
				}
			}
		}
		s.end(t, tt.input, "ErrPath")
	}
	// The final link may be inspected, but is neither followed nor replaced.
	for _, name := range []string{"abs-file", "abs-dir", "chain-2"} {
		for method, err := range calls(t, b, name) {
			if method == "Stat" {
				if err != nil {
					t.Errorf("Stat(%q) = %v", name, err)
				}
			} else if !errors.Is(err, sandbox.ErrPath) {
				t.Errorf("%s(%q) = %v, want ErrPath", method, name, err)
			}
		}
	}
	s.end(t, "have a link stand for the file itself", "ErrPath")
	unharmed(t, outside)
	if b.read("sub/file") != "inside" || b.read("./sub//file") != "inside" || b.read("sub/../sub/file") != "inside" {
		t.Error("a file inside is no longer reached")
	}
}

func testSpecialFiles(t *testing.T, s *suite) {
	b := s.open(t)
	b.want(b.sh("mkfifo fifo && mkdir dir && echo x > dir/x"), sandbox.Exited, 0, "")
	for _, name := range []string{"fifo", "dir", "", "."} {
		errs := calls(t, b, name)
		for _, method := range []string{"Open", "Create"} {
			if !errors.Is(errs[method], sandbox.ErrPath) {
				t.Errorf("%s(%q) = %v, want ErrPath", method, name, errs[method])
			}
		}
	}
	if err := calls(t, b, "fifo")["List"]; !errors.Is(err, sandbox.ErrPath) {
		t.Errorf("List of a FIFO: %v", err)
	}
	s.end(t, "put a FIFO or a directory in the place of a file", "ErrPath")
}

func testLinks(t *testing.T, s *suite) {
	outside, file := canary(t)
	b := s.open(t)
	b.host("sub/file", "inside")
	b.link("sub", "to-dir")
	b.link("sub/file", "to-file")
	b.link("nowhere", "dangling")
	b.link(filepath.Join(outside, "new"), "dangling-out")
	if got := b.read("to-dir/file"); got != "inside" {
		t.Errorf("through a link inside: %q", got)
	}
	if got := b.read("to-file"); got != "inside" {
		t.Errorf("through a link inside: %q", got)
	}
	for _, name := range []string{"to-file", "dangling", "dangling-out"} {
		if err := calls(t, b, name)["Create"]; !errors.Is(err, sandbox.ErrPath) {
			t.Errorf("Create(%q) = %v, want ErrPath", name, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(b.dir, "nowhere")); err == nil {
		t.Error("a file was made through a dangling link")
	}
	s.end(t, "put a dangling link in the place of a file", "ErrPath")
	b.write("to-dir/new", "through a directory link inside")
	if got := b.read("sub/new"); got != "through a directory link inside" {
		t.Errorf("sub/new holds %q", got)
	}
	// A second name of a file outside would expose the file.
	must.Do(t, os.Link(file, filepath.Join(b.dir, "hard")))
	if r, err := b.Files().Open(t.Context(), "hard"); !errors.Is(err, sandbox.ErrPath) {
		if err == nil {
			r.Close()
		}
		t.Errorf("Open of a hard link: %v", err)
	}
	b.write("hard", "only this name is replaced")
	unharmed(t, outside)
	s.end(t, "put a second name of a file outside in its place", "ErrPath")
}

// testSwapRace swaps a directory with a link that leads out while files below it are used.
func testSwapRace(t *testing.T, s *suite) {
	outside, _ := canary(t)
	b := s.open(t)
	b.host("real/canary", "inside")
	swap := filepath.Join(b.dir, "swap")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		targets := []string{"real", outside}
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			// An error costs one iteration; the loop runs until it is stopped.
			_ = os.RemoveAll(swap) // Create may have made a directory of the name
			_ = os.Symlink(targets[i%2], swap)
		}
	})
	// On a busy machine the harmless side may lose the race for long.
	deadline := time.Now().Add(20 * time.Second)
	read := 0
	for tries := 0; tries < 600 || read == 0 && time.Now().Before(deadline); tries++ {
		if r, err := b.Files().Open(t.Context(), "swap/canary"); err == nil {
			data, _ := io.ReadAll(r)
			r.Close()
			if string(data) == secret {
				t.Fatal("read the file outside")
			}
			read++
		}
		if w, err := b.Files().Create(t.Context(), "swap/made"); err == nil {
			_, _ = io.WriteString(w, "x")
			_ = w.Close() // may fail when the link was swapped
		}
	}
	close(stop)
	wg.Wait()
	if read == 0 {
		t.Error("the race was never won by the harmless side; the test shows nothing")
	}
	unharmed(t, outside)
	s.end(t, "swap a directory for a link while files are read and written", "nothing outside is read or written")
}
