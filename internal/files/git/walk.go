package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// maxEntries is the maximum number of files examined in a repository: git packs loose
	// objects long before.
	maxEntries = 1_000_000
	// maxText is the maximum size of a file that git loads into memory, in bytes: a list of
	// references may have some tens of millions.
	maxText = 256 << 20
	// maxLine bounds a file that is a path.
	maxLine = 16 << 10
	// maxIncludes is the maximum depth of nested includes of a configuration, as in git.
	maxIncludes = 10
)

// walk examines git's files before git opens them.
type walk struct{ left int }

// inspect returns ErrLeads if a path that git would read or write in one of its directories
// is neither a file nor a directory there, or exceeds a limit.
func (w *walk) inspect(dir string) error {
	// git runs in this directory and would look for another repository there first.
	for _, name := range []string{".git", "HEAD", "commondir", "gitdir", "config", "config.worktree", "packed-refs", "shallow", "index", "info", "info/grafts", "info/attributes", "info/exclude"} {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if real, err := filepath.EvalSymlinks(p); err == nil && name == "info/exclude" { // patterns, which reach no model
			p = real
		}
		info, err := os.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = plain(p, info.Mode())
		}
		if err == nil && name == ".git" {
			err = fmt.Errorf("%w: %s is in git's own directory", ErrLeads, p)
		}
		if err == nil && info.Mode().IsRegular() {
			err = fits(p, info.Size())
		}
		if err != nil {
			return err
		}
	}
	for _, name := range []string{"refs", "reftable", "logs", "objects"} {
		if err := w.below(filepath.Join(dir, name), name == "refs" || name == "reftable"); err != nil {
			return err
		}
	}
	p := filepath.Join(dir, "objects", "info", "alternates")
	if text, err := line(p); err == nil && text != "" {
		return fmt.Errorf("%w: %s names the objects of another repository, which \"git repack -a -d\" copies before you remove that file", ErrLeads, p)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// below examines a whole directory, and the sizes of files if git reads them as wholes. It
// opens no other files and uses only the directory's listing for them.
func (w *walk) below(dir string, sizes bool) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = plain(dir, info.Mode())
	}
	if err != nil || !info.IsDir() {
		return err
	}
	for dirs := []string{dir}; len(dirs) > 0; {
		last := len(dirs) - 1
		dir, dirs = dirs[last], dirs[:last]
		if err := w.each(dir, func(d fs.DirEntry) error {
			p := filepath.Join(dir, d.Name())
			if err := plain(p, d.Type()); err != nil {
				return err
			}
			if d.IsDir() {
				dirs = append(dirs, p)
			} else if sizes {
				if info, err := d.Info(); err == nil { // else it no longer exists
					return fits(p, info.Size())
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// each calls do for each entry of a directory.
func (w *walk) each(dir string, do func(fs.DirEntry) error) error {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("git: %w", err)
	}
	defer f.Close()
	for {
		entries, err := f.ReadDir(1024)
		for _, d := range entries {
			if w.left--; w.left < 0 {
				return fmt.Errorf("git: the repository has more than %d files: pack it with \"git gc\"", maxEntries)
			}
			if err := do(d); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("git: %w", err)
		}
	}
}

// plain takes files and directories. A junction of Windows is irregular.
func plain(p string, mode fs.FileMode) error {
	switch {
	case mode&(fs.ModeSymlink|fs.ModeIrregular) != 0:
		return fmt.Errorf("%w: %s is a link", ErrLeads, p)
	case !mode.IsRegular() && !mode.IsDir():
		return fmt.Errorf("%w: %s is neither a file nor a directory", ErrLeads, p)
	}
	return nil
}

func fits(p string, size int64) error {
	if size > maxText {
		return fmt.Errorf("%w: %s has %d MiB, and no file of git's that is like it has more than %d", ErrLeads, p, size>>20, maxText>>20)
	}
	return nil
}

// regular returns the size of a file that git may read as a whole.
func regular(p string) (int64, error) {
	info, err := os.Lstat(p)
	if err != nil {
		return 0, fmt.Errorf("git: %w", err)
	}
	if err := plain(p, info.Mode()); err != nil {
		return 0, err
	}
	if info.IsDir() {
		return 0, fmt.Errorf("%w: %s is a directory", ErrLeads, p)
	}
	return info.Size(), fits(p, info.Size())
}

// line is the text of a file that is a path, and ends as a line does.
func line(p string) (string, error) {
	size, err := regular(p)
	if err != nil {
		return "", err
	}
	if size > maxLine {
		return "", fmt.Errorf("%w: %s has %d bytes, which are more than a path", ErrLeads, p, size)
	}
	data, err := os.ReadFile(p)
	if err != nil {
		return "", fmt.Errorf("git: %w", err)
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}

// includes returns ErrLeads if a configuration includes a path that is not a regular file.
// It may include other files, even from outside: their settings run no program and reach no
// model.
func (r *Repository) includes(ctx context.Context, name string, deep int) error {
	if _, err := regular(name); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("git: %w", err)
	}
	if !bytes.Contains(bytes.ToLower(data), []byte("[include")) {
		return nil
	}
	out, err := r.settings(ctx, name, "--type=path", "--get-regexp", `^include(if\..*)?\.path$`)
	if err != nil {
		return err
	}
	for setting := range strings.SplitSeq(out, "\x00") {
		_, named, _ := strings.Cut(setting, "\n")
		if named == "" {
			continue
		}
		real, err := filepath.EvalSymlinks(in(filepath.Dir(name), named))
		if err != nil {
			continue // git skips an absent file
		}
		if deep == 0 {
			return fmt.Errorf("%w: %s takes in files that take in others, more than %d deep", ErrLeads, name, maxIncludes)
		}
		if err := r.includes(ctx, real, deep-1); err != nil {
			return err
		}
	}
	return nil
}

// settings returns git's view of a configuration, independent of any repository.
func (r *Repository) settings(ctx context.Context, name string, args ...string) (string, error) {
	env := []string{"GIT_CEILING_DIRECTORIES=" + filepath.Dir(r.scratch)}
	out, err := r.run(ctx, r.scratch, nil, env, append([]string{"config", "--file", name, "--no-includes", "-z"}, args...)...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 { // it does not say
		return "", nil
	}
	return out, err
}
