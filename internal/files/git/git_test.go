package git_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/git"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/platform/scratch"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	scratch.InMemory()
	os.Exit(m.Run())
}

// user runs git as the owner of a repository does.
func user(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C", "GIT_AUTHOR_NAME=ana", "GIT_AUTHOR_EMAIL=ana@localhost", "GIT_COMMITTER_NAME=ana", "GIT_COMMITTER_EMAIL=ana@localhost")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v: %s; these tests need git", strings.Join(args, " "), err, said.String())
	}
	return strings.TrimSpace(string(out))
}

func put(t *testing.T, dir, name, text string, mode os.FileMode) {
	t.Helper()
	p := filepath.Join(dir, filepath.FromSlash(name))
	must.Do(t, os.MkdirAll(filepath.Dir(p), 0o755))
	must.Do(t, os.WriteFile(p, []byte(text), mode))
}

func file(t *testing.T, b blob.Store, p, text string) manifest.Entry {
	t.Helper()
	ref := must.Get(b.Put(t.Context(), strings.NewReader(text)))(t)
	return manifest.Entry{Path: p, Kind: manifest.File, Size: ref.Size, Digest: ref.Digest}
}

func added(e manifest.Entry) manifest.Change {
	return manifest.Change{Path: e.Path, Kind: manifest.Added, After: e}
}

func removed(p string) manifest.Change {
	return manifest.Change{Path: p, Kind: manifest.Removed, Before: manifest.Entry{Path: p, Kind: manifest.File}}
}

func opened(t *testing.T, dir string) *git.Repository {
	t.Helper()
	r := must.Get(git.Open(t.Context(), dir))(t)
	t.Cleanup(func() { must.Report(t, r.Close()) })
	return r
}

// state is the part of a repository that must not change: its files, index and HEAD.
func state(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if rel == ".git/objects" || rel == ".git/refs" {
			return filepath.SkipDir
		}
		b.WriteString(rel + "\n")
		if d.Type().IsRegular() {
			data, err := os.ReadFile(p)
			b.Write(data)
			return err
		}
		return nil
	})
	must.Do(t, err)
	return b.String()
}

func commit(t *testing.T, r *git.Repository, b blob.Store, on string, changes ...manifest.Change) string {
	t.Helper()
	tree := must.Get(r.Tree(t.Context(), b, on, changes))(t)
	var parents []string
	if on != "" {
		parents = []string{on}
	}
	id := must.Get(r.Commit(t.Context(), tree, parents, "Run x\n\nRath-Run: x\n", time.Unix(1_000_000_000, 0)))(t)
	return id
}

// TestCommit: files of each kind, a file that becomes a directory and the other way round.
func TestCommit(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			dir := t.TempDir()
			user(t, dir, "init", "-q", "-b", "main", "--object-format="+format)
			put(t, dir, "sub/a.txt", "one\r\n", 0o644)
			put(t, dir, "sub/gone", "x", 0o644)
			put(t, dir, "sub/d/x", "x", 0o644)
			put(t, dir, "sub/f", "x", 0o644)
			put(t, dir, "top", "x", 0o644)
			user(t, dir, "add", ".")
			user(t, dir, "commit", "-q", "-m", "first")
			put(t, dir, "top", "edited", 0o644)
			was := state(t, dir)
			b := blob.NewMemory()
			r := opened(t, filepath.Join(dir, "sub"))
			head, err := r.Head(t.Context())
			if err != nil || head != user(t, dir, "rev-parse", "HEAD") {
				t.Fatalf("HEAD is %s, %v", head, err)
			}
			run := file(t, b, "run sh\n\tü", "echo\n")
			run.Exec = true
			crlf := manifest.Change{Path: "a.txt", Kind: manifest.Modified, Before: file(t, b, "a.txt", "one\r\n"), After: file(t, b, "a.txt", "two\r\n")}
			link := manifest.Entry{Path: "link", Kind: manifest.Symlink, Target: "a.txt"}
			id := commit(t, r, b, head, crlf, removed("gone"), added(run), added(link),
				removed("d/x"), added(file(t, b, "d", "a file now")), removed("f"), added(file(t, b, "f/y", "a directory now")))
			must.Do(t, r.Branch(t.Context(), "rath/x", id))
			want := "sub/a.txt\nsub/d\nsub/f/y\nsub/link\nsub/run sh\n\tü\ntop"
			if got := strings.ReplaceAll(user(t, dir, "ls-tree", "-r", "-z", "--name-only", "rath/x"), "\x00", "\n"); strings.TrimSpace(got) != want {
				t.Errorf("the tree has\n%s, want\n%s", got, want)
			}
			if got := user(t, dir, "cat-file", "-p", "rath/x:sub/a.txt"); got != "two" { // TrimSpace took the line's end
				t.Errorf("the file says %q", got)
			}
			if size := user(t, dir, "cat-file", "-s", "rath/x:sub/a.txt"); size != "5" {
				t.Errorf("the file has %s bytes, not 5: its line end was changed", size)
			}
			modes := user(t, dir, "ls-tree", "rath/x:sub")
			if !strings.Contains(modes, "120000") || !strings.Contains(modes, "100755") {
				t.Errorf("the modes are\n%s", modes)
			}
			user(t, dir, "fsck", "--strict", "--no-dangling")
			if now := state(t, dir); now != was {
				t.Errorf("files, index or HEAD changed:\n%s\nwere\n%s", now, was)
			}
			// Repeating it succeeds; another commit is an error.
			if again := commit(t, r, b, head, crlf); again == id {
				t.Error("other changes made the same commit")
			} else if err := r.Branch(t.Context(), "rath/x", again); !errors.Is(err, git.ErrExists) {
				t.Errorf("a branch was moved: %v", err)
			}
			if err := r.Branch(t.Context(), "rath/x", id); err != nil {
				t.Errorf("the same branch again: %v", err)
			}
			if err := r.Branch(t.Context(), "main", head); !errors.Is(err, git.ErrExists) {
				t.Errorf("the branch that is checked out: %v", err)
			}
		})
	}
}

