package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/filename"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/platform/filelock"
)

// fetchers is the maximum number of files that are read from the store concurrently.
const fetchers = 8

// Restore writes the files of a head to dir, which must be empty or absent (else
// ErrNotEmpty). Restoring a head twice makes two independent copies: a fork.
//
// On failure it leaves dir unchanged. A directory that was absent appears complete or, if
// the process dies, not at all (a sibling whose name ends in ".partial" may stay). A crash
// may leave a directory that existed half filled.
func Restore(ctx context.Context, b blob.Store, head blob.Digest, dir string) error {
	return (*index)(nil).restore(ctx, b, head, dir)
}

func restoreTree(ctx context.Context, b blob.Store, t *manifest.Tree, dir string) error {
	dir = filepath.Clean(dir)
	names, err := os.ReadDir(dir)
	switch {
	case err == nil && len(names) > 0:
		return fmt.Errorf("%w: %s holds %q; restore into a fresh directory", ErrNotEmpty, dir, names[0].Name())
	case err == nil:
		if err := fill(ctx, b, t, dir); err != nil {
			return errors.Join(err, empty(dir))
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("workspace: restore: %w", err)
	}

	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("workspace: restore: %w", err)
	}
	tmp, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+".*.partial")
	if err != nil {
		return fmt.Errorf("workspace: restore: %w", err)
	}
	err = fill(ctx, b, t, tmp)
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return nil
}

// empty removes the contents of a directory, not the directory.
func empty(dir string) error {
	names, err := os.ReadDir(dir)
	for _, n := range names {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, n.Name())))
	}
	return err
}

func fill(ctx context.Context, b blob.Store, t *manifest.Tree, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("workspace: restore: %w", err)
	}
	defer root.Close()

	// Parents sort before their children, and links are created last, so no file is ever
	// written through a link of this tree.
	var files, links []manifest.Entry
	for e := range t.Entries() {
		if _, err := filename.Local(e.Path); err != nil {
			return &RefusedError{Path: e.Path, Reason: BadName, Err: err}
		}
		switch e.Kind {
		case manifest.Dir:
			if err := root.Mkdir(filename.FromSlash(e.Path), 0o755); err != nil {
				return fmt.Errorf("workspace: restore: %w", err)
			}
		case manifest.File:
			files = append(files, e)
		case manifest.Symlink:
			links = append(links, e)
		}
	}
	if err := fillFiles(ctx, manifest.NewFiles(b, t), root, files); err != nil {
		return err
	}
	for _, e := range links {
		if err := root.Symlink(filename.FromSlash(e.Target), filename.FromSlash(e.Path)); err != nil {
			return fmt.Errorf("workspace: restore: %w", err)
		}
	}
	return nil
}

// fillFiles writes the files a few at a time; the first error stops all.
func fillFiles(ctx context.Context, b blob.Store, root *os.Root, files []manifest.Entry) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan manifest.Entry)
	var wg sync.WaitGroup
	for range min(fetchers, len(files)) {
		wg.Go(func() {
			for e := range work {
				if err := fetch(ctx, b, root, filename.FromSlash(e.Path), e); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, e := range files {
		if ctx.Err() != nil {
			break
		}
		work <- e
	}
	close(work)
	wg.Wait()
	return context.Cause(ctx)
}

// fetch writes the bytes of e to a new file at name.
func fetch(ctx context.Context, b blob.Store, root *os.Root, name string, e manifest.Entry) error {
	rc, err := b.Get(ctx, e.Digest)
	if err != nil {
		return fmt.Errorf("workspace: restore %q: %w", e.Path, err)
	}
	defer rc.Close()
	perm := fs.FileMode(0o644)
	if e.Exec {
		perm = 0o755
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return fmt.Errorf("workspace: restore: %w", err)
	}
	// The limit of one more byte detects a blob longer than the manifest's size.
	n, err := io.Copy(f, io.LimitReader(rc, e.Size+1))
	closed := f.Close
	if e.Exec {
		closed = func() error { return filelock.CloseWritten(f) }
	}
	if err := errors.Join(err, closed()); err != nil {
		return fmt.Errorf("workspace: restore %q: %w", e.Path, err)
	}
	if n != e.Size {
		return fmt.Errorf("workspace: restore %q: %w: the manifest says %d bytes", e.Path, manifest.ErrMalformed, e.Size)
	}
	return nil
}

// Open returns the contents of one file of a head. An absent path is fs.ErrNotExist; the
// error for any other kind of entry names the kind. Links are not followed. At its end, the
// reader fails with blob.ErrCorrupt if the stored bytes do not match their digest.
func Open(ctx context.Context, b blob.Store, head blob.Digest, path string) (io.ReadCloser, error) {
	t, err := manifest.Load(ctx, b, head)
	if err != nil {
		return nil, err
	}
	e, ok := t.Lookup(path)
	if !ok {
		return nil, fmt.Errorf("workspace: %s holds no %q: %w", head.Short(), path, fs.ErrNotExist)
	}
	if e.Kind != manifest.File {
		return nil, fmt.Errorf("workspace: %q of %s is a %s, not a file", path, head.Short(), e.Kind)
	}
	return manifest.NewFiles(b, t).Get(ctx, e.Digest)
}

// Read returns the contents of one file of a head, like Open. It holds the whole file in
// memory.
func Read(ctx context.Context, b blob.Store, head blob.Digest, path string) ([]byte, error) {
	rc, err := Open(ctx, b, head, path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(rc)
	return data, errors.Join(err, rc.Close())
}
