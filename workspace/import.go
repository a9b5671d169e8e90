package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/filename"
	"github.com/rathcluster/rath/internal/files/ignore"
	"github.com/rathcluster/rath/internal/files/manifest"
)

// The ignore files that Import reads, in the order in which they count: a line of
// the later one decides.
const (
	GitIgnore  = ".gitignore"
	RathIgnore = ".rathignore"
)

// maxIgnoreFile bounds the bytes of one of them.
const maxIgnoreFile = 256 << 10

// ImportOptions say how a directory comes in; nil means the defaults.
type ImportOptions struct {
	Limits Limits
	// Exclude are more lines of patterns, as an ignore file at the top has them.
	Exclude []string
	// Tracked are files of the directory that git tracks, slash separated: a .gitignore does
	// not leave them out, as with git. A .rathignore and Exclude do.
	Tracked []string
	// Cache is a folder of this user, which is made if it is absent, for what is known of
	// the files of a directory: one that nothing has touched since the last Import is not
	// read again. What cannot be kept there is read. "" for none.
	Cache string
	// Store names the store of the blobs to the cache, such as the address of a server
	// and a tenant: what it still has of the last Import is not stored again.
	Store string
}

// Imported is what became of a directory.
type Imported struct {
	Head blob.Digest
	// LeftOut are the first MaxLeftOut paths that did not come in, in the order of the
	// walk, a directory as one; More is how many there were besides.
	LeftOut []LeftOut
	More    int
}

// LeftOut is a path that did not come in, or that does not go out.
type LeftOut struct {
	Path string `json:"path"` // a directory that did not come in ends with a slash
	Why  string `json:"why"`  // the line of an ignore file, or what the path is
	// Refused, on the way out: the path is no leftover of the work such as a build, but
	// one that could do harm. A Plan carries it if PlanOptions.Allow names it.
	Refused bool `json:"refused,omitempty"`
	// Never: it is git's own or a store of Rath, which no workspace exchanges.
	Never bool `json:"never,omitempty"`
}

// MaxLeftOut bounds Imported.LeftOut.
const MaxLeftOut = 1000

// Import stores the files of a directory that a person owns, but for git's own
// directory and the store of Rath at any depth, and what .gitignore and .rathignore say,
// there, in the directories below, and in those above up to the top of the repository. A name
// that no head can keep is left out too.
// These rules are kept with the head and with every head that follows from it, so that
// a Plan leaves out the same, also when the ignore files have changed since.
//
// Errors are those of Snapshot; more lines of patterns than a head can keep are
// an error too.
func Import(ctx context.Context, b blob.Store, dir string, opts *ImportOptions) (Imported, error) {
	var o ImportOptions
	if opts != nil {
		o = *opts
	}
	f := &filter{rules: new(ignore.Rules), own: new(ignore.Rules), tracked: slices.Sorted(slices.Values(o.Tracked))}
	if err := f.above(dir); err != nil {
		return Imported{}, err
	}
	for _, rules := range []*ignore.Rules{f.rules, f.own} {
		if err := rules.Add("", []byte(strings.Join(o.Exclude, "\n"))); err != nil {
			return Imported{}, err
		}
	}
	x := loadIndex(o.Cache, dir)
	store := blob.Sum([]byte(o.Store))
	head, old, lacks, err := x.last(ctx, b, store)
	if err != nil {
		return Imported{}, err
	}
	s := &scan{ctx: ctx, blobs: b, limits: o.Limits, filter: f, index: x, base: old, stored: old.Kept(lacks)}
	t, err := s.walk(dir)
	if err != nil {
		return Imported{}, err
	}
	t = t.Excluding(f.rules)
	if head.IsZero() || len(lacks) > 0 || !slices.Equal(lines(old), lines(t)) || len(manifest.Compare(old, t)) > 0 {
		head, err = t.Lacking(lacks).Store(ctx, b)
	}
	if err == nil {
		x.keep(store, head)
		_ = x.save() // the next Import reads all
	}
	return Imported{Head: head, LeftOut: f.out, More: f.more}, err
}

// ImportMade stores a directory that produce makes for one that came in by Import, with the
// same options, and returns its head. What the store has, since the last time for the same
// directory and key, is not made again: the key says all that it depends on.
func ImportMade(ctx context.Context, b blob.Store, dir string, o *ImportOptions, key string, produce func() (string, error)) (blob.Digest, error) {
	x := loadIndex(o.Cache, dir)
	store := blob.Sum([]byte(o.Store + "\x00" + key))
	head, _, lacks, err := x.last(ctx, b, store)
	if err != nil || !head.IsZero() && len(lacks) == 0 {
		return head, err
	}
	made, err := produce()
	if err != nil {
		return blob.Digest{}, err
	}
	if head, err = Snapshot(ctx, b, made, blob.Digest{}, o.Limits); err == nil {
		x.keep(store, head)
		_ = x.save() // it is made again
	}
	return head, err
}

// lines returns the rules of a tree.
func lines(t *manifest.Tree) []string {
	if t.Excluded() == nil {
		return nil
	}
	return t.Excluded().Lines()
}

