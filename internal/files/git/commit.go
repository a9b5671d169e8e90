package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/filename"
	"github.com/rathcluster/rath/internal/files/manifest"
)

// Tree returns the tree of a commit, "" for an empty one, with changes of the directory
// from which the repository was opened. New contents are written unchanged, without
// filters; git does not store directories. A path that git rejects is an error.
func (r *Repository) Tree(ctx context.Context, b blob.Store, commit string, changes []manifest.Change) (string, error) {
	index := filepath.Join(r.scratch, "index")
	defer os.Remove(index)
	env := []string{"GIT_INDEX_FILE=" + index}
	read := []string{"read-tree", "--empty"}
	if commit != "" {
		read = []string{"read-tree", commit}
	}
	if _, err := r.git(ctx, nil, env, read...); err != nil {
		return "", err
	}
	if err := r.outsideModules(ctx, env, changes); err != nil {
		return "", err
	}
	var after []manifest.Entry
	for _, c := range changes {
		after = append(after, c.After)
	}
	ids, err := r.objects(ctx, b, after)
	if err != nil {
		return "", err
	}
	// Removed paths make room for added ones.
	var gone, come strings.Builder
	for i, c := range changes {
		if commit != "" && (c.Before.Kind == manifest.File || c.Before.Kind == manifest.Symlink) {
			fmt.Fprintf(&gone, "0 %s\t%s%s\x00", strings.Repeat("0", len(commit)), r.prefix, filename.Raw(c.Path))
		}
		if ids[i] != "" {
			fmt.Fprintf(&come, "%s %s\t%s%s\x00", mode(c.After), ids[i], r.prefix, filename.Raw(c.Path))
		}
	}
	if _, err := r.git(ctx, strings.NewReader(gone.String()+come.String()), env, "update-index", "-z", "--add", "--remove", "--replace", "--index-info"); err != nil {
		return "", err
	}
	if err := r.holds(ctx, env, changes, ids); err != nil {
		return "", err
	}
	out, err := r.git(ctx, nil, env, "write-tree")
	return strings.TrimSpace(out), err
}

// outsideModules returns an error for a change in a submodule, whose files are commits of
// another repository.
func (r *Repository) outsideModules(ctx context.Context, env []string, changes []manifest.Change) error {
	out, err := r.git(ctx, nil, env, "ls-files", "-z", "--cached", "--stage")
	if err != nil {
		return err
	}
	modules := map[string]bool{}
	for line := range strings.SplitSeq(out, "\x00") {
		if about, name, ok := strings.Cut(line, "\t"); ok && strings.HasPrefix(about, "160000 ") {
			modules[name] = true
		}
	}
	for _, c := range changes {
		for p := r.prefix + filename.Raw(c.Path); len(modules) > 0 && p != "." && p != "/"; p = path.Dir(p) {
			if modules[p] {
				return fmt.Errorf("%w: %q is in the submodule %s, which is a separate repository", ErrRefused, r.prefix+c.Path, p)
			}
		}
	}
	return nil
}

// holds returns an error if git skipped a path: git only warns about a path that it
// rejects.
func (r *Repository) holds(ctx context.Context, env []string, changes []manifest.Change, ids []string) error {
	out, err := r.git(ctx, nil, env, "ls-files", "-z", "--cached", "--stage")
	if err != nil {
		return err
	}
	held := map[string]bool{}
	for line := range strings.SplitSeq(out, "\x00") { // MODE SP ID SP STAGE TAB PATH
		held[line] = true
	}
	for i, c := range changes {
		if ids[i] != "" && !held[fmt.Sprintf("%s %s 0\t%s%s", mode(c.After), ids[i], r.prefix, filename.Raw(c.Path))] {
			return fmt.Errorf("%w: %q", ErrRefused, r.prefix+c.Path)
		}
	}
	return nil
}

