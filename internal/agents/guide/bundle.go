package guide

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
)

// ErrBundle is returned by LayIn for skills that cannot be used.
var ErrBundle = errors.New("these skills cannot be used")

// LayIn returns the files of head with the skills of another head, and the skills' names.
// The skills are folders in bundle, at the top or in one of Folders, and are added to the
// first of Folders. Unlike a workspace's own skills, all of them must be valid. The zero
// head has no files.
func LayIn(ctx context.Context, b blob.Store, head, bundle blob.Digest) (blob.Digest, []string, error) {
	r, err := newReader(ctx, b, bundle)
	if err != nil {
		return head, nil, err
	}
	skills, err := r.bundle()
	if err != nil {
		return head, nil, err
	}
	files := &manifest.Tree{}
	if !head.IsZero() {
		if files, err = manifest.Load(ctx, b, head); err != nil {
			return head, nil, err
		}
	}
	into := Folders[0]
	all := slices.Collect(files.Entries())
	for _, dir := range []string{path.Dir(into), into} {
		if _, ok := files.Lookup(dir); !ok {
			all = append(all, manifest.Entry{Path: dir, Kind: manifest.Dir})
		}
	}
	var names []string
	for _, s := range skills {
		for _, in := range Folders {
			if _, ok := files.Lookup(path.Join(in, s.Name)); ok {
				return head, nil, fmt.Errorf("%w: the files have a skill %s already", ErrBundle, path.Join(in, s.Name))
			}
		}
		names = append(names, s.Name)
		for e := range r.tree.Entries() {
			if inside, ok := strings.CutPrefix(e.Path, s.Folder); ok && (inside == "" || inside[0] == '/') {
				e.Path = path.Join(into, s.Name) + inside
				all = append(all, e)
			}
		}
	}
	tree, err := manifest.NewTree(all, files, r.tree)
	if err != nil {
		return head, nil, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	head, err = tree.Excluding(files.Excluded()).Store(ctx, b)
	return head, names, err
}

// bundle reads all skills of a head, sorted by name.
func (r *reader) bundle() ([]Skill, error) {
	var all []Skill
	listed := 0
	for _, in := range append([]string{"."}, Folders...) {
		for _, folder := range r.below(in) {
			if _, ok := r.tree.Lookup(path.Join(folder.Path, skillFile)); in == "." && !ok {
				continue // of something else
			}
			s, err := r.skill(folder)
			if refused, ok := errors.AsType[refusal](err); ok {
				return nil, fmt.Errorf("%w: skill %s %s", ErrBundle, folder.Path, string(refused))
			}
			if err != nil {
				return nil, err
			}
			if slices.ContainsFunc(all, func(o Skill) bool { return o.Name == s.Name }) {
				return nil, fmt.Errorf("%w: two have the name %s", ErrBundle, s.Name)
			}
			listed += len(s.Name) + len(s.Description)
			if all = append(all, s); len(all) > MaxSkills || listed > MaxListed {
				return nil, fmt.Errorf("%w: more than %d, or names and descriptions of more than %d KiB", ErrBundle, MaxSkills, MaxListed>>10)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: there is no folder with a %s, neither at the top nor in %s", ErrBundle, skillFile, strings.Join(Folders, " or "))
	}
	slices.SortFunc(all, func(a, b Skill) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
