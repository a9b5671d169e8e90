package manifest_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

// files describes a tree: a path and "dir", "link TARGET", "run TEXT" or the text of a file.
type files map[string]string

// store stores the tree that files describe, with the directories above each path.
func (f files) store(t *testing.T, b blob.Store) blob.Digest {
	t.Helper()
	ctx := t.Context()
	all := map[string]manifest.Entry{}
	for p, what := range f {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			all[dir] = manifest.Entry{Path: dir, Kind: manifest.Dir}
		}
		e := manifest.Entry{Path: p, Kind: manifest.Dir}
		if what != "dir" {
			if target, ok := strings.CutPrefix(what, "link "); ok {
				e.Kind, e.Target = manifest.Symlink, target
			} else {
				text, exec := strings.CutPrefix(what, "run ")
				ref := must.Get(b.Put(ctx, strings.NewReader(text)))(t)
				e.Kind, e.Exec, e.Digest, e.Size = manifest.File, exec, ref.Digest, ref.Size
			}
		}
		all[p] = e
	}
	tree, err := manifest.NewTree(slices.Collect(maps.Values(all)))
	if err != nil {
		t.Fatalf("%v: %v", f, err)
	}
	head, err := tree.Store(ctx, b)
	must.Do(t, err)
	return head
}

// filesOf describes a tree. It omits directories that are not empty.
func filesOf(t *testing.T, b blob.Store, tree *manifest.Tree) files {
	t.Helper()
	f := files{}
	for e := range tree.Entries() {
		delete(f, path.Dir(e.Path))
		switch e.Kind {
		case manifest.Dir:
			f[e.Path] = "dir"
		case manifest.Symlink:
			f[e.Path] = "link " + e.Target
		case manifest.File:
			rc := must.Get(b.Get(t.Context(), e.Digest))(t)
			var text bytes.Buffer
			must.Get(text.ReadFrom(rc))(t)
			must.Do(t, rc.Close())
			if int64(text.Len()) != e.Size {
				t.Fatalf("%s has %d bytes, its entry says %d", e.Path, text.Len(), e.Size)
			}
			if f[e.Path] = text.String(); e.Exec {
				f[e.Path] = "run " + text.String()
			}
		}
	}
	return f
}

func always(c manifest.Choice) func(manifest.Conflict) (manifest.Choice, string) {
	return func(manifest.Conflict) (manifest.Choice, string) { return c, "rule" }
}

// merged merges trees: the first is ours.
func merged(t *testing.T, b blob.Store, base files, choice manifest.Choice, sides ...files) (files, []manifest.Conflict) {
	t.Helper()
	from := base.store(t, b)
	ours := manifest.Side{Name: "ours", Base: from, Head: sides[0].store(t, b)}
	var rest []manifest.Side
	for i, s := range sides[1:] {
		rest = append(rest, manifest.Side{Name: fmt.Sprintf("b%d", i+1), Base: from, Head: s.store(t, b)})
	}
	tree, conflicts := must.Pair(manifest.Merge(t.Context(), b, ours, rest, always(choice)))(t)
	return filesOf(t, b, tree), conflicts
}

const (
	ten     = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"
	tenTop  = "one\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"
	tenLast = "1\n2\n3\n4\n5\n6\n7\n8\n9\nten\n"
	tenBoth = "one\n2\n3\n4\n5\n6\n7\n8\n9\nten\n"
	tenUno  = "uno\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"
)