func TestUnborn(t *testing.T) {
	dir := t.TempDir()
	user(t, dir, "init", "-q", "-b", "main")
	b := blob.NewMemory()
	r := opened(t, dir)
	if head, err := r.Head(t.Context()); err != nil || head != "" {
		t.Fatalf("HEAD is %q, %v", head, err)
	}
	must.Do(t, r.Branch(t.Context(), "rath/x", commit(t, r, b, "", added(file(t, b, "a", "x")))))
	if got := user(t, dir, "show", "rath/x:a"); got != "x" {
		t.Errorf("a says %q", got)
	}
}

// TestDiffering finds the uncommitted changes.
func TestDiffering(t *testing.T) {
	dir := t.TempDir()
	user(t, dir, "init", "-q")
	for _, name := range []string{"same", "edited", "gone", "run"} {
		put(t, dir, name, "x", 0o644)
	}
	user(t, dir, "add", ".")
	user(t, dir, "commit", "-q", "-m", "first")
	b := blob.NewMemory()
	r := opened(t, dir)
	head := must.Get(r.Head(t.Context()))(t)
	run := file(t, b, "run", "x")
	run.Exec = true
	changes := must.Get(r.Differing(t.Context(), b, head, []manifest.Entry{
		file(t, b, "same", "x"), file(t, b, "edited", "y"), {Path: "gone"}, {Path: "never"}, run, file(t, b, "new", "z"),
	}))(t)
	var got []string
	for _, c := range changes {
		got = append(got, c.Path)
	}
	if want := "edited gone run new"; strings.Join(got, " ") != want {
		t.Errorf("%v differ, want %s", got, want)
	}
}

// TestSubmodule: files of a submodule do not belong to the repository.
func TestSubmodule(t *testing.T) {
	dir := t.TempDir()
	user(t, dir, "init", "-q")
	put(t, dir, "a", "x", 0o644)
	user(t, dir, "add", "a")
	user(t, dir, "commit", "-q", "-m", "first")
	user(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+user(t, dir, "rev-parse", "HEAD")+",lib/mod")
	user(t, dir, "commit", "-q", "-m", "a submodule")
	b := blob.NewMemory()
	r := opened(t, dir)
	head := must.Get(r.Head(t.Context()))(t)
	for _, name := range []string{"lib/mod/x", "lib/mod"} {
		_, err := r.Tree(t.Context(), b, head, []manifest.Change{added(file(t, b, name, "x"))})
		if err == nil || !strings.Contains(err.Error(), "submodule lib/mod") {
			t.Errorf("%s: %v", name, err)
		}
	}
	commit(t, r, b, head, added(file(t, b, "lib/other", "x")))
}

