package git_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/files/git"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// made is a repository with one commit.
func made(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "work")
	put(t, dir, "sub/a", "x", 0o644)
	user(t, dir, "init", "-q", "-b", "main")
	user(t, dir, "add", ".")
	user(t, dir, "commit", "-q", "-m", "first")
	return dir
}

// link replaces a file by a link.
func link(t *testing.T, to, name string) {
	t.Helper()
	must.Do(t, errors.Join(os.RemoveAll(name), os.MkdirAll(filepath.Dir(name), 0o755), os.Symlink(to, name)))
}

// withFile is a directory whose .git is a file.
func withFile(t *testing.T, dir, text string) string {
	t.Helper()
	must.Do(t, os.RemoveAll(filepath.Join(dir, ".git")))
	put(t, dir, ".git", text, 0o644)
	return dir
}

// taken opens a directory and reads all of its history. A git that waits for ever is ended.
func taken(t *testing.T, dir string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := git.Open(ctx, dir)
	if err != nil {
		return err
	}
	defer r.Close()
	head, err := r.Head(ctx)
	if err != nil || head == "" {
		return errors.Join(err, ctx.Err())
	}
	_, err = r.Paths(ctx, head, 50)
	if err == nil {
		_, err = r.History(ctx, head, 50, 1<<20)
	}
	return errors.Join(err, ctx.Err())
}

// TestLeads: a repository that leads elsewhere is neither read nor written.
func TestLeads(t *testing.T) {
	outside, other := t.TempDir(), made(t)
	objects := filepath.Join(other, ".git", "objects")
	secret := user(t, other, "commit-tree", "-m", "a secret", "HEAD^{tree}")
	user(t, other, "reset", "-q", "--soft", secret)
	// moved moves a path of git's directory outside and links to it.
	moved := func(name string) func(*testing.T, string) string {
		return func(t *testing.T, dir string) string {
			p, to := filepath.Join(dir, ".git", filepath.FromSlash(name)), filepath.Join(t.TempDir(), "moved")
			if err := os.Rename(p, to); os.IsNotExist(err) {
				to = outside
			} else if err != nil {
				t.Fatal(err)
			}
			link(t, to, p)
			return dir
		}
	}
	cases := map[string]func(t *testing.T, dir string) string{
		"HEAD": func(t *testing.T, dir string) string { // git takes no other link
			link(t, "refs/heads/main", filepath.Join(dir, ".git", "HEAD"))
			return dir
		},
		"a linked .git": func(t *testing.T, dir string) string {
			link(t, filepath.Join(other, ".git"), filepath.Join(dir, ".git"))
			return dir
		},
		"below a linked .git": func(t *testing.T, dir string) string {
			link(t, filepath.Join(other, ".git"), filepath.Join(dir, ".git"))
			return filepath.Join(dir, "sub")
		},
		"a .git file": func(t *testing.T, dir string) string {
			return withFile(t, dir, "gitdir: "+filepath.Join(other, ".git")+"\n")
		},
		"the .git file of another worktree": func(t *testing.T, dir string) string {
			tree := filepath.Join(t.TempDir(), "tree")
			user(t, other, "worktree", "add", "-q", "--detach", tree)
			data := must.Get(os.ReadFile(filepath.Join(tree, ".git")))(t)
			return withFile(t, dir, string(data))
		},
		"a common directory": func(t *testing.T, dir string) string {
			put(t, dir, ".git/commondir", filepath.Join(other, ".git")+"\n", 0o644)
			return dir
		},
		"a common directory of a worktree that names the file": func(t *testing.T, dir string) string {
			own := filepath.Join(dir, "own", "worktrees", "x")
			put(t, own, "HEAD", "ref: refs/heads/main\n", 0o644)
			put(t, own, "commondir", filepath.Join(other, ".git")+"\n", 0o644)
			put(t, own, "gitdir", filepath.Join(dir, ".git")+"\n", 0o644)
			return withFile(t, dir, "gitdir: "+own+"\n")
		},
		"alternates": func(t *testing.T, dir string) string {
			put(t, dir, ".git/objects/info/alternates", objects+"\n", 0o644)
			put(t, dir, ".git/refs/heads/main", secret+"\n", 0o644)
			return dir
		},
		"the objects of another": func(t *testing.T, dir string) string {
			link(t, objects, filepath.Join(dir, ".git", "objects"))
			put(t, dir, ".git/refs/heads/main", secret+"\n", 0o644)
			return dir
		},
		"some objects of another": func(t *testing.T, dir string) string {
			link(t, filepath.Join(objects, secret[:2]), filepath.Join(dir, ".git", "objects", secret[:2]))
			return dir
		},
		"one object of another": func(t *testing.T, dir string) string {
			link(t, filepath.Join(objects, secret[:2], secret[2:]), filepath.Join(dir, ".git", "objects", secret[:2], secret[2:]))
			put(t, dir, ".git/refs/heads/main", secret+"\n", 0o644)
			return dir
		},
		"a pack": func(t *testing.T, dir string) string {
			user(t, dir, "repack", "-q", "-a", "-d")
			packs, err := filepath.Glob(filepath.Join(dir, ".git", "objects", "pack", "*.pack"))
			if err != nil || len(packs) != 1 {
				t.Fatalf("%v, %v", packs, err)
			}
			return moved("objects/pack/"+filepath.Base(packs[0]))(t, dir)
		},
		"a branch": moved("refs/heads/main"),
		"packed-refs": func(t *testing.T, dir string) string {
			user(t, dir, "pack-refs", "--all")
			return moved("packed-refs")(t, dir)
		},
		"the log of a branch": func(t *testing.T, dir string) string {
			link(t, filepath.Join(outside, "x"), filepath.Join(dir, ".git", "logs", "refs", "heads", "rath", "x"))
			return dir
		},
		"the link of grafts to a device": func(t *testing.T, dir string) string {
			link(t, os.DevNull, filepath.Join(dir, ".git", "info", "grafts"))
			return dir
		},
		"a configuration that takes in a device": func(t *testing.T, dir string) string {
			user(t, dir, "config", "include.path", os.DevNull)
			return dir
		},
	}
	for _, name := range []string{"refs", "refs/heads", "refs/heads/rath", "objects", "objects/pack", "logs", "logs/HEAD", "logs/refs/heads/rath", "config", "config.worktree", "index", "info", "shallow"} {
		cases[name] = moved(name)
	}
	// Files of a terabyte that git would read as a whole.
	for _, name := range []string{"HEAD", "config", "packed-refs", "shallow", "info/grafts", "info/attributes", "objects/info/alternates", "refs/heads/main", "commondir"} {
		cases["a terabyte of "+name] = func(t *testing.T, dir string) string {
			p := filepath.Join(dir, ".git", filepath.FromSlash(name))
			put(t, dir, ".git/"+name, "", 0o644)
			must.Do(t, os.Truncate(p, 1<<40))
			return dir
		}
	}
	for name, of := range cases {
		t.Run(name, func(t *testing.T) {
			err := taken(t, of(t, made(t)))
			if !errors.Is(err, git.ErrLeads) {
				t.Errorf("it is taken: %v", err)
			}
		})
	}
}

