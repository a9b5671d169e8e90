package mirror

import (
	"context"
	"crypto/sha256"
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
	"time"

	"github.com/rathcluster/rath/internal/sandbox/directory"
)

// Host is the Tree of a directory of this host. It accesses all files through os.Root, so
// other processes may change the directory concurrently.
type Host struct {
	root  *os.Root
	owner *directory.Owner
}

var _ Tree = (*Host)(nil)

// Open opens a directory. Entries that Send creates there belong to owner, to whom this
// process must be allowed to give files; nil is this process's user.
func Open(dir string, owner *directory.Owner) (*Host, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Host{root, owner}, nil
}

// Close closes the directory.
func (h *Host) Close() error { return h.root.Close() }

const (
	// tick exceeds the resolution of a file system's clock, and noFractions the resolution
	// of a clock without fractions of a second.
	tick        = 50 * time.Millisecond
	noFractions = 2 * time.Second

	// handles is the depth to which directories have handles of their own during a walk,
	// and below that the distance between directories that have one.
	handles = 32
)

// settled reports whether a change of the file at or after a time would change its stamp.
func (s stamp) settled(at time.Time) bool {
	slack := tick
	if s.ctime%int64(time.Second) == 0 {
		slack = noFractions
	}
	return s.ok && max(s.mtime, s.ctime) < at.Add(-slack).UnixNano()
}

// walk is one listing.
type walk struct {
	ctx   context.Context
	began time.Time
	sum   map[string]bool
	list  []Entry
	names listing
	// most bounds the entries. open counts the names that were read and not yet visited, in
	// all open directories.
	most, open int
}

// List implements Tree.
func (h *Host) List(ctx context.Context, sum []string) ([]Entry, error) {
	w := &walk{ctx: ctx, began: time.Now(), sum: make(map[string]bool, len(sum)), most: DefaultEntries}
	for _, n := range sum {
		w.sum[n] = true
	}
	if err := w.dir(h.root, ".", ""); err != nil {
		return nil, err
	}
	slices.SortFunc(w.list, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return w.list, nil
}

// dir lists a directory, which is named at below root and p below the tree. It closes the
// directory before it visits the entries, so that a deep tree needs few open files.
func (w *walk) dir(root *os.Root, at, p string) error {
	names, err := readNames(root, at, w.most-len(w.list)-w.open)
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("mirror: list %q: %w", p, err)
	}
	if w.open += len(names); len(w.list)+w.open > w.most {
		return tooMany(w.most)
	}
	for _, name := range names {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		w.open--
		if err := w.add(root, path.Join(at, name), path.Join(p, name)); err != nil {
			return err
		}
	}
	return nil
}

func tooMany(most int) *FullError {
	return &FullError{fmt.Sprintf("more than %d files, directories and links", most)}
}

// readNames lists a directory, up to most+1 names.
func readNames(root *os.Root, at string, most int) ([]string, error) {
	f, err := root.OpenFile(filepath.FromSlash(at), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(most + 1)
	if err == io.EOF {
		err = nil
	}
	return names, err
}

// gone reports an error due to a concurrent removal or replacement of a name.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

func (w *walk) add(root *os.Root, at, p string) error {
	if len(p) > maxPath {
		return tooLong()
	}
	if err := w.names.add(p); err != nil {
		return err
	}
	local := filepath.FromSlash(at)
	fi, err := root.Lstat(local)
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("mirror: look at %q: %w", p, err)
	}
	e := Entry{Path: p}
	switch fi.Mode().Type() {
	case fs.ModeDir:
		e.Kind = Dir
		openUp(root, local, fi, 0o700)
		w.list = append(w.list, e)
		if depth := strings.Count(p, "/"); depth >= handles && depth%handles != 0 {
			return w.dir(root, at, p)
		}
		below, err := root.OpenRoot(local)
		if gone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("mirror: list %q: %w", p, err)
		}
		defer below.Close()
		return w.dir(below, ".", p)
	case fs.ModeSymlink:
		if e.Target, err = root.Readlink(local); err != nil {
			if gone(err) || errors.Is(err, syscall.EINVAL) {
				return nil
			}
			return fmt.Errorf("mirror: read the link %q: %w", p, err)
		}
		if err := w.names.add(e.Target); err != nil {
			return err
		}
		e.Kind = Link
	case 0:
		st := stampOf(fi)
		e.Kind, e.Size, e.Exec = File, fi.Size(), fi.Mode()&0o100 != 0
		e.Stamp, e.Settled = st.String(), st.settled(w.began)
		openUp(root, local, fi, 0o400)
		if w.sum[p] {
			e.Sum = sumOf(root, local)
		}
	default:
		e.Kind = Special
	}
	w.list = append(w.list, e)
	return nil
}

// openUp makes an entry readable that its owner made inaccessible, as a snapshot does. A
// failure shows when the entry is read.
func openUp(root *os.Root, local string, fi fs.FileInfo, need fs.FileMode) {
	if fi.Mode()&need != need {
		_ = root.Chmod(local, fi.Mode().Perm()|need)
	}
}

// sumOf returns the digest of a file, or zero if it cannot be read.
func sumOf(root *os.Root, local string) (sum [sha256.Size]byte) {
	f, _, err := openFile(root, local)
	if err != nil {
		return sum
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum
	}
	return [sha256.Size]byte(h.Sum(nil))
}

var errNotFile = errors.New("not a regular file")

// openFile opens a regular file. Opening without blocking and checking afterwards leaves no
// moment in which a FIFO could be put under the name.
func openFile(root *os.Root, local string) (*os.File, fs.FileInfo, error) {
	f, err := root.OpenFile(local, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = errNotFile
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, fi, nil
}

// Fetch implements Tree. A growing file is sent as of some moment. A file that was removed,
// or is no longer a file, is skipped.
func (h *Host) Fetch(ctx context.Context, names []string, to io.Writer) error {
	w := newWriter(to)
	for _, name := range names {
		err := ctx.Err()
		if err == nil {
			err = h.fetch(name, w)
		}
		if err != nil {
			err = fmt.Errorf("mirror: read %q: %w", name, err)
			w.end(err)
			return errors.Join(err, w.flush())
		}
	}
	w.end(nil)
	return w.flush()
}

func (h *Host) fetch(name string, w *writer) error {
	if err := checkPath(name); err != nil {
		return err
	}
	local := filepath.FromSlash(name)
	// A link would be followed, although the listing had a file.
	if fi, err := h.root.Lstat(local); err != nil || !fi.Mode().IsRegular() {
		return nil //nolint:nilerr // gone
	}
	f, fi, err := openFile(h.root, local)
	if gone(err) || errors.Is(err, errNotFile) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	w.file(Entry{Path: name, Kind: File, Size: fi.Size(), Exec: fi.Mode()&0o100 != 0})
	return w.content(f)
}