// TestHostile: a repository runs no program, with any configuration, and names that some
// file system treats as git's own are rejected.
func TestHostile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("the programs of this test are shell scripts")
		return
	}
	dir, outside := t.TempDir(), t.TempDir()
	mark := filepath.Join(outside, "mark")
	program := filepath.Join(outside, "program")
	put(t, outside, "program", "#!/bin/sh\ntouch '"+mark+"'\ncat\n", 0o755)
	user(t, dir, "init", "-q", "-b", "main")
	put(t, dir, "a.txt", "one\n", 0o644)
	user(t, dir, "add", ".")
	user(t, dir, "commit", "-q", "-m", "first")
	base := user(t, dir, "rev-parse", "HEAD")
	for _, c := range [][2]string{
		{"core.hooksPath", outside},
		{"core.fsmonitor", program},
		{"core.pager", program},
		{"core.editor", program},
		{"core.sshCommand", program},
		{"core.alternateRefsCommand", program},
		{"core.gitProxy", program},
		{"gpg.program", program},
		{"commit.gpgSign", "true"},
		{"user.signingKey", "x"},
		{"filter.evil.clean", program},
		{"filter.evil.smudge", program},
		{"filter.evil.process", program},
		{"filter.evil.required", "true"},
		{"diff.evil.textconv", program},
		{"diff.external", program},
		{"merge.evil.driver", program},
		{"credential.helper", program},
		{"remote.o.url", "ext::" + program},
		{"remote.o.promisor", "true"},
		{"remote.o.partialCloneFilter", "blob:none"},
		{"extensions.partialClone", "o"},
		{"protocol.ext.allow", "always"},
		{"protocol.allow", "always"},
		{"core.attributesFile", filepath.Join(outside, "attributes")},
		{"core.autocrlf", "true"},
		{"core.protectHFS", "false"},
		{"core.protectNTFS", "false"},
		{"core.untrackedCache", "true"},
		{"gc.auto", "1"},
		{"core.sparseCheckout", "true"},
		{"alias.commit-tree", "!" + program},
		{"alias.update-index", "!" + program},
		{"include.path", filepath.Join(outside, "more")},
	} {
		user(t, dir, "config", c[0], c[1])
	}
	put(t, outside, "attributes", "* filter=evil diff=evil merge=evil\n", 0o644)
	put(t, outside, "more", "[core]\n\tfsmonitor = "+program+"\n", 0o644)
	put(t, dir, ".git/info/attributes", "* filter=evil diff=evil text eol=crlf\n", 0o644)
	for _, where := range []string{outside, filepath.Join(dir, ".git", "hooks")} {
		for _, hook := range []string{"reference-transaction", "post-index-change", "pre-commit", "post-commit", "commit-msg", "prepare-commit-msg", "post-checkout", "fsmonitor-watchman", "pre-auto-gc", "push-to-checkout", "update"} {
			put(t, where, hook, "#!/bin/sh\ntouch '"+mark+"'\n", 0o755)
		}
	}
	for name, value := range map[string]string{
		"GIT_DIR": outside, "GIT_WORK_TREE": outside, "GIT_EXTERNAL_DIFF": program, "GIT_SSH_COMMAND": program, "GIT_CONFIG_COUNT": "1",
		"GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": program, "GIT_TRACE": filepath.Join(outside, "trace"), "GIT_ALTERNATE_OBJECT_DIRECTORIES": outside,
	} {
		t.Setenv(name, value)
	}
	b := blob.NewMemory()
	r := opened(t, dir)
	changes := []manifest.Change{
		{Path: "a.txt", Kind: manifest.Modified, Before: file(t, b, "a.txt", "one\n"), After: file(t, b, "a.txt", "two\n")},
		added(file(t, b, ".gitattributes", "* filter=evil diff=evil\n")), added(file(t, b, "b.txt", "x\n")),
	}
	must.Get(r.Differing(t.Context(), b, base, []manifest.Entry{file(t, b, "a.txt", "0\n")}))(t)
	must.Do(t, r.Branch(t.Context(), "rath/x", commit(t, r, b, base, changes...)))
	for _, name := range []string{"mark", "trace"} {
		if _, err := os.Lstat(filepath.Join(outside, name)); err == nil {
			t.Errorf("%s is there: something of the repository or of the environment was run", name)
		}
	}
	sandboxtest.End(t, "leave hooks, filters and settings that run programs to a commit", "none is run")
	for _, name := range []string{".git/hooks/post-commit", ".GIT/config", "sub/.git", "git~1/config", ".g\u200cit/config", "a/../b", ".git /config", ".git::$INDEX_ALLOCATION/config"} {
		if _, err := r.Tree(t.Context(), b, base, []manifest.Change{added(file(t, b, name, "x"))}); err == nil {
			t.Errorf("the path %q was taken", name)
		}
	}
	link := manifest.Entry{Path: ".gitmodules", Kind: manifest.Symlink, Target: "x"}
	if _, err := r.Tree(t.Context(), b, base, []manifest.Change{added(link)}); err == nil {
		t.Error("a link .gitmodules was taken")
	}
	sandboxtest.End(t, "name a file like .git, by any case or sign", "refused")
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	if _, err := git.Open(t.Context(), dir); !errors.Is(err, git.ErrNoRepository) {
		t.Errorf("a directory in no repository: %v", err)
	}
	user(t, dir, "init", "-q")
	if _, err := git.Open(t.Context(), filepath.Join(dir, ".git")); !errors.Is(err, git.ErrNoRepository) {
		t.Errorf("git's own directory: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := git.Open(t.Context(), dir); !errors.Is(err, git.ErrNoGit) {
		t.Errorf("without git: %v", err)
	}
}

