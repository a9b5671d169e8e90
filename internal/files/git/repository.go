// Package git writes commits into a repository that it does not trust, by the plumbing of
// the git program, and touches neither its working tree, its index nor its HEAD.
//
//	r, err := git.Open(ctx, dir)
//	commit, err := r.Commit(ctx, tree, parents, message, when)
//	err = r.Branch(ctx, "rath/7f3a", commit)
//
// Nothing that a repository configures is run: no hook, filter, fsmonitor, pager, signing
// program or transport. Of the environment git gets the path of programs alone, and no
// configuration of the user or the system.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

var (
	// ErrNoGit is returned where the git program is not installed.
	ErrNoGit = errors.New("git: the git program is not installed, or not in PATH")
	// ErrNoRepository is returned for a directory outside any repository, or in a repository
	// that git rejects because it belongs to another user.
	ErrNoRepository = errors.New("git: not in a repository of yours")
	// ErrExists is returned for a branch that exists and names another commit.
	ErrExists = errors.New("git: the branch exists already")
	// ErrRefused is returned for a path that no commit of the repository can hold.
	ErrRefused = errors.New("git: git rejects a path")
)

// Repository is the repository that contains a directory. It is not safe for concurrent
// use.
type Repository struct {
	place
	program string
	shell   string // the shell that limits the memory of git, or ""
	from    string // the directory that it was opened by, without links
	prefix  string // of the directory in it, "" or with a slash at the end
	scratch string // an empty directory to run in
	hashed  map[string]string
}

// Open finds the repository that contains a directory. It returns ErrLeads for a repository
// that Stays rejects. Close removes its temporary files.
func Open(ctx context.Context, dir string) (*Repository, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoGit, err)
	}
	r := &Repository{program: program, hashed: map[string]string{}}
	if runtime.GOOS == "linux" { // without one, the files have bounds all the same
		r.shell, _ = exec.LookPath("sh")
	}
	if r.from, err = filepath.Abs(dir); err == nil {
		r.from, err = filepath.EvalSymlinks(r.from)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoRepository, err)
	}
	if r.place, err = find(r.from); err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(filepath.Dir(r.entry), r.from)
	if err != nil {
		return nil, fmt.Errorf("git: %w", err)
	}
	if rel != "." {
		r.prefix = filepath.ToSlash(rel) + "/"
	}
	if r.scratch, err = os.MkdirTemp("", "rath-git-"); err != nil {
		return nil, fmt.Errorf("git: %w", err)
	}
	if err := r.stays(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	// Without GIT_DIR git looks whose the repository is.
	env := []string{"GIT_CEILING_DIRECTORIES=" + filepath.Dir(r.dir), "GIT_WORK_TREE=" + r.scratch}
	if _, err := r.run(ctx, r.dir, nil, env, "rev-parse", "--git-dir"); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", ErrNoRepository, dir, err), r.Close())
	}
	return r, nil
}

// Top reports whether the opened directory is the top of the working tree.
func (r *Repository) Top() bool { return r.prefix == "" }

// Close removes the temporary files outside the repository.
func (r *Repository) Close() error { return os.RemoveAll(r.scratch) }

// Head returns the current commit, or "" if there is none.
func (r *Repository) Head(ctx context.Context) (string, error) {
	out, err := r.git(ctx, nil, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", "HEAD^{commit}")
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		return "", nil
	}
	return strings.TrimSpace(out), err
}

// Ancestors returns a commit and its first-parent ancestors, the newest first.
func (r *Repository) Ancestors(ctx context.Context, commit string, most int) ([]string, error) {
	out, err := r.git(ctx, nil, nil, "rev-list", "--first-parent", "--max-count="+strconv.Itoa(most), commit)
	return strings.Fields(out), err
}

