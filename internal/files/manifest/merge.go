package manifest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rathcluster/rath/blob"
)

// Side is a state of the files to merge into another one, and their common base.
type Side struct {
	Name string
	Base blob.Digest
	Head blob.Digest
}

// Merge applies the changes that each side made to its base to ours, one side after the
// other, and returns the resulting tree with every conflict. It stores the merged texts,
// not the tree.
//
// Merge works by path: it takes a change of one side, and a change that both sides made
// alike. It merges texts of up to 1 MiB by lines. A directory that one side removed keeps
// the paths that the other changed. Any other path that both changed is a conflict, and so
// are names that some file system treats as equal. Git's own directory is taken as a whole.
//
// decide resolves a conflict, whose fields are set except for Choice and By. Merge calls it
// in a deterministic order. An undecided conflict leaves ours at its path. The result has
// the exclusion rules of ours.
func Merge(ctx context.Context, b blob.Store, ours Side, sides []Side, decide func(Conflict) (Choice, string)) (*Tree, []Conflict, error) {
	t, err := Load(ctx, b, ours.Head)
	if err != nil {
		return nil, nil, err
	}
	var conflicts []Conflict
	var merged []mergedSide
	files := NewFiles(b, t)
	for _, s := range sides {
		if s.Head == s.Base {
			continue
		}
		base, err := Load(ctx, b, s.Base)
		if err != nil {
			return nil, nil, err
		}
		theirs, err := Load(ctx, b, s.Head)
		if err != nil {
			return nil, nil, err
		}
		files.Add(base)
		files.Add(theirs)
		m := &merger{ctx: ctx, blobs: files, ours: ours.Name, before: merged, theirs: s.Name, decide: decide}
		m.oursChanged, m.theirsChanged = changedPaths(base, t), changedPaths(base, theirs)
		root, err := m.dir("", nodes(base), nodes(t), nodes(theirs))
		if err != nil {
			return nil, nil, fmt.Errorf("workspace: merge %s: %w", s.Name, err)
		}
		rules := t.Excluded()
		if t, err = NewTree(root.entries(nil), t, theirs); err != nil {
			return nil, nil, fmt.Errorf("workspace: merge %s: %w", s.Name, err)
		}
		t = t.Excluding(rules)
		conflicts = append(conflicts, m.conflicts...)
		merged = append(merged, mergedSide{s.Name, m.theirsChanged})
	}
	return t, conflicts, nil
}

// mergedSide is a side that is already merged, and the paths that it changed.
type mergedSide struct {
	name    string
	changed map[string]bool
}

// node is a path of a tree with its descendants.
type node struct {
	Entry
	kids []*node // sorted by path; all of one directory
}

// nodes returns the root of a tree.
func nodes(t *Tree) *node {
	root := &node{Entry: Entry{Kind: Dir}}
	dirs := map[string]*node{"": root}
	for _, e := range t.entries {
		n := &node{Entry: e}
		dir, _, _ := cutLast(e.Path)
		if !strings.Contains(e.Path, "/") {
			dir = ""
		}
		up := dirs[dir]
		up.kids = append(up.kids, n)
		if e.Kind == Dir {
			dirs[e.Path] = n
		}
	}
	return root
}

// entries appends a node, except the root, and its descendants.
func (n *node) entries(out []Entry) []Entry {
	if n.Path != "" {
		out = append(out, n.Entry)
	}
	for _, k := range n.kids {
		out = k.entries(out)
	}
	return out
}

// kid returns a directory's child at a path; nil if it has none or is not a directory.
func (n *node) kid(path string) *node {
	if n == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(n.kids, path, func(k *node, p string) int { return strings.Compare(k.Path, p) })
	if !ok {
		return nil
	}
	return n.kids[i]
}

func (n *node) is(k Kind) bool { return n != nil && n.Kind == k }

func sameNodes(a, z *node) bool {
	if a == nil || z == nil {
		return a == z
	}
	return a.Entry == z.Entry && slices.EqualFunc(a.kids, z.kids, sameNodes)
}

// within reports whether a directory results from another by removals only.
func (n *node) within(of *node) bool {
	if !n.is(Dir) || !of.is(Dir) {
		return n != nil && of != nil && n.Entry == of.Entry
	}
	return !slices.ContainsFunc(n.kids, func(k *node) bool { return !k.within(of.kid(k.Path)) })
}

// moved returns a node at another path.
func (n *node) moved(to string) *node {
	out := &node{Entry: n.Entry}
	out.Path = to
	for _, k := range n.kids {
		out.kids = append(out.kids, k.moved(to+"/"+path.Base(k.Path)))
	}
	return out
}

