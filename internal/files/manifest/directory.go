package manifest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/ignore"
)

// The blob of a head of format 3 holds the directories that earlier heads do not hold, the
// root first, and refers to the blobs of earlier heads for the others. The size of a head
// is therefore that of the changed directories and their parents, not of the whole tree.

// Bounds of a head of format 3 that are part of the format.
const (
	maxEntries = 1 << 20   // of the tree
	maxPaths   = 256 << 20 // bytes of all paths of the tree together
	maxHeads   = 256       // blobs with directories of one tree

	// rewrite is the number of blobs with directories of one tree at which all directories
	// are rewritten to one blob.
	rewrite = 32
)

// wireHead is the blob of a head.
type wireHead struct {
	Format  int            `json:"format"`
	Exclude []string       `json:"exclude,omitempty"`
	Heads   []blob.Digest  `json:"heads,omitempty"` // with other directories
	Packs   []blob.Digest  `json:"packs,omitempty"`
	Dirs    [][]*wireEntry `json:"dirs"` // a directory precedes its subdirectories
}

// wireEntry is a name in a directory.
type wireEntry struct {
	Name   string      `json:"name"`
	Kind   Kind        `json:"kind"`
	Exec   bool        `json:"exec,omitempty"`
	Size   int64       `json:"size,omitempty"`
	Digest blob.Digest `json:"digest,omitzero"`
	Target string      `json:"target,omitempty"`

	// The location of a file in a pack: the number of the pack, counted from 1, its offset,
	// and its number of bytes there. The bytes are compressed by zstd, unless their number
	// equals Size.
	Pack int   `json:"pack,omitempty"`
	At   int64 `json:"at,omitempty"`
	Len  int64 `json:"len,omitempty"`
	// Of a file that is not stored as a whole: blobs that follow each other.
	Parts []blob.Digest `json:"parts,omitempty"`

	// The location of a directory: its number, counted from 1, in this blob or in the blob of
	// Heads.
	Dir  int `json:"dir,omitempty"`
	Head int `json:"head,omitempty"`
}

// Read returns the tree of a head, using get to read blobs. The zero head is the empty
// tree. Errors of get are returned unchanged; others wrap ErrMalformed or ErrNewer.
func Read(head blob.Digest, get func(blob.Digest) ([]byte, error)) (*Tree, error) {
	if head.IsZero() {
		return &Tree{}, nil
	}
	data, err := get(head)
	if err != nil {
		return nil, err
	}
	var m struct {
		Format int `json:"format"`
	}
	err = json.Unmarshal(data, &m)
	if err == nil && m.Format == formatDirs {
		r := &reader{get: get, heads: map[blob.Digest]*wireHead{}, t: &Tree{places: map[blob.Digest]place{}, dirs: map[blob.Digest]dirPlace{}}}
		return r.read(head, data)
	}
	if err == nil && m.Format > formatDirs && Looks(data) {
		return nil, fmt.Errorf("%w: format %d of %s", ErrNewer, m.Format, head.Short())
	}
	t, err := decodeFlat(data)
	if err == nil {
		t.heads = []blob.Digest{head}
	}
	return t, err
}

// reader puts a tree together.
type reader struct {
	get   func(blob.Digest) ([]byte, error)
	heads map[blob.Digest]*wireHead
	t     *Tree
	paths int
}