func TestMergeClean(t *testing.T) {
	for _, c := range []struct {
		name               string
		base, ours, theirs files
		want               files
	}{
		{"nothing", files{"a": "x"}, files{"a": "x"}, files{"a": "x"}, files{"a": "x"}},
		{"one side each", files{"a": "x", "b": "y", "c": "z"}, files{"a": "x2", "b": "y"}, files{"a": "x", "b": "y2", "c": "z"}, files{"a": "x2", "b": "y2"}},
		{"both the same", files{"a": "x"}, files{"a": "y", "n": "new"}, files{"a": "y", "n": "new"}, files{"a": "y", "n": "new"}},
		{"both remove", files{"a": "x"}, files{}, files{}, files{}},
		{"lines", files{"a": ten}, files{"a": tenTop}, files{"a": tenLast}, files{"a": tenBoth}},
		{"lines and mode", files{"a": ten}, files{"a": "run " + ten}, files{"a": tenLast}, files{"a": "run " + tenLast}},
		{"mode and lines of both", files{"a": ten}, files{"a": "run " + tenTop}, files{"a": tenLast}, files{"a": "run " + tenBoth}},
		{"no newline at the end", files{"a": "1\n2\n3"}, files{"a": "one\n2\n3"}, files{"a": "1\n2\nthree"}, files{"a": "one\n2\nthree"}},
		{"a directory goes, a file comes into it", files{"d/a": "x"}, files{}, files{"d/a": "x", "d/b": "y"}, files{"d/b": "y"}},
		{"a directory goes in both", files{"d/a": "x", "d/b": "y"}, files{}, files{"d/a": "x"}, files{}},
		{"an empty directory stays", files{"d/a": "x"}, files{"d": "dir"}, files{"d/a": "x", "b": "y"}, files{"d": "dir", "b": "y"}},
		{"a file becomes a directory", files{"p": "x", "q": "y"}, files{"p/a": "x", "q": "y"}, files{"p": "x", "q": "z"}, files{"p/a": "x", "q": "z"}},
		{"a directory becomes a link", files{"p/a": "x", "q": "y"}, files{"p": "link q", "q": "y"}, files{"p/a": "x", "q": "z"}, files{"p": "link q", "q": "z"}},
		{"a link moves", files{"l": "link a"}, files{"l": "link b"}, files{"l": "link a", "n": "x"}, files{"l": "link b", "n": "x"}},
		{"git on one side", files{}, files{".git/HEAD": "ref: x", "a": "1"}, files{"b": "2"}, files{".git/HEAD": "ref: x", "a": "1", "b": "2"}},
		{"names that ours had together", files{"README": "x", "readme": "y"}, files{"README": "x1", "readme": "y"}, files{"README": "x", "readme": "y1"}, files{"README": "x1", "readme": "y1"}},
		{"names that one side brings together", files{}, files{"a": "1"}, files{"B": "x", "b": "y"}, files{"a": "1", "B": "x", "b": "y"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := blob.NewMemory()
			for _, sides := range [][2]files{{c.ours, c.theirs}, {c.theirs, c.ours}} {
				got, conflicts := merged(t, b, c.base, manifest.Undecided, sides[0], sides[1])
				if len(conflicts) > 0 {
					t.Errorf("conflicts: %v", conflicts)
				}
				if d := cmp.Diff(c.want, got); d != "" {
					t.Errorf("want, got:\n%s", d)
				}
			}
		})
	}
}

