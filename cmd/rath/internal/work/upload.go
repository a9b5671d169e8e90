package work

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/git"
	"github.com/rathcluster/rath/internal/manifest"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/workspace"
)

// gitUsage tells what --git does.
const gitUsage = "give the copy of -C a git repository with the last commits of the one there; what commands do to it stays behind"

// upload stores a copy of a directory and returns its head, with a git repository if that
// is asked for.
func upload(ctx context.Context, a *app.App, s *app.System, dir string, withGit bool) (blob.Digest, error) {
	switch fi, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return blob.Digest{}, app.Fail(app.ExitNotFound, "-C %s: there is no such directory", dir)
	case err != nil:
		return blob.Digest{}, err
	case !fi.IsDir():
		return blob.Digest{}, app.Fail(app.ExitUsage, "-C %s: not a directory", dir)
	}
	o := importOptions(a, s, dir)
	in, err := workspace.Import(ctx, s.Blobs(s.Tenant()), dir, &o)
	if err != nil {
		return blob.Digest{}, err
	}
	leftOut(a, dir, &in)
	if !withGit {
		return in.Head, nil
	}
	return addHistory(ctx, s.Blobs(s.Tenant()), dir, in.Head)
}

// What --git takes of a repository.
const (
	historyCommits = 50
	historyBytes   = 64 << 20
)

// addHistory adds a git repository to the files of a head.
func addHistory(ctx context.Context, b blob.Store, dir string, head blob.Digest) (_ blob.Digest, err error) {
	repo, err := git.Open(ctx, dir)
	switch {
	case errors.Is(err, git.ErrNoGit):
		return head, app.Fail(app.ExitUnavailable, "--git needs the git program, which is not installed or not in PATH")
	case errors.Is(err, git.ErrNoRepository):
		return head, app.Fail(app.ExitConflict, "--git: %s lies in no git repository, or in that of another user", dir)
	case err != nil:
		return head, err
	}
	defer func() { err = errors.Join(err, repo.Close()) }()
	commit, err := repo.Head(ctx)
	switch {
	case err != nil:
		return head, err
	case !repo.Top():
		return head, app.Fail(app.ExitUsage, "--git: %s is not the top of its git repository: name that with -C", dir)
	case commit == "":
		return head, app.Fail(app.ExitConflict, "--git: the repository of %s has no commit yet", dir)
	}
	own, err := repo.History(ctx, commit, historyCommits, historyBytes)
	if errors.Is(err, git.ErrTooLarge) {
		return head, app.Fail(app.ExitConflict, "--git: the last %d commits of %s have more than %d MiB of objects: leave --git out", historyCommits, dir, historyBytes>>20)
	}
	if err != nil {
		return head, err
	}
	added, err := workspace.Snapshot(ctx, b, own, blob.Digest{}, workspace.Limits{})
	if err != nil {
		return head, err
	}
	files, err := manifest.Load(ctx, b, head)
	if err != nil {
		return head, err
	}
	history, err := manifest.Load(ctx, b, added)
	if err != nil {
		return head, err
	}
	all, err := manifest.NewTree(slices.AppendSeq(slices.Collect(files.Entries()), history.Entries()), files, history)
	if err != nil {
		return head, err
	}
	return all.Excluding(files.Excluded()).Store(ctx, b)
}

// importOptions leave out what is Rath's own below a directory, and name where it
// is kept what its files were at the upload before.
func importOptions(a *app.App, s *app.System, dir string) workspace.ImportOptions {
	var o workspace.ImportOptions
	own := []string{a.Config.Store.Value}
	where := s.Where
	if store, err := filepath.Abs(a.Config.Store.Value); err == nil && !s.Remote {
		where = store
	}
	if folder := a.Cache("rath", "index"); folder != "" {
		o.Cache, o.Store, own = folder, where+" "+string(s.Tenant()), append(own, folder)
	}
	for _, name := range own {
		if p, inside := relativeTo(dir, name); inside {
			o.Exclude = append(o.Exclude, "/"+p+"/")
		}
	}
	return o
}

// leftOut says what ignore files kept out of a copy. That git's own directory and the
// store are no part of it is no news.
func leftOut(a *app.App, dir string, in *workspace.Imported) {
	var names []string
	for _, l := range in.LeftOut {
		if !l.Never {
			names = append(names, l.Path)
		}
	}
	if len(names) > 0 {
		a.Remark("left out of the copy of %s, by ignore files: %s", dir, some(names, in.More))
	}
}

// some lists the first of many names.
func some(names []string, more int) string {
	const shown = 5
	if len(names) > shown {
		more += len(names) - shown
		names = names[:shown]
	}
	text := term.Line(strings.Join(names, ", "), 400)
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// relativeTo returns a path relative to a directory that it lies in, slash
// separated; ok is false if it lies elsewhere.
func relativeTo(dir, name string) (rel string, ok bool) {
	d, errD := filepath.Abs(dir)
	n, errN := filepath.Abs(name)
	if errD != nil || errN != nil {
		return "", false
	}
	if real, err := filepath.EvalSymlinks(d); err == nil {
		d = real
	}
	if real, err := filepath.EvalSymlinks(n); err == nil {
		n = real
	}
	rel, err := filepath.Rel(d, n)
	if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return "", false
	}
	return filepath.ToSlash(rel), true
}