// changedPaths returns the paths that differ, and all directories above them.
func changedPaths(base, t *Tree) map[string]bool {
	out := map[string]bool{}
	for _, c := range Compare(base, t) {
		for p := c.Path; !out[p]; p = p[:max(strings.LastIndexByte(p, '/'), 0)] {
			out[p] = true
		}
	}
	return out
}

// merger merges one side into a tree.
type merger struct {
	ctx                        context.Context
	blobs                      blob.Store
	ours                       string
	before                     []mergedSide
	theirs                     string
	decide                     func(Conflict) (Choice, string)
	oursChanged, theirsChanged map[string]bool
	conflicts                  []Conflict
}

// at merges the nodes at a path; a nil node is absent. beside is kept next to the result.
func (m *merger) at(p string, b, o, t *node) (n, beside *node, err error) {
	if err := m.ctx.Err(); err != nil {
		return nil, nil, err
	}
	switch {
	case !m.theirsChanged[p] || sameNodes(o, t):
		return o, nil, nil
	case !m.oursChanged[p]:
		return t, nil, nil
	case IsGit(path.Base(p)):
		n, beside = m.conflict(GitConflict, p, o, t)
		return n, beside, nil
	case o.is(Dir) && t.is(Dir), b.is(Dir) && (o == nil && t.is(Dir) || t == nil && o.is(Dir)):
		n, err = m.dir(p, b, o, t)
		return n, nil, err
	case o.is(File) && t.is(File):
		return m.file(p, b, o, t)
	case o != nil && t.within(b):
		return o, nil, nil
	case t != nil && o.within(b):
		return t, nil, nil
	}
	kind := LinkConflict
	switch {
	case o == nil || t == nil:
		kind = DeleteConflict
	case o.Kind != t.Kind:
		kind = TypeConflict
	}
	n, beside = m.conflict(kind, p, o, t)
	return n, beside, nil
}

// dir merges a directory that one side may have removed.
func (m *merger) dir(p string, b, o, t *node) (*node, error) {
	all := map[string]bool{}
	for _, n := range []*node{o, t} {
		if n != nil {
			for _, k := range n.kids {
				all[k.Path] = true
			}
		}
	}
	if !b.is(Dir) {
		b = nil
	}
	out := &node{Entry: Entry{Path: p, Kind: Dir}}
	var besides []*node
	for _, k := range slices.Sorted(maps.Keys(all)) {
		n, beside, err := m.at(k, b.kid(k), o.kid(k), t.kid(k))
		if err != nil {
			return nil, err
		}
		if n != nil {
			out.kids = append(out.kids, n)
		}
		if beside != nil {
			besides = append(besides, beside)
		}
	}
	m.names(out, o, t, &besides)
	for _, n := range besides {
		m.keepBeside(out, n)
	}
	if len(out.kids) == 0 && (o == nil || t == nil) {
		return nil, nil
	}
	return out, nil
}

// names finds names that some file system treats as equal and that no side had together.
func (m *merger) names(out, o, t *node, besides *[]*node) {
	folded := map[string][]*node{}
	for _, k := range out.kids {
		f := Fold(path.Base(k.Path))
		folded[f] = append(folded[f], k)
	}
	for _, f := range slices.Sorted(maps.Keys(folded)) {
		var own, other []*node // children of ours, and those only in theirs
		alone := 0             // those only in ours
		for _, k := range folded[f] {
			if o.kid(k.Path) == nil {
				other = append(other, k)
				continue
			}
			own = append(own, k)
			if t.kid(k.Path) == nil {
				alone++
			}
		}
		if alone == 0 || len(other) == 0 {
			continue
		}
		for _, k := range other {
			c := Conflict{Path: k.Path, Kind: NameConflict, Detail: fmt.Sprintf("%q and %q are one name to some file systems\n", path.Base(own[0].Path), path.Base(k.Path))}
			gone := []*node{k}
			switch m.record(c, own[0].Path, k) {
			case TakeTheirs:
				gone = own
			case KeepBoth:
				*besides = append(*besides, k)
			}
			out.kids = slices.DeleteFunc(out.kids, func(n *node) bool { return slices.Contains(gone, n) })
		}
	}
}

// conflict records a conflict of whole paths and returns the result of its choice.
func (m *merger) conflict(kind ConflictKind, p string, o, t *node) (n, beside *node) {
	detail := fmt.Sprintf("%s has %s, %s has %s\n", m.oursAt(p), o.what(), m.theirs, t.what())
	switch m.record(Conflict{Path: p, Kind: kind, Detail: clipped(detail)}, p, t) {
	case TakeTheirs:
		return t, nil
	case KeepBoth:
		if o == nil {
			return t, nil
		}
		return o, t
	}
	return o, nil
}

