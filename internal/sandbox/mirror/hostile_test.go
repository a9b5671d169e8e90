package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// liar is a tree with arbitrary answers.
type liar struct {
	list  []Entry
	fetch func(*writer)
}

func (l liar) List(context.Context, []string) ([]Entry, error) { return l.list, nil }

func (l liar) Fetch(_ context.Context, _ []string, to io.Writer) error {
	w := newWriter(to)
	l.fetch(w)
	return w.flush()
}

func (liar) Send(_ context.Context, _ []string, r io.Reader) ([]Entry, error) {
	_, err := io.Copy(io.Discard, r)
	return nil, err
}

func file(name string) Entry { return Entry{Path: name, Kind: File, Size: 4} }

// sends writes files as a peer would send them.
func sends(names ...string) func(*writer) {
	return func(w *writer) {
		for _, n := range names {
			w.file(Entry{Path: n, Kind: File, Size: 4})
			w.chunk([]byte("evil"))
			w.close()
		}
		w.end(nil)
	}
}

// TestHostile: impossible listings and unrequested content end the mirror and change no
// files outside.
func TestHostile(t *testing.T) {
	long := strings.Repeat("n", 256)
	for name, l := range map[string]liar{
		"a name that leads up":      {list: []Entry{file("../evil")}},
		"up within":                 {list: []Entry{{Path: "a", Kind: Dir}, file("a/../../evil")}},
		"an absolute name":          {list: []Entry{file("/tmp/evil")}},
		"an empty name":             {list: []Entry{file("")}},
		"a dot":                     {list: []Entry{file(".")}},
		"a double slash":            {list: []Entry{{Path: "a", Kind: Dir}, file("a//b")}},
		"a slash at the end":        {list: []Entry{{Path: "a", Kind: Dir}, file("a/")}},
		"NUL":                       {list: []Entry{file("a\x00b")}},
		"a long name":               {list: []Entry{file(long)}},
		"a long path":               {list: []Entry{file(strings.Repeat("a/", 2100) + "b")}},
		"a link, then below it":     {list: []Entry{{Path: "a", Kind: Link, Target: "/tmp"}, file("a/evil")}},
		"a file, then below it":     {list: []Entry{file("a"), file("a/evil")}},
		"below what is not listed":  {list: []Entry{file("a/evil")}},
		"a name twice":              {list: []Entry{file("a"), file("a")}},
		"a file, then a link":       {list: []Entry{file("a"), {Path: "a", Kind: Link, Target: "/etc"}}},
		"out of order":              {list: []Entry{file("b"), file("a")}},
		"a negative size":           {list: []Entry{{Path: "a", Kind: File, Size: -1}}},
		"a hard link":               {list: []Entry{{Path: "a", Kind: 'h', Target: "/etc/passwd"}}},
		"a device":                  {list: []Entry{{Path: "a", Kind: 'b'}}},
		"a link to nothing":         {list: []Entry{{Path: "a", Kind: Link}}},
		"a link with NUL":           {list: []Entry{{Path: "a", Kind: Link, Target: "a\x00"}}},
		"a file not asked for":      {list: []Entry{file("a")}, fetch: sends("../evil")},
		"a file twice":              {list: []Entry{file("a")}, fetch: sends("a", "a")},
		"a link instead":            {list: []Entry{file("a")}, fetch: func(w *writer) { w.entry(Entry{Path: "a", Kind: Link, Target: "/etc"}); w.end(nil) }},
		"a name instead":            {list: []Entry{file("a")}, fetch: func(w *writer) { w.name("a"); w.end(nil) }},
		"a stream that is cut":      {list: []Entry{file("a")}, fetch: func(w *writer) { w.file(file("a")); w.chunk([]byte("ev")) }},
		"content that is cut":       {list: []Entry{file("a")}, fetch: func(w *writer) { w.file(file("a")); w.end(errors.New("evil")) }},
		"more than was listed":      {list: []Entry{file("a")}, fetch: flood},
		"a hole beyond all":         {list: []Entry{file("a")}, fetch: func(w *writer) { w.file(file("a")); w.hole(1 << 39); w.close(); w.end(nil) }},
		"a hole of 2^60":            {list: []Entry{file("a")}, fetch: func(w *writer) { w.file(file("a")); w.hole(1 << 60); w.close(); w.end(nil) }},
		"a chunk of 2^60":           {list: []Entry{file("a")}, fetch: func(w *writer) { w.file(file("a")); w.number(1 << 61) }},
		"a path longer than it may": {list: []Entry{file("a")}, fetch: func(w *writer) { w.entry(Entry{Path: strings.Repeat("x", 5000), Kind: File}) }},
		"no stream":                 {list: []Entry{file("a")}, fetch: func(w *writer) { _, _ = w.w.WriteString("HTTP/1.1 200 OK\r\n") }},
	} {
		t.Run(name, func(t *testing.T) {
			outside := t.TempDir()
			here := filepath.Join(outside, "here")
			must.Do(t, os.Mkdir(here, 0o755))
			h, err := Open(here, nil)
			must.Do(t, err)
			defer h.Close()
			m := New(h, l, Limits{Bytes: 1 << 20})
			run := func(context.Context) (sandbox.Exit, error) { return sandbox.Exit{}, nil }
			if _, err := m.Exec(t.Context(), run); !errors.Is(err, sandbox.ErrLost) {
				t.Errorf("the error is %v", err)
			} else {
				t.Log(err)
			}
			if _, err := m.Exec(t.Context(), run); !errors.Is(err, sandbox.ErrLost) {
				t.Errorf("the next command: %v", err)
			}
			left := read(t, outside)
			delete(left, "here")
			for p, n := range left {
				if n.Text != "evil" || p != "here/a" {
					t.Errorf("%q is there, %+v", p, n)
				}
			}
		})
	}
}

