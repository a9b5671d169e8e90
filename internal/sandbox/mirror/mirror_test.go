package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/platform/scratch"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

func TestMain(m *testing.M) {
	scratch.InMemory()
	os.Exit(m.Run())
}

// elsewhere is a directory behind streams, whose bytes it counts.
type elsewhere struct {
	*Host
	Remote
	dir   string
	bytes atomic.Int64 // of both directions
}

func newElsewhere(t testing.TB) *elsewhere {
	t.Helper()
	e := &elsewhere{dir: t.TempDir()}
	var err error
	if e.Host, err = Open(e.dir, nil); err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	t.Cleanup(func() {
		served.Wait()
		e.Host.Close()
	})
	e.Dial = func(context.Context) (io.ReadWriteCloser, error) {
		near, far := net.Pipe()
		served.Go(func() {
			defer far.Close()
			if err := Serve(context.Background(), e.Host, counted{far, &e.bytes}); err != nil {
				t.Logf("serve: %v", err)
			}
		})
		return near, nil
	}
	return e
}

type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// unstamped is a tree of a file system without usable stamps.
type unstamped struct{ Tree }

func (u unstamped) List(ctx context.Context, sum []string) ([]Entry, error) {
	list, err := u.Tree.List(ctx, sum)
	for i := range list {
		list[i].Stamp, list[i].Settled = "", false
	}
	return list, err
}

// pair is a mirror with its two directories.
type pair struct {
	*Mirror
	t     testing.TB
	here  string
	there *elsewhere
}

func newPair(t testing.TB, l Limits) *pair {
	t.Helper()
	p := &pair{t: t, here: t.TempDir(), there: newElsewhere(t)}
	h := must.Get(Open(p.here, nil))(t)
	t.Cleanup(func() { h.Close() })
	p.Mirror = New(h, p.there.Remote, l)
	return p
}

func (p *pair) exec(change func(dir string)) (sandbox.Exit, error) {
	return p.Exec(p.t.Context(), func(context.Context) (sandbox.Exit, error) {
		change(p.there.dir)
		return sandbox.Exit{Ended: sandbox.Exited}, nil
	})
}

// node is the model's entry of a path.
type node struct {
	Kind Kind
	Exec bool
	Text string // of a file, or the target of a link
}

type model map[string]node

func (m model) remove(p string) {
	for q := range m {
		if q == p || strings.HasPrefix(q, p+"/") {
			delete(m, q)
		}
	}
}

// read returns the contents of a directory.
func read(t *testing.T, dir string) model {
	t.Helper()
	m := model{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		n := node{}
		switch d.Type() {
		case fs.ModeDir:
			n.Kind = Dir
		case fs.ModeSymlink:
			n.Kind = Link
			n.Text, err = os.Readlink(name)
		case 0:
			n.Kind, n.Exec = File, fi.Mode()&0o100 != 0
			var data []byte
			data, err = os.ReadFile(name)
			n.Text = string(data)
		default:
			n.Kind = Special
		}
		m[filepath.ToSlash(rel)] = n
		return err
	})
	must.Do(t, err)
	return m
}

