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

// The ignore files that Import reads, in order of increasing precedence.
const (
	GitIgnore  = ".gitignore"
	RathIgnore = ".rathignore"
)

// maxIgnoreFile is the maximum size of an ignore file, in bytes.
const maxIgnoreFile = 256 << 10

// ImportOptions configure Import; nil means the defaults.
type ImportOptions struct {
	Limits Limits
	// Exclude are further patterns, in the form of an ignore file at the top.
	Exclude []string
	// Tracked are the files of the directory that git tracks, slash separated. As in git, a
	// .gitignore does not exclude them. A .rathignore and Exclude do.
	Tracked []string
	// Cache is a private directory of the user for an index of imported files, created if it
	// is absent. Import does not read files again that are unchanged since the last Import.
	// If Cache is "" or cannot be used, Import reads every file.
	Cache string
	// Store identifies the blob store in the cache, for example by a server's address and a
	// tenant. Blobs of the last Import that it still holds are not stored again.
	Store string
}

// Imported is the result of an Import.
type Imported struct {
	Head blob.Digest
	// LeftOut are the first MaxLeftOut excluded paths in the order of the walk, a directory
	// as one path. More is the number of further ones.
	LeftOut []LeftOut
	More    int
}

// LeftOut is a path that was excluded from an import, or withheld from a plan.
type LeftOut struct {
	Path string `json:"path"` // an excluded directory ends with a slash
	Why  string `json:"why"`  // the matching line of an ignore file, or the kind of the path
	// Refused marks a withheld path that could do harm, as opposed to a leftover such as a
	// build. A Plan carries it if PlanOptions.Allow names it.
	Refused bool `json:"refused,omitempty"`
	// Never marks git's own directory or a store of Rath, which are never exchanged with a
	// workspace.
	Never bool `json:"never,omitempty"`
}

// MaxLeftOut bounds Imported.LeftOut.
const MaxLeftOut = 1000

// Import stores the files of the user's directory dir. It excludes git's own directory and
// the store of Rath at any depth, names that no head can hold, and paths that .gitignore
// and .rathignore exclude: in dir, in the directories below, and in those above up to the
// top of the repository. The rules are stored with the head and its successors, so that a
// Plan excludes the same paths even if the ignore files have changed.
//
// Import returns the errors of Snapshot, and an error if the patterns have more lines than
// a head can hold.
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

// ImportMade stores a directory that produce generates from an imported one, with the same
// options, and returns its head. If the store still holds the head of the last call for the
// same directory and key, produce is not called: the key must identify all inputs of
// produce.
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
		_ = x.save() // a failed save only costs the next call its cache
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

// filter decides which paths an Import excludes.
type filter struct {
	rules   *ignore.Rules
	own     *ignore.Rules // rules outside any .gitignore
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

// include re-includes tracked files below dir that a .gitignore excluded. If they are more
// than the rules of a head can hold, the rest stays excluded and is reported.
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

// above adds the rules of the parent directories, up to the top of the repository. A
// directory outside any repository has none.
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

// enter adds the rules of a directory before its names are checked.
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

// note records an excluded path.
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
