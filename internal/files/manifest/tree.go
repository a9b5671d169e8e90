// Package manifest implements the contents of a head: the sorted paths of a directory, and
// the differences between two heads.
//
// [Diff] compares paths, [Patch] compares files line by line, [WriteUnified] writes patches
// for git apply, and [Merge] merges heads with a common base. Package workspace converts
// directories to heads and back.
package manifest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/ignore"
)

// ErrMalformed is returned for a manifest that this package did not write.
var ErrMalformed = errors.New("workspace: malformed manifest")

// ErrNewer is returned for a head in the format of a later release: it exists, and another
// node can read it.
var ErrNewer = errors.New("workspace: the head is of a later release, which this one does not read")

// Kind is the kind of a tree's entry.
type Kind string

// The kinds of entries.
const (
	File    Kind = "file"
	Dir     Kind = "dir"
	Symlink Kind = "symlink"
)

// Entry is one path of a tree. Entries are comparable.
type Entry struct {
	Path   string      `json:"path"` // slash separated, relative, clean
	Kind   Kind        `json:"kind"`
	Exec   bool        `json:"exec,omitempty"`   // files: may be run
	Size   int64       `json:"size,omitempty"`   // files: bytes
	Digest blob.Digest `json:"digest,omitzero"`  // files: the bytes
	Target string      `json:"target,omitempty"` // links: as written
}

// Bounds of a manifest that are part of the format.
const (
	maxPath     = 4096     // bytes of one path or link target
	maxName     = 255      // bytes of one component
	maxManifest = 64 << 20 // bytes of an encoded manifest

	// MaxListing is the maximum size of a tree's listing: the bytes of all paths and link
	// targets.
	MaxListing = maxManifest

	formatPlain = 1 // all paths in one list; links stay inside, and no rules
	formatWhole = 2 // all paths in one list
	formatDirs  = 3 // directory by directory
)

// Tree is an immutable manifest. The zero Tree is an empty directory.
type Tree struct {
	entries []Entry // sorted by Path, checked by check
	exclude *ignore.Rules
	places  map[blob.Digest]place    // of files, by the digest of their bytes
	dirs    map[blob.Digest]dirPlace // of directories that are stored, by their key
	heads   []blob.Digest            // the blobs that hold them, and the tree
}

// NewTree returns the tree of the entries, given in any order, or an error if they are not
// the paths of one directory: each path once, every parent a directory. It does not retain
// the slice.
//
// The location of a file's bytes is taken from the first tree of from that has a file with
// this digest. If none has, the file is a separate blob.
func NewTree(entries []Entry, from ...*Tree) (*Tree, error) {
	t := &Tree{entries: slices.Clone(entries)}
	t.sort()
	if err := t.check(); err != nil {
		return nil, err
	}
	t.settle(from)
	return t, nil
}

