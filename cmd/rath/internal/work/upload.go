package work

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/workspace"
)

// upload stores a copy of a directory, for the command what, and returns its head.
func upload(ctx context.Context, a *app.App, s *app.System, what, dir string) (blob.Digest, error) {
	if err := s.Direct(what); err != nil {
		return blob.Digest{}, err
	}
	switch fi, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return blob.Digest{}, app.Fail(app.ExitNotFound, "-C %s: there is no such directory", dir)
	case err != nil:
		return blob.Digest{}, err
	case !fi.IsDir():
		return blob.Digest{}, app.Fail(app.ExitUsage, "-C %s: not a directory", dir)
	}
	store, inside := relativeTo(dir, a.Config.Store.Value)
	limits := workspace.Limits{Exclude: func(p string) bool {
		return inside && p == store || path.Base(p) == ".git"
	}}
	return workspace.Snapshot(ctx, s.Blobs(s.Tenant()), dir, blob.Digest{}, limits)
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
