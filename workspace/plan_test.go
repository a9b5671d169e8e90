package workspace_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
	"github.com/rathcluster/rath/workspace"
)

// worked imports a directory, lets work happen in a copy of it, and returns the heads.
func worked(t *testing.T, b blob.Store, dir string, work func(dir string)) (from, to blob.Digest) {
	t.Helper()
	in := must.Get(workspace.Import(t.Context(), b, dir, nil))(t)
	copied := restore(t, b, in.Head)
	work(copied)
	return in.Head, snapshot(t, b, copied, in.Head)
}

// TestNothingHarmfulGoesOut is an agent that plants files for the next program outside the
// sandbox.
func TestNothingHarmfulGoesOut(t *testing.T) {
	b, dir := blob.NewMemory(), t.TempDir()
	write(t, dir, map[string]string{"main.go": "package main", ".gitignore": "*.log\nbuild/\n.env\n", ".git/config": "[core]", ".env": "SECRET=1", "sub/x": "1"})
	before := modelOf(t, dir)
	attack := []string{
		".git/hooks/post-commit", ".git/config.worktree", "sub/.git/hooks/post-checkout", "sub/.git/config", ".GIT/hooks/pre-commit", ".rath/memory/x.md", "sub/.rath/nats/x",
		".envrc", ".github/workflows/x.yml", ".husky/pre-commit", "sub/.vscode/tasks.json", "CLAUDE.md", "sub/AGENTS.md", ".mcp.json", ".bashrc", ".gitlab-ci.yml", ".rathignore", ".gitmodules",
		"trap.git/HEAD", "trap.git/objects/x", "trap.git/refs/x", "trap.git/config", ".env", "x.log", "build/out", "sub/y.log",
	}
	from, to := worked(t, b, dir, func(copied string) {
		files := map[string]string{"main.go": "package better", ".gitignore": "", "new/file": "2"}
		for _, p := range attack {
			files[p] = "planted"
		}
		write(t, copied, files)
		must.Do(t, os.Symlink("/etc/passwd", filepath.Join(copied, "notes")))
	})
	p, err := workspace.NewPlan(t.Context(), b, from, to, nil)
	must.Do(t, err)
	if want := []string{".github", ".gitignore", "main.go", "new", "new/file"}; !slices.Equal(p.Paths, want) {
		t.Errorf("carried over: %q, want %q", p.Paths, want)
	} else {
		sandboxtest.End(t, "have --apply carry over hooks, CI, settings of agents and shells", "withheld")
	}
	why := make(map[string]string)
	for _, w := range p.Withheld {
		why[w.Path] = fmt.Sprintf("%s refused=%v never=%v", w.Why, w.Refused, w.Never)
	}
	for path, want := range map[string]string{
		".git/hooks/post-commit": "git's own directory refused=true never=true", ".rath/memory/x.md": "a store of Rath refused=true never=true",
		"x.log": "*.log refused=false never=false", "build/out": "build/ refused=false never=false", ".env": ".env refused=false never=false",
		".envrc": "configuration of a shell refused=true never=false", "notes": "a symbolic link that leads out of the directory refused=true never=false",
		"trap.git/HEAD": "in a directory git accepts as a repository refused=true never=false",
	} {
		if why[path] != want {
			t.Errorf("%s is withheld as %q, want %q", path, why[path], want)
		}
	}
	for _, path := range attack {
		if why[path] == "" {
			t.Errorf("%s is not withheld", path)
		}
	}
	must.Do(t, p.Apply(t.Context(), dir))
	want := before
	want["main.go"], want[".gitignore"], want["new"], want["new/file"], want[".github"] = "file false package better", "file false ", "dir", "file false 2", "dir"
	if diff := cmp.Diff(want, modelOf(t, dir)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}

	// The rules of the import also apply to later files.
	again := restore(t, b, to)
	write(t, again, map[string]string{"later.log": "x", "later": "y"})
	p, err = workspace.NewPlan(t.Context(), b, to, snapshot(t, b, again, to), nil)
	if err != nil || !slices.Equal(p.Paths, []string{"later"}) {
		t.Errorf("later: %q, %v", p.Paths, err)
	}
}

