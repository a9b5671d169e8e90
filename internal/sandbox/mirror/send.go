package mirror

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/rathcluster/rath/internal/platform/filelock"
	"github.com/rathcluster/rath/sandbox"
)

// sending is the state of one Send.
type sending struct {
	*Host
	dirs  map[string]bool // known to be directories, not links
	wrote []Entry
	st    []stamp // of wrote
}

// Send implements Tree. It writes a file beside its place and then renames it, so a reader
// sees the old or the new file.
func (h *Host) Send(ctx context.Context, remove []string, from io.Reader) ([]Entry, error) {
	for _, name := range remove {
		if err := checkPath(name); err != nil {
			return nil, err
		}
		if err := h.remove(name); err != nil {
			return nil, fmt.Errorf("mirror: remove %q: %w", name, err)
		}
	}
	s := &sending{Host: h, dirs: map[string]bool{".": true}}
	r := newReader(from)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e, err := r.next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = checkPath(e.Path)
		}
		if err != nil {
			return nil, err
		}
		if err := s.make(e, r); err != nil {
			return nil, fmt.Errorf("mirror: write %q: %w", e.Path, err)
		}
	}
	now := time.Now()
	for i := range s.wrote {
		s.wrote[i].Settled = s.st[i].settled(now)
	}
	return s.wrote, nil
}

// remove removes a name and all entries below it. It makes inaccessible directories
// accessible first.
func (h *Host) remove(name string) error {
	local := filepath.FromSlash(name)
	if err := h.root.Remove(local); err == nil || gone(err) {
		return nil
	}
	fi, err := h.root.Lstat(local)
	if gone(err) {
		return nil
	}
	if err != nil || !fi.IsDir() {
		return errors.Join(err, h.root.Remove(local))
	}
	_ = h.root.Chmod(local, 0o700)
	below, err := h.root.OpenRoot(local)
	if err == nil {
		err = errors.Join(sandbox.EmptyTree(below), below.Close())
	}
	if err == nil || gone(err) {
		err = h.root.Remove(local)
	}
	if gone(err) {
		err = nil
	}
	return err
}

// make creates one entry. The directories above it exist and are not links: the listing was
// checked for that, and earlier entries created them.
func (s *sending) make(e Entry, r *reader) error {
	if err := s.real(path.Dir(e.Path)); err != nil {
		return err
	}
	local := filepath.FromSlash(e.Path)
	switch e.Kind {
	case Dir:
		err := s.root.Mkdir(local, 0o755)
		if errors.Is(err, fs.ErrExist) {
			return s.real(e.Path)
		}
		if err == nil {
			s.dirs[e.Path] = true
			err = s.give(local)
		}
		return err
	case Link:
		if err := checkTarget(e.Target); err != nil {
			return err
		}
		if err := s.clear(local); err != nil {
			return err
		}
		return errors.Join(s.root.Symlink(e.Target, local), s.give(local))
	case Special:
		if err := s.clear(local); err != nil {
			return err
		}
		if err := makeFIFO(s.root, local); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		return nil
	case File:
		return s.file(e, local, r)
	}
	return fmt.Errorf("%w: a name among entries", errStream)
}

// real makes sure that a path is a directory without links among its parents.
func (s *sending) real(p string) error {
	if s.dirs[p] {
		return nil
	}
	if err := s.real(path.Dir(p)); err != nil {
		return err
	}
	fi, err := s.root.Lstat(filepath.FromSlash(p))
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return fmt.Errorf("%q is no directory", p)
	}
	s.dirs[p] = true
	return nil
}

// clear removes the entry under the name of an entry that is not renamed into place.
func (s *sending) clear(local string) error {
	if err := s.root.Remove(local); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (s *sending) file(e Entry, local string, r *reader) (err error) {
	perm := fs.FileMode(0o644)
	if e.Exec {
		perm = 0o755
	}
	tmp := filepath.Join(filepath.Dir(local), ".rath-"+rand.Text()[:16])
	f, err := s.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.root.Remove(tmp))
		}
	}()
	if err := s.fill(f, perm, r); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := filelock.CloseWritten(f); err != nil {
		return err
	}
	if err := s.root.Rename(tmp, local); err != nil {
		return err
	}
	fi, err := s.root.Lstat(local)
	if err != nil {
		return err
	}
	st := stampOf(fi)
	s.wrote, s.st = append(s.wrote, Entry{Path: e.Path, Kind: File, Exec: e.Exec, Size: fi.Size(), Stamp: st.String()}), append(s.st, st)
	return nil
}

// fill writes a new file. The file's name may change meanwhile, so fill uses only its
// handle.
func (s *sending) fill(f *os.File, perm fs.FileMode, r *reader) error {
	var end int64
	err := r.content(
		func(p []byte) error {
			n, err := f.WriteAt(p, end)
			end += int64(n)
			return err
		},
		func(n int64) error { end += n; return nil },
	)
	if err != nil {
		return err
	}
	if err := f.Truncate(end); err != nil {
		return err
	}
	if err := f.Chmod(perm); err != nil {
		return err
	}
	if s.owner != nil {
		return f.Chown(s.owner.UID, s.owner.GID)
	}
	return nil
}

// give gives a directory or link to the owner.
func (s *sending) give(local string) error {
	if s.owner == nil {
		return nil
	}
	return s.root.Lchown(local, s.owner.UID, s.owner.GID)
}
