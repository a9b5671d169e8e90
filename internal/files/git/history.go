package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrTooLarge is returned for a history of more bytes than were asked for.
var ErrTooLarge = errors.New("git: the history is too large")

// History makes a separate repository of the last commits up to one and returns its
// directory, which Close removes. It has a ".git" with the files and index of the commit,
// and one branch, with at most most bytes of objects. It has none of the repository's
// configuration, hooks, other branches, tags, remotes or stashes.
func (r *Repository) History(ctx context.Context, commit string, commits int, most int64) (dir string, err error) {
	out, err := r.git(ctx, nil, nil, "rev-list", "--max-count="+strconv.Itoa(commits), "--parents", commit)
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	in := make(map[string]bool, len(lines))
	for _, l := range lines {
		in[strings.Fields(l)[0]] = true
	}
	var all, shallow strings.Builder
	for _, l := range lines {
		ids := strings.Fields(l)
		all.WriteString(ids[0] + "\n")
		for _, parent := range ids[1:] {
			if !in[parent] { // the history ends here
				shallow.WriteString(ids[0] + "\n")
				break
			}
		}
	}
	objects, err := r.git(ctx, strings.NewReader(all.String()), nil, "rev-list", "--objects", "--no-walk=unsorted", "--no-object-names", "--stdin")
	if err != nil {
		return "", err
	}
	sizes, err := r.git(ctx, strings.NewReader(objects), nil, "cat-file", "--batch-check=%(objectsize:disk)")
	if err != nil {
		return "", err
	}
	for size := range strings.FieldsSeq(sizes) {
		n, err := strconv.ParseInt(size, 10, 64)
		if err != nil {
			return "", fmt.Errorf("git: an object of the history is missing: %w", err)
		}
		if most -= n; most < 0 {
			return "", ErrTooLarge
		}
	}
	dir = filepath.Join(r.scratch, "history")
	own := filepath.Join(dir, ".git")
	for _, p := range []string{"objects/pack", "objects/info", "refs/heads", "refs/tags"} {
		if err := os.MkdirAll(filepath.Join(own, filepath.FromSlash(p)), 0o755); err != nil {
			return "", fmt.Errorf("git: %w", err)
		}
	}
	// git first writes a pack among the objects, and cannot move it to another file system.
	env := []string{"GIT_OBJECT_DIRECTORY=" + filepath.Join(own, "objects"), "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + quoted(filepath.Join(r.common, "objects"))}
	if _, err := r.git(ctx, strings.NewReader(objects), env, "-c", "pack.threads=1", "pack-objects", "--quiet", filepath.Join(own, "objects", "pack", "pack")); err != nil {
		return "", err
	}
	if _, err := r.git(ctx, nil, []string{"GIT_INDEX_FILE=" + filepath.Join(own, "index")}, "read-tree", commit); err != nil {
		return "", err
	}
	for name, text := range map[string]string{
		"HEAD": r.headOf(ctx, commit), "packed-refs": r.refsOf(ctx, commit), "shallow": shallow.String(), "config": configOf(commit),
	} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(own, name), []byte(text), 0o644); err != nil {
			return "", fmt.Errorf("git: %w", err)
		}
	}
	return dir, nil
}

// quoted is a path in a list of them.
func quoted(p string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(p) + `"`
}

// Paths returns the paths of the files in the last commits up to one, in no particular
// order. The result of History has no other paths.
func (r *Repository) Paths(ctx context.Context, commit string, commits int) (map[string]bool, error) {
	all := make(map[string]bool)
	for _, args := range [][]string{
		{"ls-tree", "-r", "-z", "--full-tree", "--name-only", commit},
		{"log", "-z", "-m", "--format=", "--name-only", "--no-renames", "--no-ext-diff", "--no-show-signature", "--max-count=" + strconv.Itoa(commits), commit},
	} {
		out, err := r.git(ctx, nil, nil, args...)
		if err != nil {
			return nil, err
		}
		for p := range strings.SplitSeq(out, "\x00") {
			if p != "" {
				all[p] = true
			}
		}
	}
	return all, nil
}

// Tracked returns the files of the index below the opened directory, relative to it.
func (r *Repository) Tracked(ctx context.Context) ([]string, error) {
	out, err := r.git(ctx, nil, nil, "ls-files", "-z", "--cached", "--full-name")
	if err != nil {
		return nil, err
	}
	var all []string
	for p := range strings.SplitSeq(out, "\x00") {
		if p, ok := strings.CutPrefix(p, r.prefix); ok && p != "" {
			all = append(all, p)
		}
	}
	return all, nil
}

// Current returns the current branch as refs/heads/NAME, or "" for none.
func (r *Repository) Current(ctx context.Context) string {
	out, err := r.git(ctx, nil, nil, "symbolic-ref", "--quiet", "HEAD")
	if ref := strings.TrimSpace(out); err == nil && strings.HasPrefix(ref, "refs/heads/") && !strings.ContainsAny(ref, "\n\r ") {
		return ref
	}
	return ""
}

func (r *Repository) headOf(ctx context.Context, commit string) string {
	if ref := r.Current(ctx); ref != "" {
		return "ref: " + ref + "\n"
	}
	return commit + "\n"
}

func (r *Repository) refsOf(ctx context.Context, commit string) string {
	if ref := r.Current(ctx); ref != "" {
		return "# pack-refs with: peeled fully-peeled sorted \n" + commit + " " + ref + "\n"
	}
	return ""
}

// configOf is a configuration in which git commit works.
func configOf(commit string) string {
	version, format := 0, ""
	if len(commit) == 64 {
		version, format = 1, "[extensions]\n\tobjectFormat = sha256\n"
	}
	return fmt.Sprintf("[core]\n\trepositoryFormatVersion = %d\n\tfileMode = true\n\tbare = false\n\tlogAllRefUpdates = true\n%s[user]\n\tname = agent\n\temail = agent@localhost\n", version, format)
}
