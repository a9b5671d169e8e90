package workspace

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/filename"
	"github.com/rathcluster/rath/internal/files/manifest"
)

// inMemory is the maximum size of a file that is read once, into memory, and stored in a
// pack with others. A larger file is read a second time if it has to be stored.
const inMemory = 1 << 20

// partSize is the size of the parts in which a larger file is stored.
const partSize = 16 << 20

// Snapshot stores the files of dir and returns their head. It does not store blobs again
// that base holds; the zero base holds none. It stores the blobs before the head, so a
// returned head can be restored.
//
// The head inherits the exclusion rules of base: see [Import] and [Plan].
//
// Snapshot makes files and directories readable that their owner may not read, because
// commands may leave such files.
//
// A path that a workspace cannot hold is a *RefusedError; too many or too large files are a
// *LimitError. No program should write below dir during the call: each file is stored in
// the state of some moment, but two files may be of different moments.
func Snapshot(ctx context.Context, b blob.Store, dir string, base blob.Digest, l Limits) (blob.Digest, error) {
	return (*index)(nil).snapshot(ctx, b, dir, base, l, nil)
}

// readers is the maximum number of files that are read and stored concurrently.
const readers = 8

// scan is one walk over a directory.
type scan struct {
	ctx     context.Context
	root    *os.Root
	blobs   blob.Store
	limits  Limits
	began   time.Time
	entries []manifest.Entry
	files   []found
	bytes   int64 // of the files as they were listed
	listing listing
	filter  *filter // the excluded paths; nil excludes none
	index   *index  // may be nil
	base    *manifest.Tree
	stored  map[blob.Digest]bool // blobs of base's files that keep their location
	packs   []*manifest.Pack

	mu    sync.Mutex
	spare int64         // bytes by which files may still grow; guarded by mu
	large manifest.Pack // notes the parts of large files; guarded by mu
}

// found is a regular file of the walk.
type found struct {
	index int // in entries
	info  fs.FileInfo
	known bool // the index has its digest
}

// walk lists a directory and stores its files.
func (s *scan) walk(dir string) (*manifest.Tree, error) {
	t, err := s.list(dir)
	if err == nil {
		s.index.update(s)
	}
	return t, err
}

