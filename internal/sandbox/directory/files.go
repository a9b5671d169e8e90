package directory

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rathcluster/rath/internal/files/filename"
	"github.com/rathcluster/rath/internal/platform/filelock"
	"github.com/rathcluster/rath/sandbox"
)

// clean converts a name to a local path, or rejects it.
func clean(name string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", fmt.Errorf("%w: %q %s", sandbox.ErrPath, name, why)
	}
	if name == "" {
		return ".", nil
	}
	if strings.IndexByte(name, 0) >= 0 {
		return refuse("contains NUL")
	}
	if path.IsAbs(name) {
		return refuse("is absolute; use a path relative to the workspace")
	}
	// Cleaning before links are resolved could hide a step through a link, so "a/../b" is
	// passed to os.Root unchanged; only the characters are checked here.
	local, err := filename.Local(path.Clean(name))
	if err != nil {
		return refuse("leaves the workspace or is no file name here")
	}
	if path.Clean(name) == name {
		return local, nil
	}
	return filename.FromSlash(name), nil
}

// pathError converts an error of os.Root to an error of package sandbox.
func pathError(name string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("sandbox: %w", err)
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok && refusedByRoot(pe.Err) {
		return fmt.Errorf("%w: %q: %w", sandbox.ErrPath, name, pe.Err)
	}
	return fmt.Errorf("sandbox: %w", err)
}

// refusedByRoot reports whether a system error means that the name itself is invalid: it
// leaves the root, loops, is too long or uses a file as a directory.
func refusedByRoot(err error) bool {
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG) ||
		errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENXIO) {
		return true
	}
	var errno syscall.Errno
	// os.Root's own errors ("path escapes from parent", "too many links") are plain errors
	// without an error number or an exported variable.
	return !errors.As(err, &errno)
}

// Sub opens a directory below this one, or this one itself.
func (d *Directory) Sub(name string) (*os.File, error) {
	local, err := clean(name)
	if err != nil {
		return nil, err
	}
	f, err := d.root.OpenFile(local, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, pathError(name, err)
	}
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, pathError(name, err)
	}
	if !fi.IsDir() {
		f.Close()
		return nil, fmt.Errorf("%w: %q is not a directory", sandbox.ErrPath, name)
	}
	return f, nil
}

// call begins every method.
func (d *Directory) call(ctx context.Context, name string) (string, error) {
	if err := d.Enter(); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		d.Leave()
		return "", err
	}
	local, err := clean(name)
	if err != nil {
		d.Leave()
		return "", err
	}
	return local, nil
}

// Open implements sandbox.Files.
func (d *Directory) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	local, err := d.call(ctx, name)
	if err != nil {
		return nil, err
	}
	defer d.Leave()
	// Opening without blocking and checking afterwards leaves no moment in which a FIFO
	// could be put under the name.
	file, err := d.root.OpenFile(local, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, pathError(name, err)
	}
	if err := checkRegular(name, file); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// checkRegular rejects files other than plain files with one name. A second name may lie
// outside, where other programs trust the bytes.
func checkRegular(name string, f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return pathError(name, err)
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%w: %q is a %s, not a regular file", sandbox.ErrPath, name, kind(fi.Mode()))
	}
	n, err := linkCount(f, fi)
	if err != nil {
		return pathError(name, err)
	}
	if n > 1 {
		return fmt.Errorf("%w: %q has a second name (hard link); copy it instead", sandbox.ErrPath, name)
	}
	return nil
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "file"
	case m.IsDir():
		return "directory"
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "FIFO"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// Create implements sandbox.Files.
func (d *Directory) Create(ctx context.Context, name string) (io.WriteCloser, error) {
	local, err := d.call(ctx, name)
	if err != nil {
		return nil, err
	}
	defer d.Leave()
	if local == "." || strings.HasSuffix(name, "/") {
		return nil, fmt.Errorf("%w: %q is a directory", sandbox.ErrPath, name)
	}
	dir := filepath.Dir(local)
	if err := d.makeParents(dir); errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w: %q is below something that is not a directory", sandbox.ErrPath, name)
	} else if err != nil {
		return nil, pathError(name, err)
	}
	if err := d.replaceable(name, local); err != nil {
		return nil, err
	}
	tmp := filepath.Join(dir, ".rath-"+rand.Text()[:16])
	file, err := d.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, pathError(name, err)
	}
	if err := d.ownFile(file); err != nil {
		return nil, errors.Join(pathError(name, err), file.Close(), d.root.Remove(tmp))
	}
	d.mu.Lock()
	d.temps[tmp] = true
	d.mu.Unlock()
	return &writer{d: d, file: file, name: name, tmp: tmp, local: local}, nil
}

// replaceable rejects the name of an entry that is not a file.
func (d *Directory) replaceable(name, local string) error {
	fi, err := d.root.Lstat(local)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return pathError(name, err)
	}
	if fi.Mode()&fs.ModeSymlink != 0 {
		target, err := d.root.Readlink(local)
		if err != nil {
			return pathError(name, err)
		}
		return fmt.Errorf("%w: %q is a symbolic link to %q; write to that name instead", sandbox.ErrPath, name, target)
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%w: %q is a %s and is not replaced", sandbox.ErrPath, name, kind(fi.Mode()))
	}
	return nil
}

