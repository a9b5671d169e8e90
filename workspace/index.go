package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
)

// index records the contents of a directory's files, so that unchanged files are not read
// again. The zero index is empty. An index is not safe for concurrent use.
//
// A file counts as unchanged while its size, mode, inode, modification time and change time
// are the same. A program can reset the modification time but not the change time, and a
// file that replaces another one has another inode or time. On a system without change
// times every file is read. As in git's index, a file that changed right before it was read
// is read again, because a later change may fall into the same tick of the file system's
// clock.
//
// A program with a writable memory mapping can change a file without a trace. The caller
// must therefore ensure that no untrusted program runs while the directory is read.
type index struct {
	files  map[string]indexed // by path
	stores map[blob.Digest]kept
	dirty  bool // since it was loaded

	// The result of the last Snapshot or Restore, so that its manifest is not read again.
	head blob.Digest
	tree *manifest.Tree

	name string // of the file that save writes
	dir  string // of the indexed directory, absolute and without links
}

// stamp is the metadata of a regular file that changes with its contents.
type stamp struct {
	size, mtime, ctime int64 // nanoseconds
	inode              uint64
	mode               uint32
}

type indexed struct {
	stamp
	digest blob.Digest
}

// kept records the last head stored in a blob store, and the time.
type kept struct {
	head blob.Digest
	at   time.Time
}

const (
	// tick is more than the resolution of a file system's clock, and noFractions more than
	// that of a clock without fractions of a second.
	tick        = 50 * time.Millisecond
	noFractions = 2 * time.Second

	// maxKept bounds the stores of an index.
	maxKept = 8
)

// settled reports whether every change to a file since a walk began is visible in its
// times.
func (s stamp) settled(began time.Time) bool {
	slack := tick
	if s.ctime%int64(time.Second) == 0 {
		slack = noFractions
	}
	return max(s.mtime, s.ctime) < began.Add(-slack).UnixNano()
}

// known returns the digest of a file that is unchanged.
func (x *index) known(p string, fi fs.FileInfo) (blob.Digest, bool) {
	if x == nil {
		return blob.Digest{}, false
	}
	e, ok := x.files[p]
	if !ok {
		return blob.Digest{}, false
	}
	now, ok := stampOf(fi)
	return e.digest, ok && now == e.stamp
}

// update replaces the index by the results of a walk.
func (x *index) update(s *scan) {
	if x == nil {
		return
	}
	files := make(map[string]indexed, len(s.files))
	for _, f := range s.files {
		e := &s.entries[f.index]
		if f.known {
			files[e.Path] = x.files[e.Path]
		} else if st, ok := stampOf(f.info); ok && st.size == e.Size && st.settled(s.began) {
			files[e.Path] = indexed{stamp: st, digest: e.Digest}
			x.dirty = true
		}
	}
	x.dirty = x.dirty || len(files) != len(x.files)
	x.files = files
}

// snapshot is [Snapshot] of the index's directory. It does not read unchanged files. A nil
// index is empty. If u is not nil, the changes that it undoes are reverted first.
func (x *index) snapshot(ctx context.Context, b blob.Store, dir string, base blob.Digest, l Limits, u *undo) (blob.Digest, error) {
	var old *manifest.Tree
	if x != nil && x.tree != nil && x.head == base {
		old = x.tree
	} else {
		var err error
		if old, err = manifest.Load(ctx, b, base); err != nil {
			return blob.Digest{}, err
		}
	}
	s := &scan{ctx: ctx, blobs: b, limits: l, index: x, base: old, stored: old.Kept(nil)}
	t, err := s.walk(dir)
	if err != nil {
		return blob.Digest{}, err
	}
	changes := manifest.Compare(old, t)
	if t, changes, err = u.run(ctx, b, dir, old, t, changes); err != nil {
		return blob.Digest{}, err
	}
	if !base.IsZero() && len(changes) == 0 {
		x.remember(base, old)
		return base, nil
	}
	t, head, err := t.Excluding(old.Excluded()).Put(ctx, b)
	if err == nil {
		x.remember(head, t)
	}
	return head, err
}

func (x *index) remember(head blob.Digest, t *manifest.Tree) {
	if x != nil {
		x.head, x.tree = head, t
	}
}

// restore is [Restore], after which the index describes dir without reading the files
// again. A nil index stores nothing.
func (x *index) restore(ctx context.Context, b blob.Store, head blob.Digest, dir string) error {
	t, err := manifest.Load(ctx, b, head)
	if err != nil {
		return err
	}
	if err := restoreTree(ctx, b, t, dir); err != nil || x == nil {
		return err
	}
	*x = index{files: make(map[string]indexed, t.Len()), head: head, tree: t}
	s := &scan{ctx: ctx, limits: Limits{Files: t.Len(), Bytes: t.Bytes()}}
	if _, err := s.list(dir); err != nil {
		return nil //nolint:nilerr // what cannot be listed now is told by the snapshot
	}
	for _, f := range s.files {
		p := s.entries[f.index].Path
		st, ok := stampOf(f.info)
		if e, found := t.Lookup(p); ok && found && e.Kind == manifest.File && e.Size == st.size && st.settled(s.began) {
			x.files[p] = indexed{stamp: st, digest: e.Digest}
		}
	}
	return nil
}

// last returns the tree that was last stored in a blob store, if it still exists, and the
// blobs of it that the store lacks.
func (x *index) last(ctx context.Context, b blob.Store, store blob.Digest) (head blob.Digest, t *manifest.Tree, lacks map[blob.Digest]bool, err error) {
	none := func(err error) (blob.Digest, *manifest.Tree, map[blob.Digest]bool, error) {
		return blob.Digest{}, &manifest.Tree{}, nil, err
	}
	if x == nil || x.stores[store].head.IsZero() {
		return none(nil)
	}
	head = x.stores[store].head
	t, err = manifest.Load(ctx, b, head)
	if errors.Is(err, blob.ErrNotFound) || errors.Is(err, blob.ErrCorrupt) || errors.Is(err, manifest.ErrMalformed) || errors.Is(err, manifest.ErrNewer) {
		return none(nil) // all is stored again
	}
	if err != nil {
		return none(err)
	}
	lacks = map[blob.Digest]bool{}
	missing, err := lacking(ctx, b, slices.Collect(t.Blobs()))
	if err != nil {
		return none(fmt.Errorf("workspace: ask which files are stored: %w", err))
	}
	for _, d := range missing {
		lacks[d] = true
	}
	return head, t, lacks, nil
}

// keep records that a blob store has all files of a head.
func (x *index) keep(store, head blob.Digest) {
	if x == nil {
		return
	}
	x.dirty = x.dirty || x.stores[store].head != head
	if x.stores == nil {
		x.stores = map[blob.Digest]kept{}
	}
	x.stores[store] = kept{head: head, at: time.Now()}
	for len(x.stores) > maxKept {
		oldest := store
		for s, k := range x.stores {
			if k.at.Before(x.stores[oldest].at) {
				oldest = s
			}
		}
		delete(x.stores, oldest)
	}
}

// lacking returns the blobs of ds that a store lacks.
func lacking(ctx context.Context, b blob.Store, ds []blob.Digest) (missing []blob.Digest, err error) {
	if far, ok := b.(blob.Prober); ok {
		return far.Missing(ctx, ds)
	}
	for _, d := range ds {
		rc, err := b.Get(ctx, d)
		if errors.Is(err, blob.ErrNotFound) {
			missing = append(missing, d)
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := rc.Close(); err != nil {
			return nil, err
		}
	}
	return missing, nil
}