// Differing returns the changes that turn the tree of a commit into the given entries of
// the directory: the uncommitted changes. An entry without a kind stands for an absent
// path.
func (r *Repository) Differing(ctx context.Context, b blob.Store, commit string, entries []manifest.Entry) ([]manifest.Change, error) {
	listed := map[string]string{}
	if commit != "" {
		out, err := r.git(ctx, nil, nil, "ls-tree", "-r", "-z", "--full-tree", commit)
		if err != nil {
			return nil, err
		}
		for line := range strings.SplitSeq(out, "\x00") { // MODE SP TYPE SP ID TAB PATH
			about, path, ok := strings.Cut(line, "\t")
			if words := strings.Fields(about); ok && len(words) == 3 {
				listed[path] = words[0] + " " + words[2]
			}
		}
	}
	ids, err := r.objects(ctx, b, entries)
	if err != nil {
		return nil, err
	}
	var out []manifest.Change
	for i, e := range entries {
		has, want := listed[r.prefix+filename.Raw(e.Path)], ""
		if ids[i] != "" {
			want = mode(e) + " " + ids[i]
		}
		if has == want {
			continue
		}
		c := manifest.Change{Path: e.Path, After: e, Kind: manifest.Added}
		if has != "" {
			c.Before = manifest.Entry{Path: e.Path, Kind: manifest.File}
		}
		out = append(out, c)
	}
	return out, nil
}

// mode is how git calls the kind of a file or link.
func mode(e manifest.Entry) string {
	switch {
	case e.Kind == manifest.Symlink:
		return "120000"
	case e.Exec:
		return "100755"
	}
	return "100644"
}

// objects stores files and links as git's blobs and returns their ids; "" for any other
// entry.
func (r *Repository) objects(ctx context.Context, b blob.Store, entries []manifest.Entry) ([]string, error) {
	dir, err := os.MkdirTemp(r.scratch, "objects-")
	if err != nil {
		return nil, fmt.Errorf("git: %w", err)
	}
	defer os.RemoveAll(dir)
	var paths bytes.Buffer
	var keys []string
	asked := map[string]bool{}
	for _, e := range entries {
		key := keyOf(e)
		if key == "" || r.hashed[key] != "" || asked[key] {
			continue
		}
		asked[key] = true
		name := filepath.Join(dir, strconv.Itoa(len(keys)))
		if err := write(ctx, b, name, e); err != nil {
			return nil, err
		}
		keys = append(keys, key)
		paths.WriteString(name + "\n")
	}
	if len(keys) > 0 {
		out, err := r.git(ctx, &paths, nil, "hash-object", "-w", "--no-filters", "--stdin-paths")
		if err != nil {
			return nil, err
		}
		ids := strings.Fields(out)
		if len(ids) != len(keys) {
			return nil, fmt.Errorf("git: %d objects were stored, not %d", len(ids), len(keys))
		}
		for i, key := range keys {
			r.hashed[key] = ids[i]
		}
	}
	out := make([]string, len(entries))
	for i, e := range entries {
		if key := keyOf(e); key != "" {
			out[i] = r.hashed[key]
		}
	}
	return out, nil
}

func keyOf(e manifest.Entry) string {
	switch e.Kind {
	case manifest.File:
		return e.Digest.String()
	case manifest.Symlink:
		return "link " + e.Target
	}
	return ""
}

// write writes git's representation of an entry to a new file.
func write(ctx context.Context, b blob.Store, name string, e manifest.Entry) (err error) {
	from := io.NopCloser(strings.NewReader(e.Target))
	size := int64(len(e.Target))
	if e.Kind == manifest.File {
		if from, err = b.Get(ctx, e.Digest); err != nil {
			return fmt.Errorf("git: read %q: %w", e.Path, err)
		}
		size = e.Size
	}
	defer from.Close()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("git: %w", err)
	}
	n, err := io.Copy(f, io.LimitReader(from, size+1))
	if err == nil && n != size {
		err = fmt.Errorf("%w: the manifest says %d bytes", manifest.ErrMalformed, size)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("git: read %q: %w", e.Path, err)
	}
	return nil
}

// Commit stores a commit of a tree and returns its id. Equal arguments make equal commits.
func (r *Repository) Commit(ctx context.Context, tree string, parents []string, message string, when time.Time) (string, error) {
	args := []string{"commit-tree", "--no-gpg-sign", tree}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	at := strconv.FormatInt(when.Unix(), 10) + " +0000"
	env := []string{
		"GIT_AUTHOR_NAME=rath", "GIT_AUTHOR_EMAIL=rath@localhost", "GIT_AUTHOR_DATE=" + at,
		"GIT_COMMITTER_NAME=rath", "GIT_COMMITTER_EMAIL=rath@localhost", "GIT_COMMITTER_DATE=" + at,
	}
	out, err := r.git(ctx, strings.NewReader(message), env, args...)
	return strings.TrimSpace(out), err
}
