//go:build unix

package git_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rathcluster/rath/internal/files/git"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestWaits does not start git if it would wait for a named pipe.
func TestWaits(t *testing.T) {
	for _, name := range []string{
		".git", ".git/HEAD", ".git/config", ".git/config.worktree", ".git/commondir", ".git/packed-refs", ".git/shallow", ".git/index", ".git/info/grafts",
		".git/info/attributes", ".git/info/exclude", ".git/objects/info/alternates", ".git/objects/info/commit-graph", ".git/objects/pack/pack-x.idx", ".git/refs/heads/main", ".git/logs/HEAD",
		".git/objects/ab/cdef",
	} {
		t.Run(name, func(t *testing.T) {
			dir := made(t)
			must.Do(t, piped(dir, name))
			if err := taken(t, dir); !errors.Is(err, git.ErrLeads) {
				t.Errorf("it is taken: %v", err)
			}
		})
	}
	// Files that a configuration includes, and files that git reads before.
	for _, name := range []string{"include.path", "includeIf.gitdir:/.path"} {
		t.Run(name, func(t *testing.T) {
			dir := made(t)
			must.Do(t, piped(dir, "pipe"))
			put(t, dir, "more", "[include]\n\tpath = pipe\n", 0o644)
			user(t, dir, "config", name, "../more")
			if err := taken(t, dir); !errors.Is(err, git.ErrLeads) {
				t.Errorf("it is taken: %v", err)
			}
		})
	}
	for _, name := range []string{"diff.orderFile", "mailmap.file", "core.excludesFile", "commit.template"} {
		t.Run(name, func(t *testing.T) {
			dir := made(t)
			must.Do(t, piped(dir, "pipe"))
			user(t, dir, "config", name, filepath.Join(dir, "pipe"))
			must.Report(t, taken(t, dir))
		})
	}
	for _, name := range []string{".git/COMMIT", "HEAD", "commondir", ".gitattributes", ".mailmap"} {
		t.Run("beside it "+name, func(t *testing.T) {
			dir := made(t)
			must.Do(t, piped(dir, strings.ReplaceAll(name, "COMMIT", user(t, dir, "rev-parse", "HEAD"))))
			must.Report(t, taken(t, dir))
		})
	}
}

// TestDevice: a file without an end is not read.
func TestDevice(t *testing.T) {
	for _, name := range []string{"info/grafts", "shallow", "packed-refs", "config", "HEAD", "objects/info/alternates"} {
		t.Run(name, func(t *testing.T) {
			dir := made(t)
			link(t, "/dev/zero", filepath.Join(dir, ".git", filepath.FromSlash(name)))
			if err := taken(t, dir); !errors.Is(err, git.ErrLeads) {
				t.Errorf("it is taken: %v", err)
			}
		})
	}
}

// TestSocket accepts a repository with the socket of git's own fsmonitor.
func TestSocket(t *testing.T) {
	dir := made(t)
	t.Chdir(filepath.Join(dir, ".git")) // the path of a socket is short
	l := must.Get(net.Listen("unix", "fsmonitor--daemon.ipc"))(t)
	defer l.Close()
	must.Report(t, taken(t, dir))
}

// piped replaces a file by a named pipe.
func piped(dir, name string) error {
	p := filepath.Join(dir, filepath.FromSlash(name))
	return errors.Join(os.RemoveAll(p), os.MkdirAll(filepath.Dir(p), 0o755), syscall.Mkfifo(p, 0o600))
}
