package manifest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/rathcluster/rath/blob"
)

// place is the location of a file's bytes that are not a blob of their own: in a pack, or
// in consecutive blobs.
type place struct {
	pack   blob.Digest
	at     int64 // in the pack
	length int64 // there; compressed unless it is the size
	size   int64
	parts  []blob.Digest
}

// dirPlace names a directory in the blob of a head.
type dirPlace struct {
	head blob.Digest
	n    int
}

const (
	// smallPack is the size of a tree's files in a pack below which the pack counts as small.
	// maxSmallPacks is the maximum number of small packs of a tree: beyond it, a snapshot
	// packs their files again.
	smallPack     = PackSize / 8
	maxSmallPacks = 64
	// cachedPacks is the number of packs that a reader of files caches.
	cachedPacks = 8
)

// Kept returns the digests of the files whose bytes a successor of the tree may leave in
// place. lacks names blobs that the store lacks. Files in too many small packs are
// excluded, so that a tree uses few packs.
func (t *Tree) Kept(lacks map[blob.Digest]bool) map[blob.Digest]bool {
	used := map[blob.Digest]int64{}
	for d := range t.digests() {
		if p, ok := t.places[d]; ok && p.parts == nil {
			used[p.pack] += p.length
		}
	}
	small := 0
	for _, n := range used {
		if n < smallPack {
			small++
		}
	}
	kept := make(map[blob.Digest]bool, len(t.entries))
	for d := range t.digests() {
		p, ok := t.places[d]
		switch {
		case !ok:
			kept[d] = !lacks[d]
		case p.parts != nil:
			kept[d] = !slices.ContainsFunc(p.parts, func(d blob.Digest) bool { return lacks[d] })
		default:
			kept[d] = !lacks[p.pack] && (small <= maxSmallPacks || used[p.pack] >= smallPack)
		}
	}
	return kept
}

// Lacking returns the same tree for a store that lacks some blobs: it names no directory in
// these blobs.
func (t *Tree) Lacking(lacks map[blob.Digest]bool) *Tree {
	if !slices.ContainsFunc(t.heads, func(d blob.Digest) bool { return lacks[d] }) {
		return t
	}
	out := *t
	out.dirs, out.heads = nil, nil
	return &out
}

// digests yields the digest of each file's bytes once. Empty files have none.
func (t *Tree) digests() iter.Seq[blob.Digest] {
	return func(yield func(blob.Digest) bool) {
		seen := make(map[blob.Digest]bool, len(t.entries))
		for _, e := range t.entries {
			if e.Kind != File || e.Size == 0 || seen[e.Digest] {
				continue
			}
			if seen[e.Digest] = true; !yield(e.Digest) {
				return
			}
		}
	}
}

// Blobs yields each blob that a reader of the tree needs, those of its heads first. For a
// tree that is not stored yet, the heads are those of the trees that it derives from.
func (t *Tree) Blobs() iter.Seq[blob.Digest] {
	return func(yield func(blob.Digest) bool) {
		seen := map[blob.Digest]bool{}
		once := func(d blob.Digest) bool {
			if seen[d] {
				return true
			}
			seen[d] = true
			return yield(d)
		}
		for _, d := range t.heads {
			if !once(d) {
				return
			}
		}
		for d := range t.digests() {
			blobs := []blob.Digest{d}
			if p, ok := t.places[d]; ok && p.parts != nil {
				blobs = p.parts
			} else if ok {
				blobs[0] = p.pack
			}
			for _, b := range blobs {
				if !once(b) {
					return
				}
			}
		}
	}
}

// Files is a store whose Get finds the files of some trees by the digests of their bytes,
// including files in packs. It asks the underlying store for other digests. Its methods may
// be called concurrently.
type Files struct {
	blob.Store
	dec func() *zstd.Decoder

	mu     sync.Mutex
	places map[blob.Digest]place // guarded by mu
	packs  []*cachedPack         // most recently used first; guarded by mu
}