// filter is what an Import leaves out.
type filter struct {
	rules   *ignore.Rules
	own     *ignore.Rules // those of no .gitignore
	tracked []string      // sorted
	out     []LeftOut
	more    int
}

// add adds the lines of an ignore file.
func (f *filter) add(name, dir string, lines []byte) error {
	lines = []byte(filename.Escape(string(lines)))
	if err := f.rules.Add(dir, lines); err != nil || name == GitIgnore {
		return err
	}
	return f.own.Add(dir, lines)
}

// include lets the tracked files below a directory in that a .gitignore left out. Where those
// are too many for the rules of a head the rest stays out, and is named as such.
func (f *filter) include(dir string) error {
	below := f.tracked
	if dir != "." {
		from, _ := slices.BinarySearch(f.tracked, dir+"/")
		to, _ := slices.BinarySearch(f.tracked, dir+"0") // the character behind the slash
		below = f.tracked[from:to]
	}
	for _, p := range below {
		if _, out := f.rules.Excludes(p, false); !out || f.rules.Len() > ignore.MaxLines/2 {
			continue
		}
		if _, out := f.own.Excludes(p, false); out {
			continue
		}
		if err := f.rules.Include(p); err != nil {
			return fmt.Errorf("workspace: import: %w", err)
		}
	}
	return nil
}

// above adds the rules of the directories above, up to the top of the repository. A
// directory that lies in none has no rules above it.
func (f *filter) above(dir string) error {
	top, err := filepath.Abs(dir)
	if err == nil {
		top, err = filepath.EvalSymlinks(top)
	}
	if err != nil {
		return fmt.Errorf("workspace: import: %w", err)
	}
	var parents []string // from the nearest up
	for at := top; ; {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			break
		}
		up := filepath.Dir(at)
		if up == at {
			return nil
		}
		at = up
		parents = append(parents, at)
	}
	for _, p := range slices.Backward(parents) {
		root, err := os.OpenRoot(p)
		if err != nil {
			return fmt.Errorf("workspace: import: %w", err)
		}
		err = f.parent(root, p, top)
		root.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// parent adds the rules of one directory above the top.
func (f *filter) parent(root *os.Root, dir, top string) error {
	down, err := filepath.Rel(dir, top)
	if err != nil {
		return fmt.Errorf("workspace: import: %w", err)
	}
	for _, name := range []string{GitIgnore, RathIgnore} {
		data, err := readIgnoreFile(root, name)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data)) {
			line, ok := ignore.Outside(filepath.ToSlash(down), strings.TrimSuffix(line, "\n"))
			if !ok {
				continue
			}
			if err := f.add(name, "", []byte(line)); err != nil {
				return fmt.Errorf("workspace: %s: %w", filepath.Join(dir, name), err)
			}
		}
	}
	return nil
}

// enter adds the rules of a directory before its names are looked at.
func (f *filter) enter(root *os.Root, dir string, names []string) error {
	added := dir == "." // those above it count for it
	for _, name := range []string{GitIgnore, RathIgnore} {
		if _, ok := slices.BinarySearch(names, name); !ok {
			continue
		}
		p := path.Join(dir, name)
		data, err := readIgnoreFile(root, p)
		if err != nil {
			return err
		}
		below := dir
		if dir == "." {
			below = ""
		}
		if err := f.add(name, below, data); err != nil {
			return fmt.Errorf("workspace: %s: %w", p, err)
		}
		added = true
	}
	if !added {
		return nil
	}
	return f.include(dir)
}

// readIgnoreFile reads a regular file; like git it takes a link for none.
func readIgnoreFile(root *os.Root, p string) ([]byte, error) {
	fi, err := root.Lstat(filename.FromSlash(p))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !fi.Mode().IsRegular() {
		return nil, nil
	}
	if err != nil {
		return nil, &RefusedError{Path: p, Reason: Unreadable, Err: err}
	}
	f, err := root.OpenFile(filename.FromSlash(p), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, &RefusedError{Path: p, Reason: Unreadable, Err: err}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIgnoreFile+1))
	if err != nil {
		return nil, &RefusedError{Path: p, Reason: Unreadable, Err: err}
	}
	if len(data) > maxIgnoreFile {
		return nil, fmt.Errorf("workspace: %s has more than %d bytes of patterns", p, maxIgnoreFile)
	}
	return data, nil
}

// leavesOut reports whether a path stays outside, and notes it.
func (f *filter) leavesOut(p string, dir bool) bool {
	why := never(path.Base(p))
	own := why != ""
	if !own {
		var out bool
		if why, out = f.rules.Match(p, dir); !out {
			return false
		}
	}
	f.note(p, dir, why, own)
	return true
}

// note adds a path to those that stay outside.
func (f *filter) note(p string, dir bool, why string, own bool) {
	if len(f.out) >= MaxLeftOut {
		f.more++
		return
	}
	if dir {
		p += "/"
	}
	f.out = append(f.out, LeftOut{Path: p, Why: why, Never: own})
}