func TestMergeConflicts(t *testing.T) {
	for _, c := range []struct {
		name               string
		base, ours, theirs files
		path               string
		kind               manifest.ConflictKind
		left, right, both  files // with ours, theirs and both
	}{
		{
			"text",
			files{"a": ten},
			files{"a": tenTop},
			files{"a": "uno\n2\n3\n4\n5\n6\n7\n8\n9\nten\n"},
			"a", manifest.TextConflict,
			files{"a": tenBoth},
			files{"a": "uno\n2\n3\n4\n5\n6\n7\n8\n9\nten\n"},
			files{"a": tenTop, "a.b1": "uno\n2\n3\n4\n5\n6\n7\n8\n9\nten\n"},
		},
		{
			"text, and one makes it run",
			files{"a": ten},
			files{"a": tenTop},
			files{"a": "run " + tenUno},
			"a", manifest.TextConflict,
			files{"a": "run " + tenTop},
			files{"a": "run " + tenUno},
			files{"a": tenTop, "a.b1": "run " + tenUno},
		},
		{
			"binary",
			files{"a": "\x00"},
			files{"a": "\x00o"},
			files{"a": "run \x00t"},
			"a", manifest.BinaryConflict,
			files{"a": "run \x00o"},
			files{"a": "run \x00t"},
			files{"a": "\x00o", "a.b1": "run \x00t"},
		},
		{
			"not UTF-8 on one side",
			files{"a": "1\n"},
			files{"a": "\xff\n"},
			files{"a": "2\n"},
			"a", manifest.BinaryConflict,
			files{"a": "\xff\n"},
			files{"a": "2\n"},
			files{"a": "\xff\n", "a.b1": "2\n"},
		},
		{
			"large",
			files{"a": strings.Repeat("x\n", 600_000)},
			files{"a": strings.Repeat("x\n", 600_001)},
			files{"a": "y\n"},
			"a", manifest.BinaryConflict,
			files{"a": strings.Repeat("x\n", 600_001)},
			files{"a": "y\n"},
			files{"a": strings.Repeat("x\n", 600_001), "a.b1": "y\n"},
		},
		{
			"both added",
			files{},
			files{"d/a": "o"},
			files{"d/a": "t"},
			"d/a", manifest.BothAdded,
			files{"d/a": "o"},
			files{"d/a": "t"},
			files{"d/a": "o", "d/a.b1": "t"},
		},
		{
			"changed and removed",
			files{"a": "x"},
			files{"a": "y"},
			files{},
			"a", manifest.DeleteConflict,
			files{"a": "y"},
			files{},
			files{"a": "y"},
		},
		{
			"removed and changed",
			files{"d/a": "x", "d/b": "1"},
			files{},
			files{"d/a": "y", "d/b": "1"},
			"d/a", manifest.DeleteConflict,
			files{},
			files{"d/a": "y"},
			files{"d/a": "y"},
		},
		{
			"mode of two added",
			files{},
			files{"a": "x"},
			files{"a": "run x"},
			"a", manifest.ModeConflict,
			files{"a": "x"},
			files{"a": "run x"},
			files{"a": "x", "a.b1": "run x"},
		},
		{
			"file against directory",
			files{"p": "x"},
			files{"p": "y"},
			files{"p/a": "x", "p/b/c": "z"},
			"p", manifest.TypeConflict,
			files{"p": "y"},
			files{"p/a": "x", "p/b/c": "z"},
			files{"p": "y", "p.b1/a": "x", "p.b1/b/c": "z"},
		},
		{
			"directory against file",
			files{"p/a": "x"},
			files{"p/a": "y"},
			files{"p": "z"},
			"p", manifest.TypeConflict,
			files{"p/a": "y"},
			files{"p": "z"},
			files{"p/a": "y", "p.b1": "z"},
		},
		{
			"file comes into what becomes a file",
			files{"p/a": "x"},
			files{"p": "z"},
			files{"p/a": "x", "p/new": "y"},
			"p", manifest.TypeConflict,
			files{"p": "z"},
			files{"p/a": "x", "p/new": "y"},
			files{"p": "z", "p.b1/a": "x", "p.b1/new": "y"},
		},
		{
			"file against link",
			files{"p": "x"},
			files{"p": "y"},
			files{"p": "link q"},
			"p", manifest.TypeConflict,
			files{"p": "y"},
			files{"p": "link q"},
			files{"p": "y", "p.b1": "link q"},
		},
		{
			"directory against link that leads out",
			files{"p/a": "x"},
			files{"p/a": "y"},
			files{"p": "link /etc"},
			"p", manifest.TypeConflict,
			files{"p/a": "y"},
			files{"p": "link /etc"},
			files{"p/a": "y", "p.b1": "link /etc"},
		},
		{
			"link",
			files{"l": "link a"},
			files{"l": "link b"},
			files{"l": "link c"},
			"l", manifest.LinkConflict,
			files{"l": "link b"},
			files{"l": "link c"},
			files{"l": "link b", "l.b1": "link c"},
		},
		{
			"case",
			files{},
			files{"d/Read": "o"},
			files{"d/READ": "t"},
			"d/READ", manifest.NameConflict,
			files{"d/Read": "o"},
			files{"d/READ": "t"},
			files{"d/Read": "o", "d/READ.b1": "t"},
		},
		{
			"case of directories",
			files{},
			files{"src/a": "o"},
			files{"SRC/b": "t"},
			"SRC", manifest.NameConflict,
			files{"src/a": "o"},
			files{"SRC/b": "t"},
			files{"src/a": "o", "SRC.b1/b": "t"},
		},
		{
			"composed letters",
			files{},
			files{"caf\u00e9": "o"},
			files{"cafe\u0301": "t"},
			"cafe\u0301", manifest.NameConflict,
			files{"caf\u00e9": "o"},
			files{"cafe\u0301": "t"},
			files{"caf\u00e9": "o", "cafe\u0301.b1": "t"},
		},
		{
			"git",
			files{".git/HEAD": "1", ".git/x": "1"},
			files{".git/HEAD": "2", ".git/x": "1"},
			files{".git/HEAD": "1", ".git/x": "3"},
			".git", manifest.GitConflict,
			files{".git/HEAD": "2", ".git/x": "1"},
			files{".git/HEAD": "1", ".git/x": "3"},
			files{".git/HEAD": "2", ".git/x": "1", ".git.b1/HEAD": "1", ".git.b1/x": "3"},
		},
		{
			"the name beside is taken",
			files{"a": "\x00", "a.b1": "k"},
			files{"a": "\x00o", "a.b1": "k"},
			files{"a": "\x00t", "a.b1": "k"},
			"a", manifest.BinaryConflict,
			files{"a": "\x00o", "a.b1": "k"},
			files{"a": "\x00t", "a.b1": "k"},
			files{"a": "\x00o", "a.b1": "k", "a.b1.2": "\x00t"},
		},
		{
			"the name beside would be too long",
			files{},
			files{strings.Repeat("n", 254): "o"},
			files{strings.Repeat("n", 254): "t"},
			strings.Repeat("n", 254), manifest.BothAdded,
			files{strings.Repeat("n", 254): "o"},
			files{strings.Repeat("n", 254): "t"},
			files{strings.Repeat("n", 254): "o"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := blob.NewMemory()
			for choice, want := range map[manifest.Choice]files{manifest.TakeOurs: c.left, manifest.TakeTheirs: c.right, manifest.KeepBoth: c.both} {
				got, conflicts := merged(t, b, c.base, choice, c.ours, c.theirs)
				if len(conflicts) != 1 || conflicts[0].Path != c.path || conflicts[0].Kind != c.kind {
					t.Errorf("conflicts: %v, want %s at %s", conflicts, c.kind, c.path)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%s: want, got:\n%s", choice, d)
				}
			}
			switch c.kind {
			case manifest.NameConflict:
				sandboxtest.End(t, "merge names that some file systems take for one", string(c.kind)+" conflict")
			case manifest.TypeConflict:
				sandboxtest.End(t, "merge a directory that the other side made a link", string(c.kind)+" conflict")
			}
			// Undecided: the path keeps ours.
			got, conflicts := merged(t, b, c.base, manifest.Undecided, c.ours, c.theirs)
			if len(conflicts) != 1 || conflicts[0].Choice != manifest.Undecided {
				t.Errorf("%v", conflicts)
			}
			if got[c.path] != c.ours[c.path] && c.kind != manifest.BinaryConflict {
				t.Errorf("an open conflict left %q", got[c.path])
			}
		})
	}
}