// NewFiles returns the files of some trees in b.
func NewFiles(b blob.Store, trees ...*Tree) *Files {
	f := &Files{Store: b, dec: sync.OnceValue(newDecoder), places: map[blob.Digest]place{}}
	for _, t := range trees {
		f.Add(t)
	}
	return f
}

// Add adds the files of one more tree.
func (f *Files) Add(t *Tree) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.Copy(f.places, t.places)
}

// cachedPack is read by the first caller that needs it.
type cachedPack struct {
	name blob.Digest
	once sync.Once
	data []byte
	err  error
}

var noBytes = blob.Sum(nil)

// Get implements blob.Store.
func (f *Files) Get(ctx context.Context, d blob.Digest) (io.ReadCloser, error) {
	if d == noBytes {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	f.mu.Lock()
	p, ok := f.places[d]
	f.mu.Unlock()
	switch {
	case !ok:
		return f.Store.Get(ctx, d)
	case p.parts != nil:
		return blob.Verify(&partsReader{ctx: ctx, b: f.Store, parts: p.parts}, d), nil
	}
	pack, err := f.pack(ctx, p.pack)
	if err != nil {
		return nil, err
	}
	if p.at > int64(len(pack)) || p.length > int64(len(pack))-p.at {
		return nil, fmt.Errorf("%w: %s lies behind the end of pack %s", ErrMalformed, d.Short(), p.pack.Short())
	}
	data := pack[p.at : p.at+p.length]
	if p.length != p.size {
		if data, err = unpack(f.dec(), data, p.size); err != nil {
			return nil, fmt.Errorf("%w: %s in pack %s: %w", blob.ErrCorrupt, d.Short(), p.pack.Short(), err)
		}
	}
	return blob.Verify(io.NopCloser(bytes.NewReader(data)), d), nil
}

// pack returns the bytes of a pack.
func (f *Files) pack(ctx context.Context, d blob.Digest) ([]byte, error) {
	f.mu.Lock()
	i := slices.IndexFunc(f.packs, func(c *cachedPack) bool { return c.name == d })
	c := &cachedPack{name: d}
	if i >= 0 {
		c = f.packs[i]
		f.packs = slices.Delete(f.packs, i, i+1)
	}
	f.packs = slices.Insert(f.packs, 0, c)
	f.packs = f.packs[:min(len(f.packs), cachedPacks)]
	f.mu.Unlock()
	c.once.Do(func() { c.data, c.err = readBlob(ctx, f.Store, d, maxPack) })
	if c.err != nil { // the next caller tries again
		f.mu.Lock()
		f.packs = slices.DeleteFunc(f.packs, func(o *cachedPack) bool { return o == c })
		f.mu.Unlock()
	}
	return c.data, c.err
}

// readBlob reads a blob of a bounded size.
func readBlob(ctx context.Context, b blob.Store, d blob.Digest, most int64) ([]byte, error) {
	rc, err := b.Get(ctx, d)
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	data, err := io.ReadAll(io.LimitReader(rc, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%w: %s has more than %d bytes", ErrMalformed, d.Short(), most)
	}
	return data, err
}

// partsReader reads blobs one after the other.
type partsReader struct {
	ctx   context.Context
	b     blob.Store
	parts []blob.Digest
	at    io.ReadCloser // nil before the first, and between two
}

func (r *partsReader) Read(p []byte) (int, error) {
	for {
		if r.at == nil {
			if len(r.parts) == 0 {
				return 0, io.EOF
			}
			rc, err := r.b.Get(r.ctx, r.parts[0])
			if err != nil {
				return 0, err
			}
			r.at, r.parts = rc, r.parts[1:]
		}
		n, err := r.at.Read(p)
		if err != io.EOF {
			return n, err
		}
		err = r.at.Close()
		if r.at = nil; n > 0 || err != nil {
			return n, err
		}
	}
}

func (r *partsReader) Close() error {
	if r.at == nil {
		return nil
	}
	return r.at.Close()
}
