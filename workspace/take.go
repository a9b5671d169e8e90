package workspace

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/filename"
	"github.com/rathcluster/rath/internal/files/manifest"
)

// Take is a [Snapshot] of a directory in which untrusted commands ran. It first reverts
// their changes to [Protected] paths to the state of base, in the directory, too. Allowed
// paths, and those below them, keep the commands' changes.
//
// The returned LeftOut are the reverted paths, sorted; a directory is listed only if none
// of its contents are. After an error of reverting, the directory must not be used again.
type Take func(ctx context.Context, base blob.Digest, l Limits, allow []string) (blob.Digest, []LeftOut, error)

// Checkout restores a head as [Restore] does and returns a Take of the directory, which
// reads only files that have changed since. The Take is not safe for concurrent use. No
// untrusted program may run in the directory during a call.
func Checkout(ctx context.Context, b blob.Store, head blob.Digest, dir string) (Take, error) {
	x := new(index)
	if err := x.restore(ctx, b, head, dir); err != nil {
		return nil, err
	}
	return x.taking(b, dir), nil
}

// CheckoutShared restores a head as [Restore] does. The function it returns makes a Take of
// a directory that is a copy of dir with the same inodes and times. The Takes of different
// directories may be used concurrently. dir must not change.
func CheckoutShared(ctx context.Context, b blob.Store, head blob.Digest, dir string) (func(fork string) Take, error) {
	x := new(index)
	if err := x.restore(ctx, b, head, dir); err != nil {
		return nil, err
	}
	// An index replaces its map of files and never modifies it, so the copies can share it.
	return func(fork string) Take {
		return (&index{files: x.files, head: x.head, tree: x.tree}).taking(b, fork)
	}, nil
}

// TakeAll returns a Take of a directory that reads all files on each call, for a directory
// in which programs may still run.
func TakeAll(b blob.Store, dir string) Take { return (*index)(nil).taking(b, dir) }

func (x *index) taking(b blob.Store, dir string) Take {
	return func(ctx context.Context, base blob.Digest, l Limits, allow []string) (blob.Digest, []LeftOut, error) {
		u := &undo{allow: allow}
		head, err := x.snapshot(ctx, b, dir, base, l, u)
		return head, u.back, err
	}
}

// undo reverts a snapshot's changes to protected paths.
type undo struct {
	allow []string
	back  []LeftOut
}

// run reverts in dir the changes from old to now that are at protected paths. It returns
// the resulting tree and the remaining changes. A nil undo reverts nothing.
func (u *undo) run(ctx context.Context, b blob.Store, dir string, old, now *manifest.Tree, changes []manifest.Change) (*manifest.Tree, []manifest.Change, error) {
	if u == nil {
		return now, changes, nil
	}
	entries := u.entries(now, changes)
	if len(u.back) == 0 {
		return now, changes, nil
	}
	want, err := manifest.NewTree(entries, now, old)
	if err == nil {
		err = putBack(ctx, manifest.NewFiles(b, want), dir, manifest.Compare(now, want))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("workspace: put protected paths back: %w", err)
	}
	return want, manifest.Compare(old, want), nil
}

// entries returns the entries without the protected changes and records the reverted paths
// in u.back.
func (u *undo) entries(now *manifest.Tree, changes []manifest.Change) []manifest.Entry {
	protected := newFinder()
	gone, dirs, made := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	put := make(map[string]manifest.Entry)
	for _, c := range changes {
		what := protected.of(c)
		if what == "" || allowed(u.allow, c) {
			made[c.Path] = c.Before.Kind == "" && c.After.Kind == manifest.Dir
			continue
		}
		u.back = append(u.back, LeftOut{Path: c.Path, Why: what, Refused: true})
		gone[c.Path] = c.After.Kind != ""
		dirs[c.Path] = c.After.Kind == manifest.Dir || c.After.Kind == "" && c.Before.Kind == manifest.Dir
		if c.Before.Kind == "" {
			continue
		}
		put[c.Path] = c.Before
		// A file that the command put in place of a parent directory is removed, too.
		for up := path.Dir(c.Path); up != "."; up = path.Dir(up) {
			if e, ok := now.Lookup(up); !ok || e.Kind != manifest.Dir {
				put[up] = manifest.Entry{Path: up, Kind: manifest.Dir}
			}
		}
	}
	u.back = named(u.back, dirs)
	var entries []manifest.Entry
	for e := range now.Entries() {
		if _, again := put[e.Path]; !again && !gone[e.Path] && !belowFile(put, e.Path) {
			entries = append(entries, e)
		}
	}
	for _, e := range put {
		entries = append(entries, e)
	}
	return withoutEmptied(entries, made, u.back)
}

// withoutEmptied drops the directories that a command created and that are empty without
// the removed paths.
func withoutEmptied(entries []manifest.Entry, made map[string]bool, gone []LeftOut) []manifest.Entry {
	names := make(map[string]int) // of each directory
	for _, e := range entries {
		names[path.Dir(e.Path)]++
	}
	emptied := make(map[string]bool)
	for _, g := range gone {
		for up := path.Dir(g.Path); made[up] && names[up] == 0 && !emptied[up]; up = path.Dir(up) {
			emptied[up] = true
			names[path.Dir(up)]--
		}
	}
	return slices.DeleteFunc(entries, func(e manifest.Entry) bool { return emptied[e.Path] })
}

// belowFile reports whether p lies below a restored path that is not a directory.
func belowFile(put map[string]manifest.Entry, p string) bool {
	for up := path.Dir(p); len(put) > 0 && up != "."; up = path.Dir(up) {
		if e, ok := put[up]; ok && e.Kind != manifest.Dir {
			return true
		}
	}
	return false
}

// putBack makes changes in a directory that a command may have left in any state. Restored
// files belong to the owner of the directory.
func putBack(ctx context.Context, b blob.Store, dir string, changes []manifest.Change) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, c := range changes {
		// Removing and creating files needs a writable directory.
		for _, name := range []string{path.Dir(c.Path), c.Path} {
			fi, err := root.Lstat(filename.FromSlash(name))
			if err != nil || !fi.IsDir() || fi.Mode()&0o700 == 0o700 {
				continue
			}
			if err := root.Chmod(filename.FromSlash(name), fi.Mode().Perm()|0o700); err != nil {
				return err
			}
		}
	}
	ap := apply{ctx: ctx, blobs: b, root: root, todo: changes}
	if err := ap.run(); err != nil {
		return err
	}
	owner, err := root.Stat(".")
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.After.Kind == "" {
			continue
		}
		name := filename.FromSlash(c.Path)
		if c.After.Kind == manifest.File {
			perm := fs.FileMode(0o644)
			if c.After.Exec {
				perm = 0o755
			}
			if err := root.Chmod(name, perm); err != nil {
				return err
			}
		}
		if err := giveTo(root, name, owner); err != nil {
			return err
		}
	}
	return nil
}