// TestLeadsLater: one that leads elsewhere since it was opened is noticed, and so is another
// one in its place.
func TestLeadsLater(t *testing.T) {
	dir, other := made(t), made(t)
	r := opened(t, dir)
	must.Do(t, r.Stays(t.Context()))
	link(t, filepath.Join(other, ".git", "refs"), filepath.Join(dir, ".git", "refs"))
	if err := r.Stays(t.Context()); !errors.Is(err, git.ErrLeads) {
		t.Errorf("its branches are a link: %v", err)
	}
	tree := filepath.Join(t.TempDir(), "tree")
	user(t, other, "worktree", "add", "-q", tree)
	r = opened(t, tree)
	user(t, other, "worktree", "move", tree, tree+"2")
	user(t, other, "clone", "-q", other, tree)
	if err := r.Stays(t.Context()); !errors.Is(err, git.ErrLeads) {
		t.Errorf("another repository is in its place: %v", err)
	}
}

// TestStays accepts the repositories that users have.
func TestStays(t *testing.T) {
	other := made(t)
	for name, of := range map[string]func(t *testing.T, dir string) (string, string){
		"a directory":         func(_ *testing.T, dir string) (string, string) { return dir, "" },
		"below it":            func(_ *testing.T, dir string) (string, string) { return filepath.Join(dir, "sub"), "" },
		"a link to directory": func(t *testing.T, dir string) (string, string) { link(t, dir, dir+"2"); return dir + "2", "" },
		"a worktree": func(t *testing.T, dir string) (string, string) {
			user(t, dir, "worktree", "add", "-q", dir+"2")
			return filepath.Join(dir+"2", "sub"), filepath.Join(dir, ".git")
		},
		"a submodule": func(t *testing.T, dir string) (string, string) {
			user(t, dir, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", other, "mod")
			return filepath.Join(dir, "mod"), filepath.Join(dir, ".git", "modules", "mod")
		},
		"hooks and excludes that are links": func(t *testing.T, dir string) (string, string) {
			link(t, t.TempDir(), filepath.Join(dir, ".git", "hooks"))
			put(t, dir, "ignore", "x\n", 0o644)
			link(t, filepath.Join(dir, "ignore"), filepath.Join(dir, ".git", "info", "exclude"))
			return dir, ""
		},
		"a configuration with more in a file of the directory": func(t *testing.T, dir string) (string, string) {
			put(t, dir, "gitconfig", "[core]\n\tabbrev = 9\n", 0o644)
			user(t, dir, "config", "include.path", "../gitconfig")
			user(t, dir, "config", "includeIf.gitdir:/nowhere/.path", "absent")
			return dir, ""
		},
		"packed": func(t *testing.T, dir string) (string, string) {
			user(t, dir, "gc", "-q")
			user(t, dir, "multi-pack-index", "write")
			return dir, ""
		},
		"a shallow clone": func(t *testing.T, dir string) (string, string) {
			user(t, dir, "clone", "-q", "--depth=1", "file://"+dir, dir+"2")
			return dir + "2", ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, want := of(t, made(t))
			must.Report(t, taken(t, dir))
			r := opened(t, dir)
			must.Report(t, r.Stays(t.Context()))
			got := r.Elsewhere()
			if real, err := filepath.EvalSymlinks(want); want != "" && (err != nil || real != got) || want == "" && got != "" {
				t.Errorf("it lies in %q, want %q", got, want)
			}
		})
	}
}