// flood sends more data than any limit.
func flood(w *writer) {
	w.file(file("a"))
	for range 100 {
		w.chunk(bytes.Repeat([]byte("x"), chunk))
	}
	w.close()
	w.end(nil)
}

// TestSendHostile: a directory rejects a stream that leads out of it, also through existing
// links.
func TestSendHostile(t *testing.T) {
	for name, e := range map[string][]Entry{
		"up":                  {file("../evil")},
		"absolute":            {file("/evil")},
		"through a link out":  {file("out/evil")},
		"through a link in":   {file("in/evil")},
		"link, then through":  {{Path: "l", Kind: Link, Target: ".."}, file("l/evil")},
		"directory on a link": {{Path: "out", Kind: Dir}},
	} {
		t.Run(name, func(t *testing.T) {
			outside := t.TempDir()
			dir := filepath.Join(outside, "dir")
			must.Do(t, os.MkdirAll(filepath.Join(dir, "real"), 0o755))
			must.Do(t, os.Symlink(outside, filepath.Join(dir, "out")))
			must.Do(t, os.Symlink("real", filepath.Join(dir, "in")))
			h, err := Open(dir, nil)
			must.Do(t, err)
			defer h.Close()
			var b bytes.Buffer
			w := newWriter(&b)
			for _, e := range e {
				w.entry(e)
				if e.Kind == File {
					w.chunk([]byte("evil"))
					w.number(0)
				}
			}
			w.end(nil)
			must.Do(t, w.flush())
			if _, err := h.Send(t.Context(), nil, &b); err == nil {
				t.Error("it was taken")
			}
			if _, err := h.Send(t.Context(), []string{"../dir"}, &b); err == nil {
				t.Error("a name that leads out was removed")
			}
			must.Do(t, filepath.WalkDir(outside, func(p string, _ fs.DirEntry, err error) error {
				if filepath.Base(p) == "evil" {
					t.Errorf("%s was written", p)
				}
				return err
			}))
		})
	}
}

// TestModes: only the executable bit is transferred. Set-ID bits are dropped, hard links
// become separate files, and a FIFO stays a FIFO.
func TestModes(t *testing.T) {
	p := newPair(t, Limits{})
	_, err := p.exec(func(dir string) {
		must.Do(t, os.WriteFile(filepath.Join(dir, "s"), []byte("x"), 0o755))
		must.Do(t, os.Chmod(filepath.Join(dir, "s"), 0o777|fs.ModeSetuid|fs.ModeSetgid))
		must.Do(t, os.WriteFile(filepath.Join(dir, "first"), []byte("x"), 0o644))
		must.Do(t, os.Link(filepath.Join(dir, "first"), filepath.Join(dir, "second")))
		must.Do(t, makeFIFO(p.there.root, "fifo"))
	})
	must.Do(t, err)
	fi, err := os.Lstat(filepath.Join(p.here, "s"))
	if err != nil || fi.Mode() != 0o755 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	a, err := os.Lstat(filepath.Join(p.here, "first"))
	must.Do(t, err)
	b, err := os.Lstat(filepath.Join(p.here, "second"))
	if err != nil || os.SameFile(a, b) {
		t.Errorf("two names are one file: %v", err)
	}
	if fi, err := os.Lstat(filepath.Join(p.here, "fifo")); err != nil || fi.Mode()&fs.ModeNamedPipe == 0 {
		t.Errorf("the FIFO: %v, %v", fi, err)
	}
	_, err = p.exec(func(dir string) { must.Do(t, os.Remove(filepath.Join(dir, "fifo"))) })
	must.Do(t, err)
	if _, err := os.Lstat(filepath.Join(p.here, "fifo")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the FIFO stays: %v", err)
	}
}

