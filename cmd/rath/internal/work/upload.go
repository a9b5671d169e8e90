package work

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/files/filename"
	"github.com/rathcluster/rath/internal/files/git"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/workspace"
)

// gitUsage describes --git.
const gitUsage = "give the copy of -C a git repository with the last commits of the original; changes to it stay in the copy"

// history selects whether files are uploaded with a git repository.
type history int

const (
	historyIfAny history = iota // if the directory is the top of a repository
	historyAsked                // an error without one
	historyNone
)

// historyOf returns the history that --git selects.
func historyOf(cmd *cobra.Command, dir string, git bool) (history, error) {
	switch asked := cmd.Flags().Changed("git"); {
	case asked && git && dir == "":
		return historyNone, app.Usage(cmd, errors.New("--git needs -C DIR"))
	case asked && git:
		return historyAsked, nil
	case asked:
		return historyNone, nil
	}
	return historyIfAny, nil
}

// upload stores a copy of a directory and returns its head. h selects whether the copy
// has a git repository.
func upload(ctx context.Context, a *app.App, s *app.System, dir string, h history) (blob.Digest, error) {
	switch fi, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return blob.Digest{}, app.Fail(app.ExitNotFound, "-C %s: there is no such directory", dir)
	case err != nil:
		return blob.Digest{}, err
	case !fi.IsDir():
		return blob.Digest{}, app.Fail(app.ExitUsage, "-C %s: not a directory", dir)
	}
	o := importOptions(a, s, dir)
	o.Tracked = tracked(ctx, dir)
	in, err := workspace.Import(ctx, s.Blobs(s.Tenant()), dir, &o)
	if err != nil {
		return blob.Digest{}, err
	}
	leftOut(a, dir, &in)
	if err := secretsIn(ctx, a, s.Blobs(s.Tenant()), dir, in.Head); err != nil {
		return in.Head, err
	}
	if h == historyNone {
		return in.Head, nil
	}
	head, err := addHistory(ctx, s.Blobs(s.Tenant()), dir, in.Head, &o, h == historyAsked)
	switch {
	case err == nil:
		return head, nil
	case h == historyAsked || ctx.Err() != nil:
		return head, err
	}
	if why, ok := errors.AsType[*noHistory](err); !ok || why.told {
		a.Remark("the copy of %s has no git repository: %s", dir, strings.TrimPrefix(strings.TrimPrefix(err.Error(), "--git: "), "git: "))
	}
	return in.Head, nil
}

// tracked returns the files of a directory that git tracks; none without git, or
// without a trusted repository.
func tracked(ctx context.Context, dir string) []string {
	repo, err := git.Open(ctx, dir)
	if err != nil {
		return nil
	}
	all, err := repo.Tracked(ctx)
	if errors.Join(err, repo.Close()) != nil {
		return nil
	}
	for i, p := range all {
		all[i] = filename.Escape(p)
	}
	return all
}

// Limits of the history that --git copies.
const (
	historyCommits = 50
	historyBytes   = 64 << 20
)

// noHistory is the reason for an upload without a git repository.
type noHistory struct {
	error
	told bool // also where --git did not ask for one
}

func (n *noHistory) Unwrap() error { return n.error }

