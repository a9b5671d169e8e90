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

// Plan is the set of changes between two heads that Apply carries to the directory from
// which the first head was imported. It excludes paths that the ignore files excluded at
// the import. It carries a change to a path that outside programs execute, or take
// configuration from, only if the path is allowed by name.
type Plan struct {
	// Paths are the paths that the plan carries, sorted.
	Paths []string
	// Withheld are the changed paths that the plan does not carry, sorted; a directory is
	// listed only if none of its contents are. Paths that PlanOptions.Only excludes are not
	// listed.
	Withheld []LeftOut

	blobs   blob.Store
	changes []manifest.Change
}

// PlanOptions select the paths of a Plan; nil means all that are not protected.
type PlanOptions struct {
	// Only restricts the plan to these paths and those below them.
	Only []string
	// Allow carries these protected paths, and those below them.
	Allow []string
}

// linkOut is the reason to withhold a link to the outside.
const linkOut = "a symbolic link that leads out of the directory"

// linkToNever is the reason to withhold a link through which a program could write to a
// path that no plan carries.
const linkToNever = "a symbolic link to a path --apply never writes"

func leadsToNever(p, target string) bool {
	_, is := neverOf(path.Join(path.Dir(p), target))
	return is
}

// bareRepository is the reason to withhold files in a directory with HEAD, objects and
// refs: git treats it as a repository, whose configuration names programs to run.
const bareRepository = "in a directory git accepts as a repository"

// NewPlan compares two heads. It reads their manifests and no files. It omits, without
// listing it, the copy of a repository that was imported for the commands. A path of Only
// without a change is an error that wraps fs.ErrNotExist.
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
	dirs := make(map[string]bool) // of the withheld paths
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

// named drops the directories that contain another listed path.
func named(all []LeftOut, dirs map[string]bool) []LeftOut {
	holds := make(map[string]bool)
	for _, w := range all {
		holds[path.Dir(w.Path)] = true
	}
	return slices.DeleteFunc(all, func(w LeftOut) bool { return dirs[w.Path] && holds[w.Path] })
}

// neverOf returns the kind of a path that is never exchanged, or lies below such a path.
func neverOf(p string) (why string, ok bool) {
	for name := range strings.SplitSeq(p, "/") {
		if why := never(name); why != "" {
			return why, true
		}
	}
	return "", false
}

// risk returns the reason why a change could do harm outside the sandbox, or "".
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

// of returns the protected kind of a change's path, as a link if it was or is one.
func (f finder) of(c manifest.Change) string {
	if c.After.Kind == manifest.Symlink || c.Before.Kind == manifest.Symlink {
		return f.whatLink(c.Path)
	}
	return f.what(c.Path)
}

// allowed reports whether a change is at or below one of the names, or is a directory on
// the way to one.
func allowed(names []string, c manifest.Change) bool {
	if under(names, c.Path) {
		return true
	}
	return c.Kind == manifest.Added && c.After.Kind == manifest.Dir && slices.ContainsFunc(names, func(n string) bool {
		return strings.HasPrefix(path.Clean(n), c.Path+"/")
	})
}

// bareRepositories returns the directories of a tree that git treats as repositories.
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

// chosen reports whether Only selects a change, or a directory on the way to one, and
// records the matched names in met.
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

// under reports whether p is one of the names or lies below one.
func under(names []string, p string) bool {
	for _, n := range names {
		if n = path.Clean(n); n == p || n == "." || strings.HasPrefix(p, n+"/") {
			return true
		}
	}
	return false
}