// TestMergeFold merges three sides one after the other.
func TestMergeFold(t *testing.T) {
	b := blob.NewMemory()
	base := files{"a": ten, "k": "1"}
	got, conflicts := merged(t, b, base, manifest.TakeTheirs, base,
		files{"a": tenTop, "k": "1", "x": "1"}, files{"a": tenUno, "k": "1", "y": "2"}, files{"a": tenLast, "k": "2"})
	want := files{"a": "uno\n2\n3\n4\n5\n6\n7\n8\n9\nten\n", "k": "2", "x": "1", "y": "2"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want, got:\n%s", d)
	}
	if len(conflicts) != 1 {
		t.Fatalf("%v", conflicts)
	}
	wantText := "a (text): b2 over b1, by rule"
	if conflicts[0].String() != wantText {
		t.Errorf("%s, want %s", conflicts[0], wantText)
	}
	if d := cmp.Diff("<<<<<<< b1 (line 1)\none\n=======\nuno\n>>>>>>> b2\n", conflicts[0].Detail); d != "" {
		t.Errorf("%s", d)
	}
}

// random makes a tree of another: names exclude each other now and then, texts do not
// merge, as each is a line of its own.
func random(r *rand.Rand, of files) files {
	out := maps.Clone(of)
	names := []string{"a", "b", "a/x", "a/y", "b/x", "b/x/z", "a-", "c"}
	for range r.IntN(5) {
		p := names[r.IntN(len(names))]
		for q := range out { // replaces an existing path
			if q == p || strings.HasPrefix(q, p+"/") || strings.HasPrefix(p, q+"/") {
				delete(out, q)
			}
		}
		switch r.IntN(6) {
		case 0:
		case 1:
			out[p] = "dir"
		case 2:
			out[p] = fmt.Sprintf("link %d", r.IntN(2))
		case 3:
			out[p] = fmt.Sprintf("run %d", r.IntN(3))
		default:
			out[p] = fmt.Sprintf("%d", r.IntN(3))
		}
	}
	return out
}

// withDirs adds the directories above each path.
func withDirs(f files) files {
	out := maps.Clone(f)
	for p := range f {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			out[dir] = "dir"
		}
	}
	return out
}