// oursAt names the sides that changed a path before.
func (m *merger) oursAt(p string) string {
	var names []string
	for _, s := range m.before {
		if s.changed[p] {
			names = append(names, s.name)
		}
	}
	if n := len(names); n > maxSides {
		names = append(names[:maxSides], fmt.Sprintf("%d more", n-maxSides))
	}
	return cmp.Or(strings.Join(names, ", "), m.ours)
}

// maxSides is the maximum number of sides that a conflict names.
const maxSides = 3

// record resolves and records a conflict: own is the path of ours, and t the node of
// theirs.
func (m *merger) record(c Conflict, own string, t *node) Choice {
	c.Ours, c.Theirs = m.oursAt(own), m.theirs
	c.Choice, c.By = m.decide(c)
	if c.Choice == KeepBoth && t != nil && !t.mayGrow(len(m.theirs)+len(".1000")) {
		c.Choice, c.By = TakeOurs, tooLongName
	}
	m.conflicts = append(m.conflicts, c)
	return c.Choice
}

// mayGrow reports whether the name of a node, and thus the paths below it, may become
// longer.
func (n *node) mayGrow(by int) bool {
	return len(path.Base(n.Path))+by <= maxName && n.longest()+by <= maxPath
}

func (n *node) longest() int {
	most := len(n.Path)
	for _, k := range n.kids {
		most = max(most, k.longest())
	}
	return most
}

// keepBeside adds a node to a directory under a name that contains the name of its side.
func (m *merger) keepBeside(dir *node, n *node) {
	taken := map[string]bool{}
	for _, k := range dir.kids {
		taken[Fold(path.Base(k.Path))] = true
	}
	to := n.Path + "." + m.theirs
	for i := 2; taken[Fold(path.Base(to))]; i++ {
		to = fmt.Sprintf("%s.%s.%d", n.Path, m.theirs, i)
	}
	at, _ := slices.BinarySearchFunc(dir.kids, to, func(k *node, p string) int { return strings.Compare(k.Path, p) })
	dir.kids = slices.Insert(dir.kids, at, n.moved(to))
}

// file merges two files: the bytes, and whether they may be run.
func (m *merger) file(p string, b, o, t *node) (n, beside *node, err error) {
	added := !b.is(File)
	out := &node{Entry: o.Entry}
	mode := false
	if o.Exec != t.Exec {
		if mode = added; !mode {
			out.Exec = !b.Exec // one of them changed it
		}
	}
	switch {
	case o.Digest == t.Digest && mode:
		n, beside = m.conflict(ModeConflict, p, o, t)
		return n, beside, nil
	case o.Digest == t.Digest, !added && t.Digest == b.Digest:
		return out, nil, nil
	case added:
		n, beside = m.conflict(BothAdded, p, o, t)
		return n, beside, nil
	case o.Digest == b.Digest:
		out.Digest, out.Size = t.Digest, t.Size
		return out, nil, nil
	}
	var texts [3][]string
	for i, side := range []*node{b, o, t} {
		lines, ok, err := Text(m.ctx, m.blobs, side.Entry)
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			if n, beside = m.conflict(BinaryConflict, p, o, t); n != nil && beside == nil {
				n = &node{Entry: n.Entry}
				n.Exec = out.Exec
			}
			return n, beside, nil
		}
		texts[i] = lines
	}
	regions := Merge3(texts[0], texts[1], texts[2])
	choice := TakeOurs
	if slices.ContainsFunc(regions, func(r Region) bool { return r.Conflict }) {
		switch choice = m.record(Conflict{Path: p, Kind: TextConflict, Detail: marked(regions, m.oursAt(p), m.theirs)}, p, t); choice {
		case KeepBoth:
			return o, t, nil
		case Undecided:
			return o, nil, nil
		}
	}
	var text bytes.Buffer
	for _, r := range regions {
		lines := r.Ours
		switch {
		case !r.Conflict:
			lines = r.Merged()
		case choice == TakeTheirs:
			lines = r.Theirs
		}
		for _, l := range lines {
			text.WriteString(l)
		}
	}
	ref, err := m.blobs.Put(m.ctx, &text)
	if err != nil {
		return nil, nil, fmt.Errorf("store %q: %w", p, err)
	}
	out.Digest, out.Size = ref.Digest, ref.Size
	return out, nil, nil
}

// Text returns the lines of a file, with their line breaks. ok is false if the file is not
// text, or larger than 1 MiB.
func Text(ctx context.Context, b blob.Store, e Entry) (lines []string, ok bool, err error) {
	if e.Size > maxText {
		return nil, false, nil
	}
	data, err := content(ctx, b, e)
	if err != nil || !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, false, err
	}
	return SplitLines(data), true, nil
}