// addHistory adds a git repository to the uploaded files of a directory.
func addHistory(ctx context.Context, b blob.Store, dir string, head blob.Digest, o *workspace.ImportOptions, asked bool) (_ blob.Digest, err error) {
	none := func(told bool, code int, format string, args ...any) (blob.Digest, error) {
		return head, &noHistory{app.Fail(code, format, args...), told}
	}
	repo, err := git.Open(ctx, dir)
	switch {
	case errors.Is(err, git.ErrNoGit):
		return none(false, app.ExitUnavailable, "--git needs the git program, which is not installed or not in PATH")
	case errors.Is(err, git.ErrNoRepository):
		return none(false, app.ExitConflict, "--git: %s is in no git repository, or in another user's", dir)
	case errors.Is(err, git.ErrLeads):
		_, above := os.Lstat(filepath.Join(dir, ".git")) // below the top of one none is taken anyway
		return none(above == nil, app.ExitConflict, "--git: %s; use --git=false", cause(err))
	case err != nil:
		return head, err
	}
	defer func() { err = errors.Join(err, repo.Close()) }()
	commit, err := repo.Head(ctx)
	switch {
	case err != nil:
		return head, err
	case !repo.Top():
		return none(false, app.ExitUsage, "--git: %s is not the top of its git repository: name that with -C", dir)
	case commit == "":
		return none(false, app.ExitConflict, "--git: the repository of %s has no commit yet", dir)
	}
	files, err := manifest.Load(ctx, b, head)
	if err != nil {
		return head, err
	}
	rules := files.Excluded()
	key := []string{"git", commit, repo.Current(ctx), strconv.FormatBool(asked)}
	if rules != nil {
		key = append(key, rules.Lines()...)
	}
	added, err := workspace.ImportMade(ctx, b, dir, o, strings.Join(key, "\x00"), func() (string, error) {
		if !asked && rules != nil {
			paths, err := repo.Paths(ctx, commit, historyCommits)
			if err != nil {
				return "", err
			}
			for _, p := range slices.Sorted(maps.Keys(paths)) {
				if line, out := rules.Excludes(filename.Escape(p), false); out {
					_, err := none(true, app.ExitConflict, "its last %d commits contain %s, which the line %q of an ignore file excludes; --git copies it nevertheless", historyCommits, p, line)
					return "", err
				}
			}
		}
		own, err := repo.History(ctx, commit, historyCommits, historyBytes)
		if errors.Is(err, git.ErrTooLarge) {
			_, err = none(true, app.ExitConflict, "--git: the last %d commits of %s have more than %d MiB of objects: give --git=false", historyCommits, dir, historyBytes>>20)
		}
		return own, err
	})
	if err != nil {
		return head, err
	}
	own, err := manifest.Load(ctx, b, added)
	if err != nil {
		return head, err
	}
	all, err := manifest.NewTree(slices.AppendSeq(slices.Collect(files.Entries()), own.Entries()), files, own)
	if err != nil {
		return head, err
	}
	return all.Excluding(files.Excluded()).Store(ctx, b)
}

// importOptions exclude Rath's own files below a directory, and name the place of the
// index of its files as of the last upload.
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

// leftOut remarks which paths are missing in a copy. Git's own directory and the store
// are never part of it, and are not mentioned.
func leftOut(a *app.App, dir string, in *workspace.Imported) {
	var names, others []string
	for _, l := range in.LeftOut {
		switch name := path.Base(l.Path); {
		case !l.Never:
			names = append(names, l.Path)
		case !manifest.IsGit(name) && manifest.Fold(name) != ".rath":
			others = append(others, l.Path)
		}
	}
	if len(others) > 0 {
		a.Remark("excluded from the copy of %s, as other version control: %s", dir, some(others, 0))
	}
	if len(names) > 0 {
		a.Remark("excluded from the copy of %s by ignore files: %s", dir, some(names, in.More))
	}
}

// secretsIn remarks which files of a copy hold secrets, by their names.
func secretsIn(ctx context.Context, a *app.App, b blob.Store, dir string, head blob.Digest) error {
	files, err := manifest.Load(ctx, b, head)
	if err != nil {
		return err
	}
	var names []string
	for e := range files.Entries() {
		if e.Kind == manifest.File && holdsSecrets(e.Path) {
			names = append(names, e.Path)
		}
	}
	if len(names) > 0 {
		a.Remark("the copy of %s has files that may hold secrets: %s; a line of .rathignore leaves them out", dir, some(names, 0))
	}
	return nil
}

// holdsSecrets reports whether a file has a name that programs read credentials from.
func holdsSecrets(name string) bool {
	base := strings.ToLower(path.Base(name))
	switch ext := path.Ext(base); {
	case base == ".env", strings.HasPrefix(base, ".env."):
		return !slices.Contains([]string{".example", ".sample", ".template", ".dist", ".defaults"}, ext)
	case ext == ".env" || ext == ".pem" || ext == ".key" || ext == ".p12" || ext == ".pfx" || ext == ".jks" || ext == ".kdbx":
		return true
	}
	return slices.Contains([]string{
		".envrc", ".netrc", "_netrc", ".pgpass", ".git-credentials", ".npmrc", ".pypirc", ".htpasswd", ".vault-token",
		"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials.json", "secrets.json", "secrets.yaml", "secrets.yml",
	}, base) || strings.HasSuffix(strings.ToLower(name), ".aws/credentials")
}

// some joins the first of many names.
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

// relativeTo returns a path relative to a directory that contains it, separated by
// slashes; ok is false if it lies elsewhere.
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
