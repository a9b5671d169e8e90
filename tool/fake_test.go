package tool

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/sandbox"
)

// fake is a sandbox whose files are a map and whose commands are a function.
type fake struct {
	mu    sync.Mutex
	files map[string]string // "pipe", "locked" and "crowd" are special
	exec  func(context.Context, sandbox.Cmd) (sandbox.Exit, error)
	cmds  []sandbox.Cmd
}

func (f *fake) open(context.Context) (sandbox.Sandbox, error) { return f, nil }
func (f *fake) Files() sandbox.Files                          { return f }
func (f *fake) Info() sandbox.Info                            { return sandbox.Info{} }
func (f *fake) Close() error                                  { return nil }

func (f *fake) Exec(ctx context.Context, c sandbox.Cmd) (sandbox.Exit, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cmds = append(f.cmds, c)
	return f.exec(ctx, c)
}

// check rejects a name like a real sandbox, with the host's path in its errors.
func (f *fake) check(op, name string) error {
	var err error
	switch _, ok := f.files[name]; {
	case path.IsAbs(name) || strings.HasPrefix(path.Clean(name), "..") || name == "pipe":
		err = fmt.Errorf("%w: /srv/host/%s", sandbox.ErrPath, name)
	case name == "crowd":
		return fmt.Errorf("%w: in /srv/host", sandbox.ErrTooMany)
	case name == "locked":
		err = fs.ErrPermission
	case op != "create" && !ok && !f.isDir(name):
		err = fs.ErrNotExist
	default:
		return nil
	}
	return &fs.PathError{Op: op, Path: "/srv/host/" + name, Err: err}
}

func (f *fake) isDir(name string) bool {
	for file := range f.files {
		if name == "." || strings.HasPrefix(file, name+"/") {
			return true
		}
	}
	return false
}

func (f *fake) Open(_ context.Context, name string) (io.ReadCloser, error) {
	if err := f.check("open", name); err != nil {
		return nil, err
	}
	return io.NopCloser(strings.NewReader(f.files[name])), nil
}

func (f *fake) Create(_ context.Context, name string) (io.WriteCloser, error) {
	if err := f.check("create", name); err != nil {
		return nil, err
	}
	return &fakeFile{f: f, name: name}, nil
}

type fakeFile struct {
	bytes.Buffer
	f    *fake
	name string
}

func (w *fakeFile) Close() error { w.f.files[w.name] = w.String(); return nil }

func (f *fake) Remove(_ context.Context, name string) error {
	if err := f.check("remove", name); err != nil {
		return err
	}
	delete(f.files, name)
	return nil
}

func (f *fake) Rename(_ context.Context, name, to string) error {
	if err := f.check("rename", name); err != nil {
		return err
	}
	f.files[to] = f.files[name]
	delete(f.files, name)
	return nil
}

func (f *fake) List(_ context.Context, name string) ([]sandbox.Entry, error) {
	if err := f.check("list", name); err != nil {
		return nil, err
	}
	var entries []sandbox.Entry
	for file := range f.files {
		rest, below := strings.CutPrefix(file, strings.TrimPrefix(name+"/", "./"))
		base, _, dir := strings.Cut(rest, "/")
		e := sandbox.Entry{Name: base, Path: path.Join(name, base), Dir: dir}
		if below && !slices.Contains(entries, e) {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b sandbox.Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, nil
}

func (f *fake) Stat(_ context.Context, name string) (sandbox.Entry, error) {
	return sandbox.Entry{Name: path.Base(name), Path: name, Dir: f.isDir(name)}, f.check("stat", name)
}

// blobs is a store that can fail.
type blobs struct {
	mu   sync.Mutex
	data map[string]string
	err  error
}

func (b *blobs) Put(_ context.Context, r io.Reader) (blob.Ref, error) {
	data, err := io.ReadAll(r)
	if b.err != nil {
		err = b.err
	}
	if err != nil {
		return blob.Ref{}, err
	}
	ref := blob.Ref{Digest: blob.Sum(data), Size: int64(len(data))}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.data == nil {
		b.data = make(map[string]string)
	}
	b.data[ref.Digest.String()] = string(data)
	return ref, nil
}

func (b *blobs) Get(_ context.Context, d blob.Digest) (io.ReadCloser, error) {
	data, ok := b.data[d.String()]
	if !ok {
		return nil, blob.ErrNotFound
	}
	return io.NopCloser(strings.NewReader(data)), nil
}
