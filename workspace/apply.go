package workspace

import (
	"context"
	"crypto/rand"
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
	"github.com/rathcluster/rath/internal/files/manifest"
)

// Apply applies the plan's changes to dir, which the user owns and whose files were
// imported as the plan's first head: "--apply". It does not read paths that are unchanged
// between the heads or that the plan withholds.
//
// If a path in dir matches neither its old nor its new state, Apply changes no file and
// returns a *ConflictError with all such paths. Applying a plan twice is safe. Apply writes
// new contents to a temporary file beside the target and renames it, so a reader sees
// either version. After a system failure, some paths may be applied, and the error names
// the path that failed. A directory that the plan removes stays if it holds other files.
func (p *Plan) Apply(ctx context.Context, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("workspace: apply: %w", err)
	}
	defer root.Close()
	ap := apply{ctx: ctx, blobs: p.blobs, root: root}
	if err := ap.check(p.changes); err != nil {
		return err
	}
	if err := ap.run(); err != nil {
		return fmt.Errorf("workspace: apply: %w", err)
	}
	return nil
}

type apply struct {
	ctx    context.Context
	blobs  blob.Store
	root   *os.Root
	todo   []manifest.Change
	staged []string // temporary files that may still exist
}

// check collects the remaining changes and returns an error for a change that would destroy
// the user's work.
func (ap *apply) check(changes []manifest.Change) error {
	var conflicts []string
	for _, c := range changes {
		if err := ap.ctx.Err(); err != nil {
			return err
		}
		if _, err := filename.Local(c.Path); err != nil {
			return &RefusedError{Path: c.Path, Reason: BadName, Err: err}
		}
		now, err := ap.look(c.Path)
		if err != nil {
			return err
		}
		switch now {
		case c.After:
		case c.Before:
			ap.todo = append(ap.todo, c)
		default:
			conflicts = append(conflicts, c.Path)
		}
	}
	// A directory that is replaced must be empty by then, and new files need real directories
	// as parents: a link that the user put there instead may lead to a withheld path.
	gone, made := make(map[string]bool), make(map[string]bool)
	for _, c := range ap.todo {
		gone[c.Path] = c.Kind != manifest.Added
		made[c.Path] = c.After.Kind == manifest.Dir
	}
	for _, c := range ap.todo {
		if dir := ap.noDirectory(path.Dir(c.Path), made); dir != "" {
			conflicts = append(conflicts, dir)
			continue
		}
		if c.Before.Kind != manifest.Dir || c.Kind != manifest.Modified {
			continue
		}
		names, err := ap.names(c.Path)
		if err != nil {
			return err
		}
		for _, n := range names {
			if p := path.Join(c.Path, filename.Escape(n)); !gone[p] {
				conflicts = append(conflicts, p)
			}
		}
	}
	if conflicts != nil {
		slices.Sort(conflicts)
		return &ConflictError{Paths: slices.Compact(conflicts)}
	}
	return nil
}

// noDirectory returns the first of a path and its parents that neither is nor becomes a
// directory, or "". made caches the results.
func (ap *apply) noDirectory(dir string, made map[string]bool) string {
	if dir == "." || made[dir] {
		return ""
	}
	if up := ap.noDirectory(path.Dir(dir), made); up != "" {
		return up
	}
	if fi, err := ap.root.Lstat(filename.FromSlash(dir)); err != nil || !fi.IsDir() {
		return dir
	}
	made[dir] = true
	return ""
}