// TestHistory: git accepts the repository made of another one, with its last commits and no
// other.
func TestHistory(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			dir := t.TempDir()
			user(t, dir, "init", "-q", "-b", "feature/x", "--object-format="+format)
			for _, text := range []string{"one", "two", "three"} {
				put(t, dir, "sub/a.txt", text+"\n", 0o644)
				user(t, dir, "add", ".")
				user(t, dir, "commit", "-q", "-m", text)
			}
			user(t, dir, "branch", "other")
			user(t, dir, "config", "core.fsmonitor", "/bin/false")
			put(t, dir, ".git/hooks/post-commit", "#!/bin/sh\n", 0o755)
			was := state(t, dir)
			packs, then := filepath.Join(dir, ".git", "objects", "pack"), time.Unix(1_000_000_000, 0)
			must.Do(t, os.Chtimes(packs, then, then))
			r := opened(t, dir)
			head := must.Get(r.Head(t.Context()))(t)
			if _, err := r.History(t.Context(), head, 2, 10); !errors.Is(err, git.ErrTooLarge) {
				t.Errorf("a history of more than 10 bytes: %v", err)
			}
			own := must.Get(r.History(t.Context(), head, 2, 1<<20))(t)
			if now := state(t, dir); now != was {
				t.Errorf("the repository changed:\n%s\nwas\n%s", now, was)
			}
			if info, err := os.Stat(packs); err != nil || !info.ModTime().Equal(then) {
				t.Errorf("a file was made among the packs of the repository, %v", err)
			}
			user(t, dir, "mv", "sub/a.txt", "b.txt")
			user(t, dir, "commit", "-q", "-m", "moved")
			moved := must.Get(r.Head(t.Context()))(t)
			for commits, want := range map[int]string{1: "[b.txt sub/a.txt]", 9: "[b.txt sub/a.txt]"} {
				paths, err := r.Paths(t.Context(), moved, commits)
				if got := fmt.Sprint(slices.Sorted(maps.Keys(paths))); err != nil || got != want {
					t.Errorf("the paths of %d commits are %s, %v", commits, got, err)
				}
			}
			put(t, own, "sub/a.txt", "three\n", 0o644)
			for args, want := range map[string]string{
				"log --format=%s": "three\ntwo", "status --short": "", "branch --list": "* feature/x", "fsck --strict": "", "show HEAD~1:sub/a.txt": "two",
			} {
				if got := user(t, own, strings.Fields(args)...); got != want {
					t.Errorf("git %s prints %q, want %q", args, got, want)
				}
			}
			if _, err := os.Lstat(filepath.Join(own, ".git", "hooks")); err == nil {
				t.Error("hooks came along")
			}
			put(t, own, "sub/a.txt", "four\n", 0o644)
			user(t, own, "commit", "-q", "-a", "-m", "four")
			if got := user(t, own, "log", "--format=%s"); got != "four\nthree\ntwo" {
				t.Errorf("after a commit the log is %q", got)
			}
		})
	}
}
