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

// index remembers what the files of one directory held, so that a file that nothing has
// touched since is not read again. The zero index remembers nothing, and one call uses an
// index at a time.
//
// A file counts as untouched while its size, mode, inode and both its times are as they
// were. A program can set the time of modification back, but not the time of change, nor
// can it put another file under a path without another inode or time. Where a system
// keeps no such time, each file is read. As with the index of git, a file that was touched
// right before it was read is read again, because it can have been touched once more
// within the same tick of the file system's clock.
//
// A program that has a file mapped into its memory can write it without any trace, so the
// caller sees to it that no program that it does not trust runs while the directory is
// read.
type index struct {
	files  map[string]indexed // by path
	stores map[blob.Digest]kept
	dirty  bool // since it was loaded

	// Of the last Snapshot or Restore, so that its manifest is not read again.
	head blob.Digest
	tree *manifest.Tree

	name string // of the file that save writes
	dir  string // that is indexed, absolute and without links
}

// stamp is what a file system says of a regular file.
type stamp struct {
	size, mtime, ctime int64 // nanoseconds
	inode              uint64
	mode               uint32
}

type indexed struct {
	stamp
	digest blob.Digest
}

// kept is what is known of a store: the head that it was given last, and when.
type kept struct {
	head blob.Digest
	at   time.Time
}

const (
	// tick is more than the clock of a file system takes from one time to the next, and
	// noFractions that of one that keeps no fractions.
	tick        = 50 * time.Millisecond
	noFractions = 2 * time.Second

	// maxKept bounds the stores of an index.
	maxKept = 8
)

// settled reports whether a file cannot have been touched, since a walk began, without a
// trace in its times.
func (s stamp) settled(began time.Time) bool {
	slack := tick
	if s.ctime%int64(time.Second) == 0 {
		slack = noFractions
	}
	return max(s.mtime, s.ctime) < began.Add(-slack).UnixNano()
}

// known returns the digest of a file that is as it was.
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

// update takes over what a walk found.
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

// snapshot is [Snapshot] of a directory that the index is of: files that it knows are not
// read. A nil index knows none. With u, what it undoes is put back first.
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

// restore is [Restore] of what the index is of from now on: the files need not be read to
// be known. A nil index keeps nothing.
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

// last returns the tree that a store was given last, if it has it, and which of its
// blobs the store lacks by now.
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

// keep notes that a store has all files of a head.
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

// lacking returns which of some blobs a store lacks.
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