// look returns the tree entry of a path, or the zero Entry if it does not exist. A file
// that no tree can hold differs from every entry.
func (ap *apply) look(p string) (manifest.Entry, error) {
	name := filename.FromSlash(p)
	fi, err := ap.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return manifest.Entry{}, nil
	}
	if err != nil {
		return manifest.Entry{}, fmt.Errorf("workspace: apply: %w", err)
	}
	switch fi.Mode().Type() {
	case fs.ModeDir:
		return manifest.Entry{Path: p, Kind: manifest.Dir}, nil
	case fs.ModeSymlink:
		target, err := ap.root.Readlink(name)
		if err != nil {
			return manifest.Entry{}, fmt.Errorf("workspace: apply: %w", err)
		}
		return manifest.Entry{Path: p, Kind: manifest.Symlink, Target: filename.Escape(filepath.ToSlash(target))}, nil
	case 0:
		f, err := ap.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return manifest.Entry{}, fmt.Errorf("workspace: apply: %w", err)
		}
		defer f.Close()
		ref, err := hashFile(ap.ctx, f)
		if err != nil {
			return manifest.Entry{}, fmt.Errorf("workspace: apply: read %q: %w", p, err)
		}
		return manifest.Entry{Path: p, Kind: manifest.File, Exec: fi.Mode()&0o100 != 0, Size: ref.Size, Digest: ref.Digest}, nil
	}
	return manifest.Entry{Path: p}, nil
}

func (ap *apply) names(p string) ([]string, error) {
	f, err := ap.root.Open(filename.FromSlash(p))
	if err != nil {
		return nil, fmt.Errorf("workspace: apply: %w", err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("workspace: apply: %w", err)
	}
	return names, nil
}

// run makes the changes and removes its temporary files.
func (ap *apply) run() error {
	err := ap.carry()
	for _, tmp := range ap.staged {
		if rmErr := ap.root.Remove(tmp); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
	}
	return err
}

// carry makes the changes. It writes new files first, beside their targets, because writing
// is the likeliest step to fail. It then removes old paths bottom-up and moves new ones
// into place top-down.
func (ap *apply) carry() error {
	place := make(map[string]string)
	for _, c := range ap.todo {
		if c.After.Kind != manifest.File {
			continue
		}
		tmp, err := ap.stage(c)
		if err != nil {
			return err
		}
		place[c.Path] = tmp
	}
	for _, c := range slices.Backward(ap.todo) {
		if c.Before.Kind == "" || c.Before.Kind == manifest.File && c.After.Kind == manifest.File {
			continue // absent, or replaced by the rename
		}
		err := ap.root.Remove(filename.FromSlash(c.Path))
		if errors.Is(err, fs.ErrExist) && c.Kind == manifest.Removed {
			continue // the directory holds other files
		}
		if err != nil {
			return err
		}
	}
	for _, c := range ap.todo {
		name := filename.FromSlash(c.Path)
		var err error
		switch c.After.Kind {
		case manifest.Dir:
			err = ap.root.Mkdir(name, 0o755)
		case manifest.Symlink:
			err = ap.root.Symlink(filename.FromSlash(c.After.Target), name)
		case manifest.File:
			err = ap.root.Rename(place[c.Path], name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stage writes a new file to the nearest parent directory that this run keeps.
func (ap *apply) stage(c manifest.Change) (tmp string, err error) {
	dir := path.Dir(c.Path)
	for dir != "." {
		if fi, err := ap.root.Lstat(filename.FromSlash(dir)); err == nil && fi.IsDir() && !ap.leaves(dir) {
			break
		}
		dir = path.Dir(dir)
	}
	tmp = filepath.Join(filename.FromSlash(dir), ".rath-apply-"+rand.Text()[:16])
	ap.staged = append(ap.staged, tmp)
	if err := fetch(ap.ctx, ap.blobs, ap.root, tmp, c.After); err != nil {
		return "", err
	}
	// A file that stays a file keeps the owner's other permissions.
	if c.Before.Kind == manifest.File {
		fi, err := ap.root.Lstat(filename.FromSlash(c.Path))
		if err != nil {
			return "", err
		}
		perm := fi.Mode().Perm() &^ 0o111
		if c.After.Exec {
			perm |= 0o100 | perm>>2&0o011
		}
		if err := ap.root.Chmod(tmp, perm); err != nil {
			return "", err
		}
	}
	return tmp, nil
}

// leaves reports whether a directory, or one above it, is removed or replaced by this run.
func (ap *apply) leaves(dir string) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		i, ok := slices.BinarySearchFunc(ap.todo, dir, func(c manifest.Change, p string) int { return strings.Compare(c.Path, p) })
		if ok && ap.todo[i].Before.Kind != "" {
			return true
		}
	}
	return false
}
