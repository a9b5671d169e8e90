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

// ErrLeads is returned for a repository that would have what is written go elsewhere.
var ErrLeads = errors.New("git: the repository leads elsewhere")

// Writable returns ErrLeads unless what is written stays in the repository of the
// directory: no link leads out of git's directory, and a ".git" file names one that names
// this file, too, as those of worktrees and submodules do.
func (r *Repository) Writable(ctx context.Context) error {
	common, err := r.common(ctx)
	if err != nil {
		return err
	}
	entry, info, err := r.entry()
	switch {
	case err != nil:
		return err
	case info.Mode().IsRegular():
		if err := r.pointsBack(ctx, entry, common); err != nil {
			return err
		}
	case !info.IsDir():
		return fmt.Errorf("%w: %s is a link", ErrLeads, entry)
	case !same(r.dir, common):
		return fmt.Errorf("%w: %s names %s", ErrLeads, filepath.Join(entry, "commondir"), common)
	}
	if err := withoutLinks(r.dir); err != nil || same(r.dir, common) {
		return err
	}
	return withoutLinks(common)
}

// Elsewhere returns git's directory where that is not ".git" of the working tree, but the
// one of the repository that a worktree or submodule belongs to; else "".
func (r *Repository) Elsewhere(ctx context.Context) (string, error) {
	_, info, err := r.entry()
	if err != nil || info.IsDir() {
		return "", err
	}
	common, err := r.common(ctx)
	return filepath.Clean(common), err
}

// common is the directory of the references and objects, which worktrees share.
func (r *Repository) common(ctx context.Context) (string, error) {
	out, err := r.git(ctx, nil, nil, "rev-parse", "--git-common-dir")
	p := strings.TrimSuffix(out, "\n")
	if err == nil && !filepath.IsAbs(p) {
		p = filepath.Join(r.scratch, p)
	}
	return p, err
}

// entry finds the ".git" by which git found the repository.
func (r *Repository) entry() (string, fs.FileInfo, error) {
	for dir := r.from; ; dir = filepath.Dir(dir) {
		p := filepath.Join(dir, ".git")
		if info, err := os.Lstat(p); err == nil && (info.Mode().IsRegular() || same(p, r.dir)) {
			return p, info, nil
		} else if err == nil && !info.IsDir() { // a link to a file that names a directory
			return p, info, nil
		}
		if dir == filepath.Dir(dir) {
			return "", nil, fmt.Errorf("%w: no .git above %s is %s", ErrLeads, r.from, r.dir)
		}
	}
}

// pointsBack returns ErrLeads unless the directory that a ".git" file names is of a
// worktree or submodule that names this file.
func (r *Repository) pointsBack(ctx context.Context, entry, common string) error {
	own, err := filepath.EvalSymlinks(r.dir)
	if err != nil {
		return fmt.Errorf("git: %w", err)
	}
	var named, back string
	if same(own, common) { // a submodule
		named, back = filepath.Dir(entry), r.worktreeOf(ctx, own)
	} else if up := filepath.Dir(own); filepath.Base(up) == "worktrees" && same(filepath.Dir(up), common) {
		data, err := os.ReadFile(filepath.Join(own, "gitdir"))
		if err != nil {
			return fmt.Errorf("git: %w", err)
		}
		named, back = entry, strings.TrimSuffix(string(data), "\n")
	}
	if back != "" && !filepath.IsAbs(back) {
		back = filepath.Join(own, back)
	}
	if back == "" || !same(named, back) {
		return fmt.Errorf("%w: the file %s names %s, which does not name it", ErrLeads, entry, r.dir)
	}
	return nil
}

// worktreeOf is the working tree that a directory of git's configures itself, "" for none.
func (r *Repository) worktreeOf(ctx context.Context, own string) string {
	out, err := r.git(ctx, nil, nil, "config", "--file", filepath.Join(own, "config"), "--no-includes", "--get", "core.worktree")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(out, "\n")
}

// withoutLinks returns ErrLeads for a link at a path of git's directory that is written, or
// below which is, or that says what is there.
func withoutLinks(dir string) error {
	for _, name := range []string{
		"HEAD", "config", "config.worktree", "index", "packed-refs", "objects", "refs", "refs/heads", "refs/heads/rath", "reftable",
		"logs", "logs/HEAD", "logs/refs", "logs/refs/heads", "logs/refs/heads/rath",
	} {
		p := filepath.Join(dir, filepath.FromSlash(name))
		info, err := os.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("git: %w", err)
		}
		if err := noLink(p, info.Mode()); err != nil {
			return err
		}
		switch name {
		case "objects", "refs/heads/rath", "reftable", "logs/refs/heads/rath":
			below, err := os.ReadDir(p)
			if err != nil {
				return fmt.Errorf("git: %w", err)
			}
			for _, d := range below {
				if err := noLink(filepath.Join(p, d.Name()), d.Type()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// noLink takes files and directories. A junction of Windows is irregular.
func noLink(p string, mode fs.FileMode) error {
	if mode&(fs.ModeSymlink|fs.ModeIrregular) != 0 {
		return fmt.Errorf("%w: %s is a link", ErrLeads, p)
	}
	return nil
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