// change makes a random change to a directory and to the model.
func change(t *testing.T, r *rand.Rand, dir string, m model) {
	t.Helper()
	names := []string{"a", "a-b", "b", "c"}
	parts := []string{names[r.IntN(len(names))]}
	for r.IntN(2) == 0 {
		parts = append(parts, names[r.IntN(len(names))])
	}
	p := path.Join(parts...)
	name := filepath.Join(dir, filepath.FromSlash(p))
	if up := path.Dir(p); up != "." {
		for q := up; q != "."; q = path.Dir(q) {
			if n, ok := m[q]; ok && n.Kind != Dir {
				m.remove(q)
				must.Do(t, os.Remove(filepath.Join(dir, filepath.FromSlash(q))))
			}
		}
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
		for q := up; q != "."; q = path.Dir(q) {
			m[q] = node{Kind: Dir}
		}
	}
	n, ok := m[p]
	text := strings.Repeat(fmt.Sprintf("%d,", r.IntN(10)), 1+r.IntN(3)) // sizes repeat
	switch r.IntN(8) {
	case 0, 1, 2: // a file; in place if there is one
		if ok && n.Kind != File {
			m.remove(p)
			must.Do(t, os.RemoveAll(name))
		}
		must.Do(t, os.WriteFile(name, []byte(text), 0o644))
		m[p] = node{Kind: File, Text: text, Exec: ok && n.Kind == File && n.Exec}
	case 3:
		m.remove(p)
		must.Do(t, os.RemoveAll(name))
	case 4:
		if !ok || n.Kind == Dir {
			must.Do(t, os.MkdirAll(name, 0o755))
			m[p] = node{Kind: Dir}
		}
	case 5:
		m.remove(p)
		must.Do(t, os.RemoveAll(name))
		target := []string{"a", "../b", "/etc/passwd", "nowhere"}[r.IntN(4)]
		must.Do(t, os.Symlink(target, name))
		m[p] = node{Kind: Link, Text: target}
	case 6:
		if ok && n.Kind == File {
			n.Exec = !n.Exec
			mode := fs.FileMode(0o644)
			if n.Exec {
				mode = 0o755
			}
			must.Do(t, os.Chmod(name, mode))
			m[p] = n
		}
	case 7: // another file in its place
		if ok && n.Kind == Dir {
			break
		}
		m.remove(p)
		must.Do(t, os.WriteFile(name+".new", []byte(text), 0o644))
		must.Do(t, os.Rename(name+".new", name))
		m[p] = node{Kind: File, Text: text}
	}
}

// TestModel makes random changes on both sides, in quick succession, and compares both with
// a model without stamps. In half of the cases the trees have no stamps either.
func TestModel(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			p, m := newPair(t, Limits{}), model{}
			if seed%2 == 1 {
				p.Mirror.here.Tree, p.Mirror.there.Tree = unstamped{p.Mirror.here.Tree}, unstamped{p.Mirror.there.Tree}
			}
			for range 20 {
				for range r.IntN(6) {
					change(t, r, p.here, m)
				}
				_, err := p.exec(func(dir string) {
					if diff := cmp.Diff(m, read(t, dir)); diff != "" {
						t.Fatalf("before a command (-model +there)\n%s", diff)
					}
					for range r.IntN(6) {
						change(t, r, dir, m)
					}
				})
				must.Do(t, err)
				if diff := cmp.Diff(m, read(t, p.here)); diff != "" {
					t.Fatalf("after a command (-model +here)\n%s", diff)
				}
			}
		})
	}
}

// TestUnchanged: unchanged files are not transferred a second time.
func TestUnchanged(t *testing.T) {
	p := newPair(t, Limits{})
	const files, size = 100, 20_000
	content := func(i, n int) string { return strings.Repeat(fmt.Sprintf("%d %d;", i, n), size/8) }
	for i := range files {
		must.Do(t, os.WriteFile(filepath.Join(p.here, fmt.Sprint(i)), []byte(content(i, 0)), 0o644))
	}
	_, err := p.exec(func(string) {})
	must.Do(t, err)
	first := p.there.bytes.Swap(0)
	_, err = p.exec(func(dir string) { must.Do(t, os.WriteFile(filepath.Join(dir, "7"), []byte(content(7, 1)), 0o644)) })
	must.Do(t, err)
	if second := p.there.bytes.Load(); first < files*size/2 || second > files*size/20 {
		t.Errorf("%d bytes at first, %d bytes for one changed file", first, second)
	}
	if got := read(t, p.here)["7"].Text; got != content(7, 1) {
		t.Errorf("the changed file holds %.40q", got)
	}
}