// modelMerge takes each path by itself; ok is false if some path, or the directories
// above the paths, do not fit together.
func modelMerge(base, ours, theirs files) (out files, ok bool) {
	base, ours, theirs = withDirs(base), withDirs(ours), withDirs(theirs)
	out = files{}
	for _, side := range []files{base, ours, theirs} {
		for p := range side {
			b, o, t := base[p], ours[p], theirs[p]
			take := o
			switch {
			case o == t, t == b:
			case o == b:
				take = t
			default:
				// One side may have changed the bytes and the other the mode.
				bb, bx := strings.CutPrefix(b, "run ")
				ob, ox := strings.CutPrefix(o, "run ")
				tb, tx := strings.CutPrefix(t, "run ")
				isFile := func(s string) bool { return s != "" && s != "dir" && !strings.HasPrefix(s, "link ") }
				if !isFile(b) || !isFile(o) || !isFile(t) || ob != tb && ob != bb && tb != bb {
					return nil, false
				}
				take = ob
				if ob == bb {
					take = tb
				}
				if ox == tx && ox || ox != tx && !bx {
					take = "run " + take
				}
			}
			if take != "" {
				out[p] = take
			}
		}
	}
	all := withDirs(out)
	for p := range all {
		if what, there := out[p]; there && what != all[p] {
			return nil, false
		}
	}
	for p, what := range all {
		if up := path.Dir(p); what == "dir" && up != "." || what != "dir" {
			delete(all, up)
		}
	}
	return all, true
}

func TestMergeAgainstNaiveModel(t *testing.T) {
	clean := 0
	const tries = 4000
	for seed := range uint64(tries) {
		r := rand.New(rand.NewPCG(seed, 9))
		b := blob.NewMemory()
		base := random(r, random(r, files{}))
		ours, theirs := random(r, base), random(r, base)
		got, conflicts := merged(t, b, base, manifest.TakeOurs, ours, theirs)
		want, ok := modelMerge(base, ours, theirs)
		if ok {
			// Neither side has a directory that both emptied.
			for p, what := range want {
				if what == "dir" && got[p] == "" {
					delete(want, p)
				}
			}
		}
		if ok != (len(conflicts) == 0) || ok && !maps.Equal(got, want) {
			t.Fatalf("seed %d: base %v, ours %v, theirs %v\n got %v, %v\nwant %v, %v", seed, base, ours, theirs, got, conflicts, want, ok)
		}
		if ok {
			clean++
		}
		// Swapped, with theirs, it is the same.
		swapped, again := merged(t, b, base, manifest.TakeTheirs, theirs, ours)
		if !maps.Equal(got, swapped) || len(conflicts) != len(again) {
			t.Fatalf("seed %d: base %v, ours %v, theirs %v\n%v, swapped %v", seed, base, ours, theirs, got, swapped)
		}
		// KeepBoth loses nothing that a side wrote.
		both, _ := merged(t, b, base, manifest.KeepBoth, ours, theirs)
		kept := slices.Collect(maps.Values(both))
		for _, side := range []files{ours, theirs} {
			for p, what := range side {
				bytes := strings.TrimPrefix(what, "run ")
				if base[p] != what && what != "dir" && strings.TrimPrefix(base[p], "run ") != bytes && !slices.Contains(kept, bytes) && !slices.Contains(kept, "run "+bytes) {
					t.Fatalf("seed %d: base %v, ours %v, theirs %v: %q of %s is lost in %v", seed, base, ours, theirs, what, p, both)
				}
			}
		}
	}
	if clean < tries/10 || clean > tries*9/10 {
		t.Errorf("%d of %d merges had no conflict: the trees are no test", clean, tries)
	}
}

// TestMergeStops: a context that ended ends a merge, and an absent head is named.
func TestMergeStops(t *testing.T) {
	b := blob.NewMemory()
	from, to := files{"a": "1"}.store(t, b), files{"a": "2"}.store(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	side := manifest.Side{Name: "s", Base: from, Head: to}
	if _, _, err := manifest.Merge(ctx, b, manifest.Side{Head: from}, []manifest.Side{side}, always(manifest.TakeOurs)); err == nil {
		t.Error("a merge went on after its context ended")
	}
	side.Head = blob.Sum([]byte("absent"))
	if _, _, err := manifest.Merge(t.Context(), b, manifest.Side{Head: from}, []manifest.Side{side}, always(manifest.TakeOurs)); err == nil {
		t.Error("a merge of a head that is not there")
	}
}
