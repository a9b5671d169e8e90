package workspace

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/manifest"
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
	at     uint64             // counts the walks
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
	since  uint64 // the walk that found this digest at the path
}

// kept is what is known of a store: it was given all files as of one walk.
type kept struct {
	head  blob.Digest
	at    uint64
	asked time.Time // when it was last asked for all of them
}

const (
	// tick is more than the clock of a file system takes from one time to the next, and
	// noFractions that of one that keeps no fractions.
	tick        = 50 * time.Millisecond
	noFractions = 2 * time.Second

	// keptFor is how long a store is presumed to hold what an Import has put there. What
	// was put or asked for is not removed for much longer than that, referred to or not.
	keptFor = 12 * time.Hour
	// keptSample is how many of the presumed blobs are asked for nevertheless, so that
	// most of a loss shows.
	keptSample = 64
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
	x.at++
	files := make(map[string]indexed, len(s.files))
	for _, f := range s.files {
		e := &s.entries[f.index]
		if f.known {
			files[e.Path] = x.files[e.Path]
		} else if st, ok := stampOf(f.info); ok && st.size == e.Size && st.settled(s.began) {
			files[e.Path] = indexed{stamp: st, digest: e.Digest, since: x.at}
			x.dirty = true
		}
	}
	x.dirty = x.dirty || len(files) != len(x.files)
	x.files = files
}

// snapshot is [Snapshot] of a directory that the index is of: files that it knows are not
// read. A nil index knows none.
func (x *index) snapshot(ctx context.Context, b blob.Store, dir string, base blob.Digest, l Limits) (blob.Digest, error) {
	var old *manifest.Tree
	if x != nil && x.tree != nil && x.head == base {
		old = x.tree
	} else {
		var err error
		if old, err = manifest.Load(ctx, b, base); err != nil {
			return blob.Digest{}, err
		}
	}
	s := &scan{ctx: ctx, blobs: b, limits: l, index: x, stored: make(map[blob.Digest]bool, old.Len())}
	for e := range old.Entries() {
		if e.Kind == manifest.File {
			s.stored[e.Digest] = true
		}
	}
	t, err := s.walk(dir)
	if err != nil {
		return blob.Digest{}, err
	}
	if !base.IsZero() && len(manifest.Compare(old, t)) == 0 {
		x.remember(base, old)
		return base, nil
	}
	t = t.Excluding(old.Excluded())
	head, err := t.Store(ctx, b)
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

// presume marks as stored what was put into the same store before, if the store still
// has the head that was put last, and a sample of the rest. It reports whether it does.
func (x *index) presume(s *scan) (bool, error) {
	k, ok := x.keptBy(s.store)
	if !ok {
		return false, nil
	}
	var all []blob.Digest
	for _, f := range s.files {
		if p := s.entries[f.index].Path; f.known && x.files[p].since <= k.at {
			all = append(all, s.entries[f.index].Digest)
		}
	}
	sample := []blob.Digest{k.head}
	for _, i := range rand.Perm(len(all))[:min(len(all), keptSample)] {
		sample = append(sample, all[i])
	}
	lacks, err := lacking(s.ctx, s.blobs, sample)
	if err != nil || lacks {
		return false, err
	}
	for _, d := range all {
		s.stored[d] = true
	}
	return true, nil
}

// keptBy returns what a store was given, unless that is long ago.
func (x *index) keptBy(store blob.Digest) (kept, bool) {
	if x == nil {
		return kept{}, false
	}
	k, ok := x.stores[store]
	age := time.Since(k.asked)
	return k, ok && age >= 0 && age < keptFor
}

// keep notes that a store has all files as of the last walk. asked is whether it was asked
// for all of them.
func (x *index) keep(store, head blob.Digest, asked bool) {
	if x == nil {
		return
	}
	k := x.stores[store]
	if k.head != head || asked {
		x.dirty = true
	}
	k.head, k.at = head, x.at
	if asked {
		k.asked = time.Now()
	}
	if x.stores == nil {
		x.stores = map[blob.Digest]kept{}
	}
	x.stores[store] = k
	for len(x.stores) > maxKept {
		oldest := store
		for s, k := range x.stores {
			if k.asked.Before(x.stores[oldest].asked) {
				oldest = s
			}
		}
		delete(x.stores, oldest)
	}
}

// lacking reports whether a store lacks one of some blobs.
func lacking(ctx context.Context, b blob.Store, ds []blob.Digest) (bool, error) {
	if far, ok := b.(blob.Prober); ok {
		missing, err := far.Missing(ctx, ds)
		return len(missing) > 0, err
	}
	for _, d := range ds {
		rc, err := b.Get(ctx, d)
		if errors.Is(err, blob.ErrNotFound) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if err := rc.Close(); err != nil {
			return false, err
		}
	}
	return false, nil
}