// list lists a directory and, if there is a store, stores its files.
func (s *scan) list(dir string) (*manifest.Tree, error) {
	if fi, err := os.Lstat(dir); err == nil && fi.IsDir() {
		if err := s.openUp(fi, func(m fs.FileMode) error { return os.Chmod(dir, m) }); err != nil {
			return nil, fmt.Errorf("workspace: snapshot: %w", err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("workspace: snapshot: %w", err)
	}
	defer root.Close()
	s.root, s.limits, s.began = root, s.limits.orDefault(), time.Now()
	if err := s.dir(place{root, ""}, "."); err != nil || s.blobs == nil {
		return nil, err
	}
	s.spare = s.limits.Bytes - s.bytes
	if err := s.storeFiles(); err != nil {
		return nil, err
	}
	t, err := manifest.NewTree(s.entries, s.base)
	if err != nil {
		return nil, err
	}
	return t.Packed(append(s.packs, &s.large)...), nil
}

// job is the work of one goroutine: a large file, or several small ones that share a pack.
type job struct {
	files []found
	pack  *manifest.Pack // nil for a large file
}

// storeFiles stores the files that the store lacks, small ones in packs. The walk alone
// determines the files of each pack, so the same files produce the same packs.
func (s *scan) storeFiles() error {
	var jobs []job
	room, packing := int64(0), 0 // of the last pack, and its job
	for i := range s.files {
		f := &s.files[i]
		e := &s.entries[f.index]
		if e.Digest, f.known = s.index.known(e.Path, f.info); f.known {
			e.Size = f.info.Size()
			if s.stored[e.Digest] || e.Size == 0 {
				continue
			}
		}
		size := f.info.Size()
		switch {
		case size > inMemory:
			jobs = append(jobs, job{files: []found{*f}})
		case len(s.packs) == 0 || size > room:
			s.packs, room, packing = append(s.packs, new(manifest.Pack)), manifest.PackSize, len(jobs)
			jobs = append(jobs, job{pack: s.packs[len(s.packs)-1]})
			fallthrough
		default:
			jobs[packing].files = append(jobs[packing].files, *f)
			room -= size
		}
	}
	return s.each(jobs)
}

// each runs the jobs with bounded concurrency; an error stops all of them. Of several
// errors it returns the one of the first file, so that the result is deterministic.
func (s *scan) each(jobs []job) error {
	outer := s.ctx
	ctx, cancel := context.WithCancelCause(outer)
	defer func() { s.ctx = outer }()
	defer cancel(nil)
	s.ctx = ctx
	work := make(chan job)
	var wg sync.WaitGroup
	first, firstErr := len(s.entries), error(nil)
	for range min(readers, len(jobs)) {
		wg.Go(func() {
			for j := range work {
				at, err := s.do(j)
				if err == nil {
					continue
				}
				s.mu.Lock()
				if at < first {
					first, firstErr = at, err
				}
				s.mu.Unlock()
				cancel(err)
			}
		})
	}
	for _, j := range jobs {
		if ctx.Err() != nil {
			break
		}
		work <- j
	}
	close(work)
	wg.Wait()
	if firstErr != nil {
		return firstErr
	}
	return context.Cause(ctx)
}

// do runs one job. With an error it returns the index of the entry that failed.
func (s *scan) do(j job) (int, error) {
	for _, f := range j.files {
		e := &s.entries[f.index]
		ref, err := s.file(e.Path, f.info, j.pack)
		if err != nil {
			return f.index, err
		}
		e.Size, e.Digest = ref.Size, ref.Digest
	}
	if j.pack == nil {
		return 0, nil
	}
	return j.files[0].index, j.pack.Store(s.ctx, s.blobs)
}

// place is the location of a directory: its own handle, or a path relative to another
// one's.
type place struct {
	root *os.Root
	path string
}

// maxHandles is the depth up to which directories are walked by handles of their own.
const maxHandles = 32

func (l place) lstat(name string) (fs.FileInfo, error) { return l.root.Lstat(path.Join(l.path, name)) }

// dir adds the contents of the directory at p; "." is the root.
func (s *scan) dir(at place, p string) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	names, err := s.names(at, p)
	if err != nil {
		return err
	}
	if s.filter != nil {
		if err := s.filter.enter(s.root, p, names); err != nil {
			return err
		}
	}
	for _, name := range names {
		child := path.Join(p, filename.Escape(name))
		fi, err := at.lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if err != nil {
			return &RefusedError{Path: child, Reason: Unreadable, Err: err}
		}
		if s.filter != nil && s.filter.leavesOut(child, fi.IsDir()) {
			continue
		}
		if manifest.CheckPath(child) != nil {
			if s.filter == nil {
				return &RefusedError{Path: child, Reason: BadName}
			}
			s.filter.note(child, fi.IsDir(), BadName, false)
			continue
		}
		if err := s.add(at, name, child, fi); err != nil {
			return err
		}
	}
	return nil
}

// names lists a directory. It reads no further than the limit of entries allows, so even a
// directory of a million files costs no more than the limit.
func (s *scan) names(at place, p string) ([]string, error) {
	f, err := at.root.OpenFile(path.Join(at.path, "."), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, &RefusedError{Path: p, Reason: Unreadable, Err: err}
	}
	defer f.Close()
	left := s.limits.Files - len(s.entries)
	names, err := f.Readdirnames(left + 1)
	if err != nil && err != io.EOF {
		return nil, &RefusedError{Path: p, Reason: Unreadable, Err: err}
	}
	slices.Sort(names)
	if len(names) > left {
		return nil, &LimitError{Path: path.Join(p, names[left]), What: "files", Limit: int64(s.limits.Files)}
	}
	return names, nil
}

// add adds the entry called name of the directory at.
func (s *scan) add(at place, name, p string, fi fs.FileInfo) error {
	if len(s.entries) >= s.limits.Files {
		return &LimitError{Path: p, What: "files", Limit: int64(s.limits.Files)}
	}
	if err := s.listing.add(p, p); err != nil {
		return err
	}
	switch fi.Mode().Type() {
	case fs.ModeDir:
		if err := s.openUp(fi, func(m fs.FileMode) error { return at.root.Chmod(path.Join(at.path, name), m) }); err != nil {
			return &RefusedError{Path: p, Reason: Unreadable, Err: err}
		}
		s.entries = append(s.entries, manifest.Entry{Path: p, Kind: manifest.Dir})
		if strings.Count(p, "/") >= maxHandles {
			return s.dir(place{s.root, filename.FromSlash(p)}, p)
		}
		below, err := at.root.OpenRoot(path.Join(at.path, name))
		if err != nil {
			return &RefusedError{Path: p, Reason: Unreadable, Err: err}
		}
		defer below.Close()
		return s.dir(place{below, ""}, p)
	case fs.ModeSymlink:
		raw, err := at.root.Readlink(path.Join(at.path, name))
		if err != nil {
			return &RefusedError{Path: p, Reason: Unreadable, Err: err}
		}
		target := filename.Escape(raw)
		if manifest.CheckTarget(target) != nil {
			return &RefusedError{Path: p, Reason: BadName}
		}
		if err := s.listing.add(p, target); err != nil {
			return err
		}
		s.entries = append(s.entries, manifest.Entry{Path: p, Kind: manifest.Symlink, Target: target})
		return nil
	case 0:
		if err := s.openUp(fi, func(m fs.FileMode) error { return at.root.Chmod(path.Join(at.path, name), m) }); err != nil {
			return &RefusedError{Path: p, Reason: Unreadable, Err: err}
		}
		if s.bytes += fi.Size(); s.bytes > s.limits.Bytes {
			return &LimitError{Path: p, What: "bytes", Limit: s.limits.Bytes}
		}
		s.files = append(s.files, found{index: len(s.entries), info: fi})
		s.entries = append(s.entries, manifest.Entry{Path: p, Kind: manifest.File, Exec: fi.Mode()&0o100 != 0})
		return nil
	default:
		return &RefusedError{Path: p, Reason: SpecialFile}
	}
}

// openUp makes a file readable that a command made unreadable: a workspace does not store
// that permission. It does not change files in a user's directory.
func (s *scan) openUp(fi fs.FileInfo, chmod func(fs.FileMode) error) error {
	need := fs.FileMode(0o400)
	if fi.IsDir() {
		need = 0o500
	}
	if s.filter != nil || fi.Mode()&need == need {
		return nil
	}
	return chmod(fi.Mode().Perm() | need)
}

// file stores one regular file unless it is stored already: in the pack, or as a separate
// blob if it is large.
func (s *scan) file(p string, listed fs.FileInfo, pack *manifest.Pack) (blob.Ref, error) {
	f, fi, err := openRegular(s.root, p)
	if err != nil {
		return blob.Ref{}, err
	}
	defer f.Close()
	if err := s.severalNames(p, f, fi); err != nil {
		return blob.Ref{}, err
	}
	if !os.SameFile(listed, fi) {
		return blob.Ref{}, &RefusedError{Path: p, Reason: Unstable}
	}
	s.mu.Lock()
	most := listed.Size() + s.spare
	s.mu.Unlock()
	if pack != nil {
		// A file that grew beyond the limit is read like a large file.
		data, err := io.ReadAll(io.LimitReader(f, inMemory+1))
		if err != nil {
			return blob.Ref{}, &RefusedError{Path: p, Reason: Unreadable, Err: err}
		}
		if len(data) <= inMemory && pack.Fits(len(data)) {
			ref := blob.Ref{Digest: blob.Sum(data), Size: int64(len(data))}
			if ref.Size > most || !s.grow(ref.Size-listed.Size()) {
				return blob.Ref{}, &LimitError{Path: p, What: "bytes", Limit: s.limits.Bytes}
			}
			if !s.stored[ref.Digest] {
				pack.Add(ref.Digest, data)
			}
			return ref, nil
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return blob.Ref{}, &RefusedError{Path: p, Reason: Unreadable, Err: err}
		}
	}

	var ref blob.Ref
	var parts []blob.Digest
	if fi.Size() > partSize {
		ref, parts, err = hashParts(s.ctx, io.LimitReader(f, most+1))
	} else {
		ref, err = hashFile(s.ctx, io.LimitReader(f, most+1))
	}
	if err != nil {
		return blob.Ref{}, readError(s.ctx, p, err)
	}
	if !s.grow(ref.Size - listed.Size()) {
		return blob.Ref{}, &LimitError{Path: p, What: "bytes", Limit: s.limits.Bytes}
	}
	if s.stored[ref.Digest] {
		return ref, nil
	}
	if len(parts) > 1 {
		return ref, s.putParts(p, f, ref, parts)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return blob.Ref{}, &RefusedError{Path: p, Reason: Unreadable, Err: err}
	}
	// The file may have changed since it was hashed: the store's word counts.
	ref, err = s.blobs.Put(s.ctx, io.LimitReader(f, ref.Size))
	if err != nil {
		return blob.Ref{}, fmt.Errorf("workspace: store %q: %w", p, err)
	}
	return ref, nil
}

// putParts stores the parts of a large file that the store lacks.
func (s *scan) putParts(p string, f *os.File, whole blob.Ref, parts []blob.Digest) error {
	missing := parts
	if far, ok := s.blobs.(blob.Prober); ok {
		var err error
		if missing, err = far.Missing(s.ctx, parts); err != nil {
			return fmt.Errorf("workspace: ask which parts of %q are stored: %w", p, err)
		}
	}
	for i, d := range parts {
		if !slices.Contains(missing, d) {
			continue
		}
		if _, err := f.Seek(int64(i)*partSize, io.SeekStart); err != nil {
			return &RefusedError{Path: p, Reason: Unreadable, Err: err}
		}
		ref, err := s.blobs.Put(s.ctx, io.LimitReader(f, min(partSize, whole.Size-int64(i)*partSize)))
		if err != nil {
			return fmt.Errorf("workspace: store %q: %w", p, err)
		}
		if ref.Digest != d {
			return &RefusedError{Path: p, Reason: Unstable}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.large.AddParts(whole.Digest, whole.Size, parts)
	return nil
}

// hashParts reads r to its end and returns the digests of the whole and of each part.
func hashParts(ctx context.Context, r io.Reader) (whole blob.Ref, parts []blob.Digest, err error) {
	all := sha256.New()
	for {
		part := sha256.New()
		n, err := io.Copy(io.MultiWriter(all, part), &ctxReader{ctx, io.LimitReader(r, partSize)})
		if err != nil {
			return blob.Ref{}, nil, err
		}
		if n > 0 {
			parts = append(parts, blob.Digest(part.Sum(nil)))
		}
		if whole.Size += n; n < partSize {
			whole.Digest = blob.Digest(all.Sum(nil))
			return whole, parts, nil
		}
	}
}

// grow deducts the growth of a file since it was listed from the spare bytes, and reports
// whether any are left.
func (s *scan) grow(by int64) bool {
	if by <= 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare -= by
	return s.spare >= 0
}

// hashFile reads a file to its end.
func hashFile(ctx context.Context, r io.Reader) (blob.Ref, error) {
	h := sha256.New()
	n, err := io.Copy(h, &ctxReader{ctx, r})
	return blob.Ref{Digest: blob.Digest(h.Sum(nil)), Size: n}, err
}

// severalNames rejects a file with a second name, which may lie outside: a command could
// have linked a file that it may not read. In a user's directory each name counts as a
// file.
func (s *scan) severalNames(p string, f *os.File, fi fs.FileInfo) error {
	if s.filter != nil {
		return nil
	}
	n, err := linkCount(f, fi)
	if err != nil {
		return &RefusedError{Path: p, Reason: Unreadable, Err: err}
	}
	if n > 1 {
		return &RefusedError{Path: p, Reason: HardLink}
	}
	return nil
}

// openRegular opens a regular file. It never blocks, whatever kind of file is at p, and it
// checks the kind after opening.
func openRegular(root *os.Root, p string) (*os.File, fs.FileInfo, error) {
	f, err := root.OpenFile(filename.FromSlash(p), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, &RefusedError{Path: p, Reason: Unreadable, Err: err}
	}
	fi, err := f.Stat()
	refuse := func(r string, err error) (*os.File, fs.FileInfo, error) {
		f.Close()
		return nil, nil, &RefusedError{Path: p, Reason: r, Err: err}
	}
	if err != nil {
		return refuse(Unreadable, err)
	}
	if !fi.Mode().IsRegular() {
		return refuse(SpecialFile, nil)
	}
	return f, fi, nil
}

func readError(ctx context.Context, p string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &RefusedError{Path: p, Reason: Unreadable, Err: err}
}

// ctxReader stops a long read when ctx ends, between two reads.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
