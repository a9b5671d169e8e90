package workspace

import (
	"context"
	"time"

	"github.com/rathcluster/rath/blob"
)

// Index gives tests access to index.
type Index = index

// Snapshot, Restore, Import and Save are the steps of Checkout and Import.
func (x *index) Snapshot(ctx context.Context, b blob.Store, dir string, base blob.Digest, l Limits) (blob.Digest, error) {
	return x.snapshot(ctx, b, dir, base, l, nil)
}

func (x *index) Restore(ctx context.Context, b blob.Store, head blob.Digest, dir string) error {
	return x.restore(ctx, b, head, dir)
}

// LoadIndex reads the index of a directory.
func LoadIndex(folder, dir string) *Index { return loadIndex(folder, dir) }

// Known is the number of files that are not read again while they are unchanged.
func (x *index) Known() int { return len(x.files) }

// Forge sets another digest for a known file, to detect whether the file is read.
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

// Settled reports whether a walk that began at that time records a file with these times.
func Settled(mtime, ctime, began time.Time) bool {
	return stamp{mtime: mtime.UnixNano(), ctime: ctime.UnixNano()}.settled(began)
}
