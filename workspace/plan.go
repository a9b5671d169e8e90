package workspace

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
)

// Plan is what of the difference of two heads goes into the directory that the first
// one was copied from. Nothing goes out that would not have come in, by the ignore files
// as they were when the directory came in; and what programs outside of the sandbox run,
// or take for orders, goes out only if it is allowed by name.
type Plan struct {
	// Paths are those that are carried over, sorted.
	Paths []string
	// Withheld are those that are not, sorted; a directory only if nothing in it is.
	// What PlanOptions.Only leaves aside is not among them.
	Withheld []LeftOut

	blobs   blob.Store
	changes []manifest.Change
}

// PlanOptions say what a Plan carries; nil means everything that is not protected.
type PlanOptions struct {
	// Only carries these paths and what is below them, and nothing else.
	Only []string
	// Allow carries these protected paths, and those below them.
	Allow []string
}

// linkOut is why a link that the run made is withheld.
const linkOut = "a symbolic link that leads out of the directory"

// linkToNever is why a link is withheld through which a program could write where no plan
// does.
const linkToNever = "a symbolic link into what --apply never carries"

func leadsToNever(p, target string) bool {
	_, is := neverOf(path.Join(path.Dir(p), target))
	return is
}

// bareRepository is why what lies in a directory is withheld: git takes one with HEAD,
// objects and refs for a repository, whose configuration names programs to run.
const bareRepository = "in what git takes for a repository"

// NewPlan compares two heads. It reads their manifests and no files. A repository that came
// with the files, as a copy for their commands, stays behind without a word. A path of Only at
// which nothing changed is an error that wraps fs.ErrNotExist.
func NewPlan(ctx context.Context, b blob.Store, from, to blob.Digest, opts *PlanOptions) (*Plan, error) {
	var o PlanOptions
	if opts != nil {
		o = *opts
	}
	before, err := manifest.Load(ctx, b, from)
	if err != nil {
		return nil, err
	}
	after, err := manifest.Load(ctx, b, to)
	if err != nil {
		return nil, err
	}
	protected := newFinder()
	bare := bareRepositories(after)
	p := &Plan{blobs: manifest.NewFiles(b, after)}
	dirs := make(map[string]bool) // of what is withheld
	met := make([]bool, len(o.Only))
	for _, c := range manifest.Compare(before, after) {
		if before.CarriesGit() && manifest.InGit(c.Path) || !chosen(o.Only, met, c) {
			continue
		}
		w := LeftOut{Path: c.Path}
		w.Why, w.Never = neverOf(c.Path)
		w.Refused = w.Never
		if w.Why == "" && before.Excluded() != nil {
			dir := c.After.Kind == manifest.Dir || c.After.Kind == "" && c.Before.Kind == manifest.Dir
			if line, out := before.Excluded().Excludes(c.Path, dir); out {
				w.Why = line
			}
		}
		if w.Why == "" && !allowed(o.Allow, c) {
			w.Why = risk(protected, bare, c)
			w.Refused = w.Why != ""
		}
		if w.Why != "" {
			p.Withheld = append(p.Withheld, w)
			if c.After.Kind == manifest.Dir {
				dirs[c.Path] = true
			}
			continue
		}
		p.changes = append(p.changes, c)
		p.Paths = append(p.Paths, c.Path)
	}
	p.Withheld = named(p.Withheld, dirs)
	for i, ok := range met {
		if !ok {
			return nil, fmt.Errorf("workspace: nothing changed at %q: %w", o.Only[i], fs.ErrNotExist)
		}
	}
	return p, nil
}

// named leaves out the directories of which something below is named.
func named(all []LeftOut, dirs map[string]bool) []LeftOut {
	holds := make(map[string]bool)
	for _, w := range all {
		holds[path.Dir(w.Path)] = true
	}
	return slices.DeleteFunc(all, func(w LeftOut) bool { return dirs[w.Path] && holds[w.Path] })
}

// neverOf returns the kind of a path that no workspace exchanges, or that lies below one.
func neverOf(p string) (why string, ok bool) {
	for name := range strings.SplitSeq(p, "/") {
		if why := never(name); why != "" {
			return why, true
		}
	}
	return "", false
}

// risk says why a change could do harm outside of the sandbox; "" if it could not.
func risk(protected finder, bare []string, c manifest.Change) string {
	switch what := protected.of(c); {
	case what != "":
		return what
	case c.After.Kind == manifest.Symlink && !manifest.LinkStaysInside(c.Path, c.After.Target):
		return linkOut
	case c.After.Kind == manifest.Symlink && leadsToNever(c.Path, c.After.Target):
		return linkToNever
	case under(bare, c.Path):
		return bareRepository
	}
	return ""
}

// of says what the path of a change is, as what it was and what it is.
func (f finder) of(c manifest.Change) string {
	if c.After.Kind == manifest.Symlink || c.Before.Kind == manifest.Symlink {
		return f.whatLink(c.Path)
	}
	return f.what(c.Path)
}

// allowed reports whether a change is at a path of these, below one, or a directory on the
// way to one.
func allowed(names []string, c manifest.Change) bool {
	if under(names, c.Path) {
		return true
	}
	return c.Kind == manifest.Added && c.After.Kind == manifest.Dir && slices.ContainsFunc(names, func(n string) bool {
		return strings.HasPrefix(path.Clean(n), c.Path+"/")
	})
}

// bareRepositories returns the directories of a tree that git takes for repositories.
func bareRepositories(t *manifest.Tree) []string {
	parts := make(map[string]int)
	for e := range t.Entries() {
		switch manifest.Fold(path.Base(e.Path)) {
		case "head":
			parts[path.Dir(e.Path)] |= 1
		case "objects":
			parts[path.Dir(e.Path)] |= 2
		case "refs":
			parts[path.Dir(e.Path)] |= 4
		}
	}
	var out []string
	for dir, has := range parts {
		if has == 1|2|4 {
			out = append(out, dir)
		}
	}
	return out
}

// chosen reports whether a change is one of those that are meant, or a directory on the
// way to one, and notes which names were met.
func chosen(only []string, met []bool, c manifest.Change) bool {
	if len(only) == 0 {
		return true
	}
	in := false
	for i, o := range only {
		o = path.Clean(o)
		switch {
		case o == c.Path || o == "." || strings.HasPrefix(c.Path, o+"/"):
			in, met[i] = true, true
		case c.After.Kind == manifest.Dir && strings.HasPrefix(o, c.Path+"/"):
			in = true
		}
	}
	return in
}

// under reports whether a path is one of these or lies below one.
func under(names []string, p string) bool {
	for _, n := range names {
		if n = path.Clean(n); n == p || n == "." || strings.HasPrefix(p, n+"/") {
			return true
		}
	}
	return false
}
