package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrLeads is returned for a repository that makes git read or write outside of it.
var ErrLeads = errors.New("git: the repository leads elsewhere")

// place is where a repository lies.
type place struct {
	entry  string // the ".git" by which it is found
	file   bool   // whether it is a file, as in a worktree or submodule
	dir    string // git's own directory
	common string // the directory of the references and objects, which worktrees share
}

// Stays returns ErrLeads unless the files that git reads and writes of the repository lie
// in it, as when it was opened. No link, list of objects or setting leads out of git's
// directory, and a ".git" file names a directory that names this file in return, as in
// worktrees and submodules. Files on which git would block, or that do not fit into memory,
// are an error, too.
func (r *Repository) Stays(ctx context.Context) error {
	now, err := find(r.from)
	switch {
	case err != nil:
		return err
	case now != r.place:
		return fmt.Errorf("%w: %s is another one than before", ErrLeads, now.entry)
	}
	return r.stays(ctx)
}

func (r *Repository) stays(ctx context.Context) error {
	if r.file {
		if err := r.pointsBack(ctx); err != nil {
			return err
		}
	} else if !same(r.dir, r.common) {
		return fmt.Errorf("%w: %s names %s", ErrLeads, filepath.Join(r.dir, "commondir"), r.common)
	}
	w := &walk{left: maxEntries}
	if err := w.inspect(r.dir); err != nil {
		return err
	}
	if !same(r.dir, r.common) {
		if err := w.inspect(r.common); err != nil {
			return err
		}
	}
	for _, name := range []string{filepath.Join(r.dir, "config"), filepath.Join(r.dir, "config.worktree"), filepath.Join(r.common, "config")} {
		if err := r.includes(ctx, name, maxIncludes); err != nil {
			return err
		}
	}
	return nil
}

// Elsewhere returns git's directory if it is not ".git" of the working tree, but in the
// repository that a worktree or submodule belongs to; otherwise "".
func (r *Repository) Elsewhere() string {
	if !r.file {
		return ""
	}
	return r.common
}

// find finds the repository that contains a directory without links, as git does, but opens
// only the files that name its location.
func find(from string) (place, error) {
	below := ""
	for top := from; ; below, top = top, filepath.Dir(top) {
		entry := filepath.Join(top, ".git")
		if info, err := os.Lstat(entry); err == nil {
			if below != "" && same(below, entry) {
				return place{}, fmt.Errorf("%w: %s lies in git's own directory", ErrNoRepository, from)
			}
			return placeOf(entry, info.Mode())
		}
		if top == filepath.Dir(top) {
			return place{}, fmt.Errorf("%w: %s", ErrNoRepository, from)
		}
	}
}

func placeOf(entry string, mode fs.FileMode) (place, error) {
	p := place{entry: entry, file: mode.IsRegular(), dir: entry}
	if err := plain(entry, mode); err != nil {
		return p, err
	}
	if p.file {
		text, err := line(entry)
		if err != nil {
			return p, err
		}
		named, ok := strings.CutPrefix(text, "gitdir: ")
		if p.dir, err = filepath.EvalSymlinks(in(filepath.Dir(entry), named)); !ok || err != nil {
			return p, fmt.Errorf("%w: the file %s names no directory", ErrNoRepository, entry)
		}
	}
	shared, err := line(filepath.Join(p.dir, "commondir"))
	if errors.Is(err, fs.ErrNotExist) {
		p.common = p.dir
		return p, nil
	}
	if err != nil {
		return p, err
	}
	if p.common, err = filepath.EvalSymlinks(in(p.dir, shared)); err != nil {
		return p, fmt.Errorf("%w: %s names no directory", ErrNoRepository, filepath.Join(p.dir, "commondir"))
	}
	return p, nil
}

// pointsBack returns ErrLeads unless the directory that a ".git" file names is of a
// worktree or submodule that names this file.
func (r *Repository) pointsBack(ctx context.Context) error {
	var named, back string
	var err error
	if same(r.dir, r.common) { // a submodule
		named = filepath.Dir(r.entry)
		back, err = r.worktree(ctx)
	} else if up := filepath.Dir(r.dir); filepath.Base(up) == "worktrees" && same(filepath.Dir(up), r.common) {
		named = r.entry
		back, err = line(filepath.Join(r.dir, "gitdir"))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if back == "" || !same(named, in(r.dir, back)) {
		return fmt.Errorf("%w: the file %s names %s, which does not name it", ErrLeads, r.entry, r.dir)
	}
	return nil
}

// worktree returns the working tree that git's directory configures, or "" for none.
func (r *Repository) worktree(ctx context.Context) (string, error) {
	name := filepath.Join(r.dir, "config")
	if _, err := regular(name); err != nil {
		return "", err
	}
	out, err := r.settings(ctx, name, "--get", "core.worktree")
	return strings.TrimSuffix(out, "\x00"), err
}

// in is a path as a file of a directory names it.
func in(dir, name string) string {
	if name = filepath.FromSlash(name); filepath.IsAbs(name) || name == "" {
		return name
	}
	return filepath.Join(dir, name)
}

// same reports whether two paths lead to one file.
func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