// TestManyNames: a tree of few entries with more bytes of paths and targets than a
// workspace may have is over the limits, both in a listing and in a stream.
func TestManyNames(t *testing.T) {
	target := strings.Repeat("t", 4095)
	if runtime.GOOS == "darwin" {
		target = target[:1023] // its most
	}
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	must.Do(t, err)
	defer root.Close()
	below := strings.TrimSuffix(strings.Repeat(strings.Repeat("d", maxName)+"/", 14), "/")
	must.Do(t, root.MkdirAll(below, 0o755))
	deep, err := root.OpenRoot(below)
	must.Do(t, err)
	defer deep.Close()
	var list []Entry
	for i := range maxListing / (len(below) + len(target)) {
		name := fmt.Sprintf("l%05d", i)
		list = append(list, Entry{Path: path.Join(below, name), Kind: Link, Target: target})
		must.Do(t, deep.Symlink(target, name))
	}
	full := func(what string, err error) {
		if full, ok := errors.AsType[*FullError](err); !ok || !strings.Contains(full.What, "bytes of paths and link targets") {
			t.Errorf("%s: %v", what, err)
		}
	}
	h, err := Open(dir, nil)
	must.Do(t, err)
	defer h.Close()
	_, err = h.List(t.Context(), nil)
	full("a directory", err)
	from, to := io.Pipe()
	go func() {
		w := newWriter(to)
		for _, e := range list {
			w.entry(e)
		}
		w.end(nil)
		_ = to.CloseWithError(w.flush())
	}()
	_, err = newReader(from).entries(DefaultEntries)
	full("a stream", err)
	from.Close()
}

// FuzzStream: no stream makes a directory change files outside, or a reader hang.
func FuzzStream(f *testing.F) {
	var b bytes.Buffer
	w := newWriter(&b)
	w.entry(Entry{Path: "d", Kind: Dir})
	w.entry(Entry{Path: "l", Kind: Link, Target: ".."})
	sends("d/f", "../evil", "l/evil")(w)
	_ = w.flush()
	f.Add(b.Bytes())
	f.Add([]byte("f\x00\x01a\x04\x00\x00\x08evil\x00."))
	f.Fuzz(func(t *testing.T, data []byte) {
		outside := t.TempDir()
		dir := filepath.Join(outside, "dir")
		must.Do(t, os.Mkdir(dir, 0o755))
		h, err := Open(dir, nil)
		must.Do(t, err)
		defer h.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _ = h.Send(ctx, nil, bytes.NewReader(data))
		if list, err := os.ReadDir(outside); err != nil || len(list) != 1 {
			t.Errorf("outside lies %v, %v", list, err)
		}
		_, _ = newReader(bytes.NewReader(data)).entries(1000)
	})
}

// TestOpenDirectoriesTogether: the names in all open directories are bounded together, as
// each directory alone may be as large as the tree.
func TestOpenDirectoriesTogether(t *testing.T) {
	dir, most := t.TempDir(), 0
	for at, depth := dir, 0; depth < 4; depth++ {
		for i := range 40 {
			must.Do(t, os.WriteFile(filepath.Join(at, fmt.Sprint("f", i)), nil, 0o600))
		}
		at = filepath.Join(at, "d")
		must.Do(t, os.Mkdir(at, 0o700))
		most += 41
	}
	root := must.Get(os.OpenRoot(dir))(t)
	defer root.Close()
	for _, tt := range []struct {
		most int
		full bool
	}{{most, false}, {most - 1, true}, {100, true}, {40, true}, {1, true}} {
		w := &walk{ctx: t.Context(), began: time.Now(), most: tt.most}
		err := w.dir(root, ".", "")
		if _, full := errors.AsType[*FullError](err); full != tt.full || !full && err != nil {
			t.Errorf("a tree of %d where %d may be: %v", most, tt.most, err)
		}
		if n := len(w.list) + w.open; n > tt.most+1 {
			t.Errorf("%d names were read where %d may be", n, tt.most)
		}
	}
}
