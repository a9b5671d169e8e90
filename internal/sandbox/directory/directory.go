// Package directory accesses the files of a sandbox whose directory is on this host. It
// confines names and links to the directory, and counts the calls that a sandbox waits for
// when it closes. Backends over a directory of the host share it.
package directory

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/rathcluster/rath/sandbox"
)

// Owner is the owner of the files of a sandbox, if it is not this process's user.
type Owner struct{ UID, GID int }

// Directory is an open directory. Its methods may be called concurrently.
type Directory struct {
	name  string
	root  *os.Root
	owner *Owner

	mu    sync.Mutex // guards shut and the Add of calls, and temps
	shut  bool
	temps map[string]bool // files of unfinished Creates
	calls sync.WaitGroup
}

var _ sandbox.Files = (*Directory)(nil)

// Open opens a directory of the host. With an owner, to whom this process must be allowed
// to give files, all existing files and all files that Create makes belong to the owner. A
// file with a second name, which may lie elsewhere, keeps its owner.
func Open(dir string, owner *Owner) (*Directory, error) {
	name, err := filepath.Abs(dir)
	if err == nil {
		name, err = filepath.EvalSymlinks(name)
	}
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("%w; make the directory first", err)
	}
	d := &Directory{name: name, root: root, owner: owner, temps: make(map[string]bool)}
	if owner != nil {
		if err := d.give(); err != nil {
			return nil, errors.Join(fmt.Errorf("give the files to user %d: %w", owner.UID, err), root.Close())
		}
	}
	return d, nil
}

// give gives all files to the owner.
func (d *Directory) give() error {
	return fs.WalkDir(d.root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.Type().IsRegular() {
			f, err := d.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			fi, err := f.Stat()
			if err != nil {
				return err
			}
			if n, err := linkCount(f, fi); err != nil || n > 1 {
				return err
			}
		}
		return d.root.Lchown(filepath.FromSlash(name), d.owner.UID, d.owner.GID)
	})
}

// Name returns the directory's path: absolute, without links.
func (d *Directory) Name() string { return d.name }

// Enter registers a call that Wait waits for. It fails after Shut.
func (d *Directory) Enter() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		return sandbox.ErrClosed
	}
	d.calls.Add(1)
	return nil
}

// Leave ends a call that Enter registered.
func (d *Directory) Leave() { d.calls.Done() }

// Shut rejects further calls.
func (d *Directory) Shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = true
}

// Wait waits for the registered calls, after Shut.
func (d *Directory) Wait() { d.calls.Wait() }

// Close removes the files of unfinished Creates. The directory remains.
func (d *Directory) Close() error {
	var errs []error
	for name := range d.temps {
		errs = append(errs, d.root.Remove(name))
	}
	return errors.Join(append(errs, d.root.Close())...)
}

// makeParents creates the directories above a file, for their owner.
func (d *Directory) makeParents(dir string) error {
	if d.owner == nil {
		return d.root.MkdirAll(dir, 0o755)
	}
	var missing []string
	for at := dir; at != "." && at != ".."; at = filepath.Dir(at) {
		if _, err := d.root.Lstat(at); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, at)
		} else {
			break
		}
	}
	if err := d.root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range missing {
		if err := d.root.Lchown(name, d.owner.UID, d.owner.GID); err != nil {
			return err
		}
	}
	return nil
}

// ownFile gives a new file to the owner.
func (d *Directory) ownFile(f *os.File) error {
	if d.owner == nil {
		return nil
	}
	return f.Chown(d.owner.UID, d.owner.GID)
}