func (t *Tree) sort() {
	slices.SortFunc(t.entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
}

// settle takes over where the trees from have files and directories.
func (t *Tree) settle(from []*Tree) {
	t.places, t.dirs = map[blob.Digest]place{}, map[blob.Digest]dirPlace{}
	for d := range t.digests() {
		for _, f := range from {
			if p, ok := f.places[d]; ok {
				t.places[d] = p
				break
			}
		}
	}
	heads := map[blob.Digest]bool{}
	for _, f := range from {
		maps.Copy(t.dirs, f.dirs)
		for _, d := range f.heads {
			heads[d] = true
		}
	}
	t.heads = slices.SortedFunc(maps.Keys(heads), compareDigests)
}

// Packed returns the same tree with the bytes of its files located in the given stored
// packs, if they have them. The first such pack takes precedence.
func (t *Tree) Packed(packs ...*Pack) *Tree {
	out := *t
	out.places = maps.Clone(t.places)
	if out.places == nil {
		out.places = map[blob.Digest]place{}
	}
	for _, p := range slices.Backward(packs) {
		for d, at := range p.places {
			if at.parts == nil {
				at.pack = p.name
			}
			out.places[d] = at
		}
	}
	return &out
}

// Entries yields the entries sorted by path, so a directory precedes its contents.
func (t *Tree) Entries() iter.Seq[Entry] { return slices.Values(t.entries) }

// Excluded returns the exclusion rules of the import, or nil. They apply to the trees
// derived from it, too: excluded paths are never exported to the directory.
func (t *Tree) Excluded() *ignore.Rules { return t.exclude }

// Excluding returns the same tree with these rules, which the caller must not change
// afterwards.
func (t *Tree) Excluding(r *ignore.Rules) *Tree {
	if r != nil && len(r.Lines()) == 0 {
		r = nil
	}
	out := *t
	out.exclude = r
	return &out
}

// Len returns the number of entries.
func (t *Tree) Len() int { return len(t.entries) }

// Bytes returns the size of all files together.
func (t *Tree) Bytes() int64 {
	var n int64
	for _, e := range t.entries {
		n += e.Size
	}
	return n
}

// Lookup returns the entry at a path, which is slash separated and clean.
func (t *Tree) Lookup(path string) (Entry, bool) {
	i, ok := slices.BinarySearchFunc(t.entries, path, func(e Entry, p string) int { return strings.Compare(e.Path, p) })
	if !ok {
		return Entry{}, false
	}
	return t.entries[i], true
}

// Digest is the same for equal trees, however they are stored. It is not the digest of a
// blob.
func (t *Tree) Digest() blob.Digest { return blob.Sum(t.Encode()) }

type manifest struct {
	Format  int      `json:"format"`
	Exclude []string `json:"exclude,omitempty"`
	Entries []Entry  `json:"entries"`
}

// format returns the oldest format that can represent the tree, so that equal trees are
// equal bytes in every release.
func (t *Tree) format() int {
	if t.exclude != nil || slices.ContainsFunc(t.entries, func(e Entry) bool {
		return e.Kind == Symlink && !LinkStaysInside(e.Path, e.Target)
	}) {
		return formatWhole
	}
	return formatPlain
}

// Encode returns the canonical JSON of the tree as one list of paths, as format 1 or 2:
// equal trees have equal bytes. Each file has to be a blob of its own. [Tree.Store] writes
// format 3.
func (t *Tree) Encode() []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	entries := t.entries
	if entries == nil {
		entries = []Entry{}
	}
	m := manifest{Format: t.format(), Entries: entries}
	if t.exclude != nil {
		m.Exclude = t.exclude.Lines()
	}
	if err := enc.Encode(m); err != nil {
		panic("workspace: a checked tree does not encode: " + err.Error())
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// decodeFlat decodes the output of Encode and nothing else; the error wraps ErrMalformed.
func decodeFlat(data []byte) (*Tree, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var m manifest
	if err := dec.Decode(&m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if m.Format != formatPlain && m.Format != formatWhole {
		return nil, fmt.Errorf("%w: format %d, this version reads %d to %d", ErrMalformed, m.Format, formatPlain, formatDirs)
	}
	t := &Tree{entries: m.Entries}
	if len(m.Exclude) > 0 {
		var err error
		if t.exclude, err = ignore.Parse(m.Exclude); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	if !bytes.Equal(t.Encode(), data) {
		return nil, fmt.Errorf("%w: not in canonical form", ErrMalformed)
	}
	return t, nil
}

// Store is Put without the tree.
func (t *Tree) Store(ctx context.Context, b blob.Store) (blob.Digest, error) {
	_, head, err := t.Put(ctx, b)
	return head, err
}

// Load returns the tree of a head. The zero head is the empty tree; an absent
// one is blob.ErrNotFound.
func Load(ctx context.Context, b blob.Store, head blob.Digest) (*Tree, error) {
	t, err := Read(head, func(d blob.Digest) ([]byte, error) { return readBlob(ctx, b, d, maxManifest) })
	if err != nil {
		return nil, fmt.Errorf("workspace: load %s: %w", head.Short(), err)
	}
	return t, nil
}

// check verifies every rule of the format on sorted entries.
func (t *Tree) check() error {
	bad := func(e Entry, why string) error { return fmt.Errorf("%w: %q: %s", ErrMalformed, e.Path, why) }
	dirs := make(map[string]bool, len(t.entries)/4+1)
	for i, e := range t.entries {
		if err := CheckPath(e.Path); err != nil {
			return bad(e, err.Error())
		}
		if i > 0 && t.entries[i-1].Path >= e.Path {
			return bad(e, "not sorted or there twice")
		}
		if dir, _, ok := cutLast(e.Path); ok && !dirs[dir] {
			return bad(e, "its parent is not a directory")
		}
		clear := e
		clear.Path, clear.Kind = "", ""
		switch e.Kind {
		case File:
			if e.Target != "" || e.Size < 0 || e.Digest.IsZero() {
				return bad(e, "not a file's fields")
			}
		case Dir:
			if clear != (Entry{}) {
				return bad(e, "not a directory's fields")
			}
			dirs[e.Path] = true
		case Symlink:
			clear.Target = ""
			if clear != (Entry{}) {
				return bad(e, "not a link's fields")
			}
			if err := CheckTarget(e.Target); err != nil {
				return bad(e, err.Error())
			}
		default:
			return bad(e, "unknown kind")
		}
	}
	return nil
}

// cutLast splits a path at its last slash.
func cutLast(path string) (dir, name string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// CheckPath returns an error if the path of an entry is not slash separated, relative,
// clean UTF-8 and within the limits of the format.
func CheckPath(path string) error {
	switch {
	case path == "":
		return errors.New("empty path")
	case len(path) > maxPath:
		return errors.New("path too long")
	case !utf8.ValidString(path):
		return errors.New("path is not UTF-8")
	case strings.IndexByte(path, 0) >= 0:
		return errors.New("path contains NUL")
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." || name == ".." {
			return errors.New("path is not clean and relative")
		}
		if len(name) > maxName {
			return errors.New("name too long")
		}
	}
	return nil
}

// CheckTarget returns an error for an invalid target of a link. A target may lead anywhere:
// a tree stores links as links, and no reader of a tree follows one.
func CheckTarget(target string) error {
	if target == "" || len(target) > maxPath || !utf8.ValidString(target) || strings.IndexByte(target, 0) >= 0 {
		return errors.New("not the target of a link: empty, too long, not UTF-8 or with NUL")
	}
	return nil
}

// LinkStaysInside reports whether a link at path with this target can only lead to paths
// inside the tree. The target may go up only at its start: there it walks real directories
// (the link's own parents), whereas a ".." after a name could follow another link to a path
// outside.
func LinkStaysInside(path, target string) bool {
	if target == "" || strings.HasPrefix(target, "/") {
		return false
	}
	depth := strings.Count(path, "/") // directories above the link, below the root
	down := false
	for name := range strings.SplitSeq(target, "/") {
		switch name {
		case "", ".":
		case "..":
			depth--
			if down || depth < 0 {
				return false
			}
		default:
			down = true
		}
	}
	return true
}