// TestAllowedByName carries protected paths that are named, never git's own and the store.
func TestAllowedByName(t *testing.T) {
	b, dir := blob.NewMemory(), t.TempDir()
	from, to := worked(t, b, dir, func(copied string) {
		write(t, copied, map[string]string{".github/workflows/x.yml": "1", ".github/workflows/y.yml": "2", ".envrc": "3", ".git/config": "4", "a": "5", "d/b": "6"})
	})
	for _, tt := range []struct {
		o    workspace.PlanOptions
		want []string
	}{
		{workspace.PlanOptions{}, []string{".github", "a", "d", "d/b"}},
		{workspace.PlanOptions{Allow: []string{".github/workflows/x.yml"}}, []string{".github", ".github/workflows", ".github/workflows/x.yml", "a", "d", "d/b"}},
		{workspace.PlanOptions{Allow: []string{".github/", "./.envrc", ".git"}}, []string{".envrc", ".github", ".github/workflows", ".github/workflows/x.yml", ".github/workflows/y.yml", "a", "d", "d/b"}},
		{workspace.PlanOptions{Only: []string{"d/b"}}, []string{"d", "d/b"}},
		{workspace.PlanOptions{Only: []string{"a", "d"}}, []string{"a", "d", "d/b"}},
	} {
		p, err := workspace.NewPlan(t.Context(), b, from, to, &tt.o)
		if err != nil || !slices.Equal(p.Paths, tt.want) {
			t.Errorf("%+v: %q, %v, want %q", tt.o, p.Paths, err, tt.want)
		}
	}
	if _, err := workspace.NewPlan(t.Context(), b, from, to, &workspace.PlanOptions{Only: []string{"typo"}}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("only what did not change: %v", err)
	}
}

// TestApplyNotThroughLinks puts a link inside in the place of a directory.
func TestApplyNotThroughLinks(t *testing.T) {
	b, dir := blob.NewMemory(), t.TempDir()
	write(t, dir, map[string]string{"d/sub/f": "1", ".git/hooks/sub/f": "1"})
	from, to := worked(t, b, dir, func(copied string) { write(t, copied, map[string]string{"d/sub/f": "2", "d/sub/g": "3"}) })
	remove(t, dir, "d")
	must.Do(t, os.Symlink(".git/hooks", filepath.Join(dir, "d")))
	before := modelOf(t, filepath.Join(dir, ".git"))
	if err := apply(t, b, from, to, dir, nil); err == nil {
		t.Error("applied through a link")
	}
	if diff := cmp.Diff(before, modelOf(t, filepath.Join(dir, ".git"))); diff != "" {
		t.Errorf("changed behind the link:\n%s", diff)
	} else {
		sandboxtest.End(t, "have --apply go through a link", "refused, nothing is changed")
	}
}

// TestImportSaysWhatStays reads the ignore files of the directory, of those below and
// above, and reports the excluded paths.
func TestImportSaysWhatStays(t *testing.T) {
	b, repo := blob.NewMemory(), t.TempDir()
	write(t, repo, map[string]string{
		".git/HEAD": "ref", ".gitignore": "*.key\n/app/cache/\n/other\n", "app/.gitignore": "*.log\n!keep.log\n", "app/.rathignore": "secret\n",
		"app/a.key": "x", "app/cache/x": "x", "app/other": "kept", "app/x.log": "x", "app/keep.log": "kept", "app/secret/x": "x", "app/main": "kept",
		"app/web/.gitignore": "/dist\n", "app/web/dist/x": "x", "app/web/src/dist/x": "kept", "app/node_modules/.gitignore": "*\n", "app/node_modules/x": "x", "app/.rath/nats/x": "x",
	})
	in, err := workspace.Import(t.Context(), b, filepath.Join(repo, "app"), &workspace.ImportOptions{Exclude: []string{"/mystore/"}})
	must.Do(t, err)
	var said []string
	for _, o := range in.LeftOut {
		said = append(said, o.Path+" by "+o.Why)
	}
	want := []string{
		".rath/ by a store of Rath", "a.key by *.key", "cache/ by /cache/", "node_modules/.gitignore by /node_modules/**/*", "node_modules/x by /node_modules/**/*",
		"secret/ by secret", "web/dist/ by /web/dist", "x.log by *.log",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("left out (-want +got)\n%s", diff)
	}
	kept := strings.Fields(".gitignore .rathignore keep.log main node_modules other web web/.gitignore web/src web/src/dist web/src/dist/x")
	if diff := cmp.Diff(kept, keys(modelOf(t, restore(t, b, in.Head)))); diff != "" {
		t.Errorf("kept (-want +got)\n%s", diff)
	}
	// A store that was named is out as well, later too.
	copied := restore(t, b, in.Head)
	write(t, copied, map[string]string{"mystore/x": "planted", "sub/b.key": "planted", "new": "1"})
	p, err := workspace.NewPlan(t.Context(), b, in.Head, snapshot(t, b, copied, in.Head), nil)
	if err != nil || !slices.Equal(p.Paths, []string{"new", "sub"}) {
		t.Errorf("goes out: %q, %v", p.Paths, err)
	}
}

func keys(m model) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// TestImportManyRules ends with a remedy.
func TestImportManyRules(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{".gitignore": strings.Repeat("x\n", 3000)})
	if _, err := workspace.Import(t.Context(), blob.NewMemory(), dir, nil); err == nil || !strings.Contains(err.Error(), ".gitignore") {
		t.Errorf("many lines: %v", err)
	}
	write(t, dir, map[string]string{".gitignore": strings.Repeat("# x", 300<<10)})
	if _, err := workspace.Import(t.Context(), blob.NewMemory(), dir, nil); err == nil || !strings.Contains(err.Error(), ".gitignore") {
		t.Errorf("a large file: %v", err)
	}
}