func (r *reader) read(head blob.Digest, data []byte) (*Tree, error) {
	h, err := r.decode(head, data)
	if err != nil {
		return nil, err
	}
	if len(h.Exclude) > 0 {
		if r.t.exclude, err = ignore.Parse(h.Exclude); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	if _, err := r.dir(dirPlace{head, 0}, ""); err != nil {
		return nil, err
	}
	r.t.heads = slices.SortedFunc(maps.Keys(r.heads), compareDigests)
	r.t.sort()
	if err := r.t.check(); err != nil {
		return nil, err
	}
	return r.t, nil
}

func compareDigests(a, z blob.Digest) int { return bytes.Compare(a[:], z[:]) }

// decode reads the blob of a head.
func (r *reader) decode(d blob.Digest, data []byte) (*wireHead, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	h := new(wireHead)
	if err := dec.Decode(h); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	switch {
	case h.Format != formatDirs:
		return nil, fmt.Errorf("%w: %s has format %d, not %d", ErrMalformed, d.Short(), h.Format, formatDirs)
	case len(h.Dirs) == 0:
		return nil, fmt.Errorf("%w: %s holds no directory", ErrMalformed, d.Short())
	case len(r.heads) >= maxHeads:
		return nil, fmt.Errorf("%w: directories in more than %d blobs", ErrMalformed, maxHeads)
	case !bytes.Equal(h.encode(), data):
		return nil, fmt.Errorf("%w: not in canonical form", ErrMalformed)
	}
	r.heads[d] = h
	return h, nil
}

func (h *wireHead) encode() []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(h); err != nil {
		panic("workspace: a head does not encode: " + err.Error())
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// dir adds the contents of a directory to the tree and returns its key.
func (r *reader) dir(at dirPlace, p string) (blob.Digest, error) {
	h := r.heads[at.head]
	if h == nil {
		data, err := r.get(at.head)
		if err != nil {
			return blob.Digest{}, err
		}
		if h, err = r.decode(at.head, data); err != nil {
			return blob.Digest{}, err
		}
	}
	bad := func(p, why string) (blob.Digest, error) {
		return blob.Digest{}, fmt.Errorf("%w: %q in %s: %s", ErrMalformed, p, at.head.Short(), why)
	}
	if at.n >= len(h.Dirs) {
		return bad(p, "no such directory")
	}
	k := newKeyer()
	for i, w := range h.Dirs[at.n] {
		if w == nil || i > 0 && h.Dirs[at.n][i-1].Name >= w.Name {
			return bad(p, "names not sorted or there twice")
		}
		e := Entry{Path: w.Name, Kind: w.Kind, Exec: w.Exec, Size: w.Size, Digest: w.Digest, Target: w.Target}
		if p != "" {
			e.Path = p + "/" + w.Name
		}
		if r.paths += len(e.Path); len(r.t.entries) >= maxEntries || r.paths > maxPaths || len(e.Path) > maxPath {
			return bad(p, "too many entries")
		}
		r.t.entries = append(r.t.entries, e)
		if w.Kind == Dir {
			sub := dirPlace{at.head, w.Dir}
			switch {
			case w.Head < 0 || w.Head > len(h.Heads) || w.Dir < 0:
				return bad(e.Path, "no such directory")
			case w.Head > 0:
				sub.head = h.Heads[w.Head-1]
			case w.Dir <= at.n:
				return bad(e.Path, "a directory in itself")
			}
			key, err := r.dir(sub, e.Path)
			if err != nil {
				return blob.Digest{}, err
			}
			k.dir(w.Name, key)
			continue
		}
		pl, packed, err := h.place(w)
		if err != "" {
			return bad(e.Path, err)
		}
		if packed {
			if _, ok := r.t.places[w.Digest]; !ok {
				r.t.places[w.Digest] = pl
			}
		}
		k.entry(w.Name, e, pl)
	}
	key := k.sum()
	r.t.dirs[key] = at
	return key, nil
}

// place returns where a file lies, or why it cannot lie there.
func (h *wireHead) place(w *wireEntry) (p place, ok bool, why string) {
	switch {
	case w.Dir != 0 || w.Head != 0:
		return p, false, "not the fields of a directory"
	case w.Pack == 0 && len(w.Parts) == 0:
		if w.At != 0 || w.Len != 0 {
			why = "in no pack"
		}
		return p, false, why
	case w.Kind != File || w.Size <= 0 || w.Pack != 0 && w.Parts != nil:
		return p, false, "not the fields of a file"
	case w.Parts != nil:
		return place{parts: w.Parts, size: w.Size}, true, ""
	case w.Pack < 0 || w.Pack > len(h.Packs) || w.At < 0 || w.Len <= 0 || w.Len > w.Size || w.Size > maxPack:
		return p, false, "no such place in a pack"
	}
	return place{pack: h.Packs[w.Pack-1], at: w.At, length: w.Len, size: w.Size}, true, ""
}

// keyer computes the key of a directory: equal keys are equal trees whose files have the
// same locations.
type keyer struct{ b []byte }

func newKeyer() *keyer { return new(keyer) }

func (k *keyer) text(s string) {
	k.b = binary.AppendUvarint(k.b, uint64(len(s)))
	k.b = append(k.b, s...)
}

func (k *keyer) dir(name string, key blob.Digest) {
	k.text(name)
	k.text(string(Dir))
	k.b = append(k.b, key[:]...)
}

func (k *keyer) entry(name string, e Entry, p place) {
	k.text(name)
	k.text(string(e.Kind))
	k.text(e.Target)
	if e.Exec {
		k.b = append(k.b, 1)
	}
	k.b = binary.AppendVarint(k.b, e.Size)
	k.b = append(k.b, e.Digest[:]...)
	k.b = append(k.b, p.pack[:]...)
	k.b = binary.AppendVarint(k.b, p.at)
	k.b = binary.AppendVarint(k.b, p.length)
	k.b = binary.AppendUvarint(k.b, uint64(len(p.parts)))
	for _, d := range p.parts {
		k.b = append(k.b, d[:]...)
	}
}

func (k *keyer) sum() blob.Digest { return sha256.Sum256(k.b) }

// writer makes the blob of a head.
type writer struct {
	t        *Tree
	children map[string][]Entry // by the path of their directory
	keys     map[string]blob.Digest
	known    map[blob.Digest]dirPlace
	packs    map[blob.Digest]int
	heads    map[blob.Digest]int
	out      wireHead
	inline   map[blob.Digest]int // key: index in out.Dirs
}

// Put stores the manifest and returns its head, and the tree in the form of Load. The files
// must already be stored.
func (t *Tree) Put(ctx context.Context, b blob.Store) (*Tree, blob.Digest, error) {
	w := &writer{
		t: t, children: map[string][]Entry{}, keys: map[string]blob.Digest{}, known: t.dirs,
		packs: map[blob.Digest]int{}, heads: map[blob.Digest]int{}, inline: map[blob.Digest]int{},
	}
	if len(t.heads) > rewrite {
		w.known = nil
	}
	for _, e := range t.entries {
		dir, _, _ := cutLast(e.Path)
		w.children[dir] = append(w.children[dir], e)
	}
	w.key("")
	w.out.Format = formatDirs
	if t.exclude != nil {
		w.out.Exclude = t.exclude.Lines()
	}
	w.dir("")
	data := w.out.encode()
	if len(data) > maxManifest {
		return nil, blob.Digest{}, fmt.Errorf("workspace: the manifest of %d entries has %d bytes, more than %d; keep fewer files in one directory", t.Len(), len(data), maxManifest)
	}
	ref, err := b.Put(ctx, bytes.NewReader(data))
	if err != nil {
		return nil, blob.Digest{}, fmt.Errorf("workspace: store manifest: %w", err)
	}
	out := &Tree{entries: t.entries, exclude: t.exclude, places: t.places, dirs: map[blob.Digest]dirPlace{}}
	heads := map[blob.Digest]bool{ref.Digest: true}
	for _, key := range w.keys {
		at, ok := w.known[key]
		if n, here := w.inline[key]; here {
			at, ok = dirPlace{ref.Digest, n}, true
		}
		if ok {
			out.dirs[key] = at
			heads[at.head] = true
		}
	}
	out.heads = slices.SortedFunc(maps.Keys(heads), compareDigests)
	return out, ref.Digest, nil
}

// key returns the key of the directory at a path.
func (w *writer) key(p string) blob.Digest {
	k := newKeyer()
	for _, e := range w.children[p] {
		_, name, _ := cutLast(e.Path)
		if e.Kind == Dir {
			k.dir(name, w.key(e.Path))
		} else {
			k.entry(name, e, w.t.place(e))
		}
	}
	w.keys[p] = k.sum()
	return w.keys[p]
}

// place returns where a file lies, the zero place for a blob of its own.
func (t *Tree) place(e Entry) place {
	if e.Kind != File || e.Size == 0 {
		return place{}
	}
	return t.places[e.Digest]
}

// dir writes a directory and those below it that no other blob holds.
func (w *writer) dir(p string) int {
	n := len(w.out.Dirs)
	w.out.Dirs = append(w.out.Dirs, nil)
	w.inline[w.keys[p]] = n
	entries := make([]*wireEntry, 0, len(w.children[p]))
	for _, e := range w.children[p] {
		_, name, _ := cutLast(e.Path)
		o := &wireEntry{Name: name, Kind: e.Kind, Exec: e.Exec, Size: e.Size, Digest: e.Digest, Target: e.Target}
		entries = append(entries, o)
		if e.Kind != Dir {
			pl := w.t.place(e)
			if o.Parts = pl.parts; o.Parts == nil && !pl.pack.IsZero() {
				o.Pack, o.At, o.Len = number(w.packs, &w.out.Packs, pl.pack), pl.at, pl.length
			}
			continue
		}
		if at, ok := w.known[w.keys[e.Path]]; ok {
			o.Head, o.Dir = number(w.heads, &w.out.Heads, at.head), at.n
			continue
		}
		o.Dir = w.dir(e.Path)
	}
	w.out.Dirs[n] = entries
	return n
}

// number returns the place of d in a list, counted from 1.
func number(known map[blob.Digest]int, list *[]blob.Digest, d blob.Digest) int {
	if known[d] == 0 {
		*list = append(*list, d)
		known[d] = len(*list)
	}
	return known[d]
}

// Looks reports whether a blob begins like a head.
func Looks(data []byte) bool { return bytes.HasPrefix(data, []byte(`{"format":`)) }

// Refs returns the digests that the blob of a head contains: other heads, and blobs with
// the bytes of files. Its error wraps ErrMalformed.
func Refs(data []byte) (heads, files []blob.Digest, err error) {
	if !bytes.HasPrefix(data, []byte(`{"format":3,`)) {
		t, err := decodeFlat(data)
		if err != nil {
			return nil, nil, err
		}
		for d := range t.digests() {
			files = append(files, d)
		}
		return nil, files, nil
	}
	h, err := (&reader{heads: map[blob.Digest]*wireHead{}}).decode(blob.Sum(data), data)
	if err != nil {
		return nil, nil, err
	}
	files = slices.Clone(h.Packs)
	for _, dir := range h.Dirs {
		for _, e := range dir {
			switch {
			case e == nil || e.Kind != File || e.Size == 0 || e.Pack != 0:
			case e.Parts != nil:
				files = append(files, e.Parts...)
			default:
				files = append(files, e.Digest)
			}
		}
	}
	return h.Heads, files, nil
}