// writer is a file that appears under its name when it is closed.
type writer struct {
	d                *Directory
	file             *os.File
	name, tmp, local string
	failed           error // of a Write
	done             bool
}

func (w *writer) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	if err != nil {
		w.failed = err
	}
	return n, err
}

// Close renames the file into place unless a Write failed.
func (w *writer) Close() error {
	if w.done {
		return fs.ErrClosed
	}
	w.done = true
	err := errors.Join(w.failed, filelock.CloseWritten(w.file))
	if enter := w.d.Enter(); enter != nil {
		return errors.Join(enter, err) // the sandbox removed the file
	}
	defer w.d.Leave()
	w.d.mu.Lock()
	delete(w.d.temps, w.tmp)
	w.d.mu.Unlock()
	if err == nil {
		err = w.d.replaceable(w.name, w.local)
	}
	if err == nil {
		err = w.keepMode()
	}
	if err == nil {
		err = pathError(w.name, w.d.root.Rename(w.tmp, w.local))
	}
	if err != nil {
		return errors.Join(err, w.d.root.Remove(w.tmp))
	}
	return nil
}

// keepMode gives the file the mode of the file that it replaces.
func (w *writer) keepMode() error {
	fi, err := w.d.root.Lstat(w.local)
	if err != nil || !fi.Mode().IsRegular() {
		return nil // there is no such file
	}
	return pathError(w.name, w.d.root.Chmod(w.tmp, fi.Mode().Perm()))
}

// Remove implements sandbox.Files.
func (d *Directory) Remove(ctx context.Context, name string) error {
	local, err := d.call(ctx, name)
	if err != nil {
		return err
	}
	defer d.Leave()
	fi, err := d.root.Lstat(local)
	if err != nil {
		return pathError(name, err)
	}
	if !fi.Mode().IsRegular() && fi.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%w: %q is a %s and is not removed", sandbox.ErrPath, name, kind(fi.Mode()))
	}
	return pathError(name, d.root.Remove(local))
}

// Rename implements sandbox.Files.
func (d *Directory) Rename(ctx context.Context, name, to string) error {
	local, err := d.call(ctx, name)
	if err != nil {
		return err
	}
	defer d.Leave()
	target, err := clean(to)
	if err != nil {
		return err
	}
	fi, err := d.root.Lstat(local)
	if err != nil {
		return pathError(name, err)
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%w: %q is a %s and is not renamed", sandbox.ErrPath, name, kind(fi.Mode()))
	}
	if _, err := d.root.Lstat(target); err == nil {
		return fmt.Errorf("sandbox: %q: %w", to, fs.ErrExist)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return pathError(to, err)
	}
	if err := d.makeParents(filepath.Dir(target)); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %q is below something that is not a directory", sandbox.ErrPath, to)
	} else if err != nil {
		return pathError(to, err)
	}
	err = d.root.Rename(local, target)
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		err = &fs.PathError{Op: le.Op, Path: to, Err: le.Err}
	}
	return pathError(to, err)
}

// List implements sandbox.Files.
func (d *Directory) List(ctx context.Context, name string) ([]sandbox.Entry, error) {
	if _, err := d.call(ctx, name); err != nil {
		return nil, err
	}
	defer d.Leave()
	dir, err := d.Sub(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	list, err := dir.ReadDir(sandbox.MaxList + 1)
	if err != nil && err != io.EOF {
		return nil, pathError(name, err)
	}
	if len(list) > sandbox.MaxList {
		return nil, fmt.Errorf("sandbox: %q: %w: more than %d; list a part of them with a command", name, sandbox.ErrTooMany, sandbox.MaxList)
	}
	entries := make([]sandbox.Entry, 0, len(list))
	for _, one := range list {
		fi, err := one.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since the listing
		}
		if err != nil {
			return nil, pathError(name, err)
		}
		entries = append(entries, entry(path.Join(name, filename.Escape(one.Name())), fi))
	}
	slices.SortFunc(entries, func(a, b sandbox.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return entries, nil
}

// Stat implements sandbox.Files.
func (d *Directory) Stat(ctx context.Context, name string) (sandbox.Entry, error) {
	local, err := d.call(ctx, name)
	if err != nil {
		return sandbox.Entry{}, err
	}
	defer d.Leave()
	fi, err := d.root.Lstat(local)
	if err != nil {
		return sandbox.Entry{}, pathError(name, err)
	}
	return entry(path.Clean(name), fi), nil
}

func entry(p string, fi fs.FileInfo) sandbox.Entry {
	e := sandbox.Entry{Name: path.Base(p), Path: p, Dir: fi.IsDir()}
	if fi.Mode().IsRegular() {
		e.Size = fi.Size()
	}
	return e
}