// Branch creates a branch at a commit. It succeeds if the branch already names the commit;
// a branch with another commit is ErrExists.
func (r *Repository) Branch(ctx context.Context, name, commit string) error {
	ref := "refs/heads/" + name
	if head, err := r.git(ctx, nil, nil, "symbolic-ref", "--quiet", "HEAD"); err == nil && strings.TrimSpace(head) == ref {
		return fmt.Errorf("%w: %s is checked out", ErrExists, name)
	}
	if _, err := r.git(ctx, nil, nil, "update-ref", "-m", "rath", "--no-deref", ref, commit, ""); err == nil {
		return nil
	} else if old, oldErr := r.git(ctx, nil, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", ref); oldErr == nil {
		if strings.TrimSpace(old) == commit {
			return nil
		}
		return fmt.Errorf("%w: %s", ErrExists, name)
	} else {
		return err
	}
}

// safely are settings that a repository cannot override: git runs none of its programs,
// fetches nothing, reads no file that it names, and rejects names that some file system
// treats as git's own.
var safely = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false", "core.attributesFile=/dev/null",
	"core.pager=cat", "core.sparseCheckout=false", "core.splitIndex=false", "index.sparse=false",
	"core.protectHFS=true", "core.protectNTFS=true", "core.symlinks=true", "core.autocrlf=false", "core.eol=lf",
	"core.excludesFile=/dev/null", "diff.orderFile=/dev/null", "mailmap.file=/dev/null", "core.warnAmbiguousRefs=false",
	"core.multiPackIndex=false", "core.commitGraph=false", "safe.bareRepository=all",
	"commit.gpgSign=false", "protocol.allow=never", "gc.auto=0", "maintenance.auto=false", "core.logAllRefUpdates=false",
}

// environment is all that git gets of one.
func (r *Repository) environment() []string {
	env := []string{
		"HOME=" + r.scratch, "XDG_CONFIG_HOME=" + r.scratch, "LC_ALL=C", "TZ=UTC",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_OPTIONAL_LOCKS=0",
	}
	for _, name := range []string{"PATH", "SystemRoot", "TMPDIR", "TEMP", "TMP"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// git runs a command on the repository, with the scratch directory as its working tree.
func (r *Repository) git(ctx context.Context, in io.Reader, env []string, args ...string) (string, error) {
	return r.run(ctx, r.scratch, in, append([]string{"GIT_DIR=" + r.dir, "GIT_WORK_TREE=" + r.scratch}, env...), args...)
}

// The limits of a git command: its input may change at any time, and small objects may
// expand without limit.
const (
	maxTime   = 5 * time.Minute
	maxMemory = 2 << 30 // in bytes, without packs, which it maps
)

// maxOutput is the maximum size of git's output, in bytes: the list of a repository's
// files.
const maxOutput = 256 << 20

func (r *Repository) run(ctx context.Context, dir string, in io.Reader, env []string, args ...string) (string, error) {
	all := []string{"--no-pager", "--literal-pathspecs"}
	for _, s := range safely {
		all = append(all, "-c", s)
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	all = append(all, args...)
	cmd := exec.CommandContext(ctx, r.program, all...)
	if r.shell != "" { // a limit set after the start may be too late
		limited := fmt.Sprintf(`ulimit -d %d; exec "$0" "$@"`, maxMemory>>10)
		cmd = exec.CommandContext(ctx, r.shell, append([]string{"-c", limited, r.program}, all...)...)
	}
	cmd.Dir, cmd.Stdin, cmd.Env = dir, in, append(r.environment(), env...)
	out, said := &bounded{left: maxOutput}, &bounded{left: 4 << 10, cut: true}
	cmd.Stdout, cmd.Stderr = out, said
	err := cmd.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("%w: it did not end in time", ctx.Err())
	}
	if err != nil {
		text, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		if text == "" {
			return out.String(), fmt.Errorf("git: %s: %w", args[0], err)
		}
		return out.String(), fmt.Errorf("git: %s: %s: %w", args[0], text, err)
	}
	return out.String(), nil
}

// bounded keeps the first bytes of an output; further bytes are an error, or dropped.
type bounded struct {
	bytes.Buffer
	left int
	cut  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := len(p)
	if n > b.left {
		if !b.cut {
			return 0, fmt.Errorf("git: more than %d bytes", maxOutput)
		}
		p = p[:b.left]
	}
	b.left -= len(p)
	_, err := b.Buffer.Write(p)
	return n, err
}