// TestFull: a tree over a limit stays there, and is copied once it fits.
func TestFull(t *testing.T) {
	for what, grow := range map[string]func(string) error{
		"a large file": func(dir string) error { return os.WriteFile(filepath.Join(dir, "x"), make([]byte, 2<<20), 0o644) },
		"a sparse file": func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "x"), nil, 0o644), os.Truncate(filepath.Join(dir, "x"), 1<<40))
		},
		"many files": func(dir string) (err error) {
			for i := range 60 {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o644))
			}
			return err
		},
		"a deep tree": func(dir string) error { return deep(filepath.Join(dir, "x"), 3000) },
	} {
		t.Run(what, func(t *testing.T) {
			p := newPair(t, Limits{Entries: 50, Bytes: 1 << 20})
			must.Do(t, os.WriteFile(filepath.Join(p.here, "kept"), []byte("kept"), 0o644))
			e, err := p.exec(func(dir string) { must.Do(t, grow(dir)) })
			if err != nil || e.Ended != sandbox.DiskFull || e.Code == 0 || !strings.Contains(string(e.Stderr.Bytes()), "over a limit") {
				t.Errorf("%v, %+v", err, e)
			}
			if m := read(t, p.here); len(m) != 1 {
				t.Errorf("here are %d entries", len(m))
			}
			e, err = p.exec(func(dir string) {
				root, err := os.OpenRoot(dir)
				must.Do(t, err)
				must.Do(t, errors.Join(sandbox.EmptyTree(root), root.Close(), os.WriteFile(filepath.Join(dir, "y"), []byte("fits"), 0o644)))
			})
			if m := read(t, p.here); err != nil || e.Ended != sandbox.Exited || m["y"].Text != "fits" || len(m) != 1 {
				t.Errorf("%v, %+v, %v", err, e, m)
			}
		})
	}
}

// deep creates nested directories.
func deep(dir string, n int) error {
	must := os.MkdirAll(dir, 0o755)
	root, err := os.OpenRoot(dir)
	for range n {
		if err = errors.Join(must, err); err != nil {
			return err
		}
		must = root.Mkdir("d", 0o755)
		var next *os.Root
		if next, err = root.OpenRoot("d"); err == nil {
			root.Close()
			root = next
		}
	}
	return root.Close()
}

// TestLargeHole: a hole takes no space, neither on the wire nor here.
func TestLargeHole(t *testing.T) {
	p := newPair(t, Limits{})
	_, err := p.exec(func(dir string) {
		must.Do(t, os.WriteFile(filepath.Join(dir, "x"), []byte("begin"), 0o644))
		must.Do(t, os.Truncate(filepath.Join(dir, "x"), 200<<20))
	})
	must.Do(t, err)
	fi, err := os.Stat(filepath.Join(p.here, "x"))
	if err != nil || fi.Size() != 200<<20 || p.there.bytes.Load() > 1<<20 {
		t.Errorf("%v, %v, %d bytes on the wire", fi, err, p.there.bytes.Load())
	}
}

// TestClosed: inaccessible files and directories are copied, and removed.
func TestClosed(t *testing.T) {
	p := newPair(t, Limits{})
	_, err := p.exec(func(dir string) {
		must.Do(t, os.MkdirAll(filepath.Join(dir, "d", "e"), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(dir, "d", "e", "f"), []byte("closed"), 0))
		must.Do(t, os.Chmod(filepath.Join(dir, "d", "e"), 0))
		must.Do(t, os.Chmod(filepath.Join(dir, "d"), 0))
	})
	must.Do(t, err)
	if m := read(t, p.here); m["d/e/f"].Text != "closed" {
		t.Errorf("here is %v", m)
	}
	must.Do(t, os.Chmod(filepath.Join(p.there.dir, "d"), 0o500))
	must.Do(t, os.RemoveAll(filepath.Join(p.here, "d")))
	_, err = p.exec(func(dir string) {
		if m := read(t, dir); len(m) != 0 {
			t.Errorf("there is %v", m)
		}
	})
	must.Do(t, err)
}

// TestBesides: a file that is written here while a command runs stays, and is sent with the
// next command.
func TestBesides(t *testing.T) {
	p := newPair(t, Limits{})
	_, err := p.exec(func(dir string) {
		must.Do(t, os.WriteFile(filepath.Join(dir, "there"), []byte("there"), 0o644))
		must.Do(t, os.WriteFile(filepath.Join(p.here, "here"), []byte("here"), 0o644))
	})
	must.Do(t, err)
	want := model{"here": {Kind: File, Text: "here"}, "there": {Kind: File, Text: "there"}}
	_, err = p.exec(func(dir string) {
		if diff := cmp.Diff(want, read(t, dir)); diff != "" {
			t.Errorf("there (-want +got)\n%s", diff)
		}
	})
	must.Do(t, err)
	if diff := cmp.Diff(want, read(t, p.here)); diff != "" {
		t.Errorf("here (-want +got)\n%s", diff)
	}
}
