package workspace

import (
	"context"
	"time"

	"github.com/rathcluster/rath/blob"
)

// Index is what tests make of an index.
type Index = index

// Snapshot, Restore, Import and Save are what Checkout and Import are made of.
func (x *index) Snapshot(ctx context.Context, b blob.Store, dir string, base blob.Digest, l Limits) (blob.Digest, error) {
	return x.snapshot(ctx, b, dir, base, l, nil)
}

func (x *index) Restore(ctx context.Context, b blob.Store, head blob.Digest, dir string) error {
	return x.restore(ctx, b, head, dir)
}

// LoadIndex reads the index of a directory.
func LoadIndex(folder, dir string) *Index { return loadIndex(folder, dir) }

// Known is how many files need not be read while nothing touches them.
func (x *index) Known() int { return len(x.files) }

// Forge makes the index say something else of a file that it knows, to tell whether the
// file is read.
func (x *index) Forge(path string, d blob.Digest) {
	e := x.files[path]
	e.digest = d
	x.files[path] = e
}

// Encode and Decode are the bytes of the file of an index of a directory.
func (x *index) Encode() []byte { return x.encode() }

func Decode(dir string, data []byte) *Index {
	x := &index{dir: dir}
	x.decode(data)
	return x
}

// Settled reports whether a walk that began then knows a file of these times.
func Settled(mtime, ctime, began time.Time) bool {
	return stamp{mtime: mtime.UnixNano(), ctime: ctime.UnixNano()}.settled(began)
}
