package workspace_test

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/workspace"
)

var update = flag.Bool("update", false, "write the table of docs/files.md")

// spellings are the ways to write a path that some file system takes for the same one.
var spellings = map[string]func(string) string{
	"as it is":       func(p string) string { return p },
	"below":          func(p string) string { return "sub/dir/" + p },
	"capitals":       strings.ToUpper,
	"mixed":          func(p string) string { return strings.ToUpper(p[:2]) + p[2:] },
	"dots, spaces":   each(func(n string) string { return n + ". ." }),
	"ignored by HFS": each(func(n string) string { return n[:1] + "\u200c" + n[1:] + "\u206f" }),
	"folded letters": func(p string) string {
		return strings.NewReplacer("ss", "ß", "ff", "ﬀ", "s", "ſ", "k", "\u212a").Replace(p)
	},
	"a stream":         each(func(n string) string { return n + "::$INDEX_ALLOCATION" }),
	"a short name":     each(short),
	"something below":  func(p string) string { return p + "/below/x" },
	"below, a capital": func(p string) string { return "Sub/" + strings.ToUpper(p) + "/x" },
}

func each(f func(string) string) func(string) string {
	return func(p string) string {
		names := strings.Split(p, "/")
		for i := range names {
			names[i] = f(names[i])
		}
		return strings.Join(names, "/")
	}
}

// short returns the second short name that Windows makes, if it makes one.
func short(name string) string {
	base, ext := strings.TrimLeft(name, "."), ""
	if i := strings.LastIndex(base, "."); i >= 0 {
		base, ext = base[:i], base[i+1:]
	}
	base = strings.ReplaceAll(base, ".", "")
	if len(base) <= 8 && len(ext) <= 3 && !strings.HasPrefix(name, ".") {
		return name
	}
	out := strings.ToUpper(base[:min(len(base), 6)]) + "~2"
	if ext != "" {
		out += "." + strings.ToUpper(ext[:min(len(ext), 3)])
	}
	return out
}

// protectedPaths returns a path for each pattern of the table in a spelling, the patterns in
// directories of their own.
func protectedPaths(spell func(string) string, apart bool) map[string]workspace.Protection {
	paths := map[string]workspace.Protection{}
	for i, kind := range workspace.Protected {
		for j, pattern := range kind.Patterns {
			p := spell(strings.NewReplacer("*.", "any.", ".*", ".js", "*", "").Replace(pattern))
			if apart {
				p = fmt.Sprintf("d%d-%d/%s", i, j, p)
			}
			paths[p] = kind
		}
	}
	return paths
}

// plant makes files, or links, of these names.
func plant(t *testing.T, dir string, paths map[string]workspace.Protection, link bool) {
	t.Helper()
	for p := range paths {
		at := filepath.Join(dir, filepath.FromSlash(p))
		must.Do(t, os.MkdirAll(filepath.Dir(at), 0o755))
		var err error
		if link {
			err = os.Symlink("elsewhere", at)
		} else {
			err = os.WriteFile(at, []byte("gitdir: ../elsewhere"), 0o644)
		}
		must.Do(t, err)
	}
}

// TestProtectedInEachSpelling plants every path of the table in every spelling, as a file
// and as a link, in a copy of a directory. None is exported, and each is reported.
func TestProtectedInEachSpelling(t *testing.T) {
	for name, spell := range spellings {
		for _, link := range []bool{false, true} {
			b, dir := blob.NewMemory(), t.TempDir()
			write(t, dir, map[string]string{"main.go": "1"})
			paths := protectedPaths(spell, name != "as it is")
			from, to := worked(t, b, dir, func(copied string) {
				plant(t, copied, paths, link)
				write(t, copied, map[string]string{"main.go": "2"})
			})
			plan := must.Get(workspace.NewPlan(t.Context(), b, from, to, nil))(t)
			withheld := map[string]workspace.LeftOut{}
			for _, w := range plan.Withheld {
				withheld[w.Path] = w
			}
			for p, kind := range paths {
				if w := withheld[p]; !w.Refused || w.Never != kind.Never || w.Why == "" {
					t.Errorf("%s, link %v: %q (%s) is withheld as %+v", name, link, p, kind.What, w)
				}
			}
			must.Do(t, plan.Apply(t.Context(), dir))
			for p := range modelOf(t, dir) {
				if _, planted := paths[p]; planted {
					t.Errorf("%s, link %v: %q came out", name, link, p)
				}
			}
			if text, err := os.ReadFile(filepath.Join(dir, "main.go")); err != nil || string(text) != "2" {
				t.Errorf("main.go holds %q, %v", text, err)
			}
		}
	}
}

// TestProtectedPutBack reverts a call's changes to protected paths in the session; its own
// version control stays.
func TestProtectedPutBack(t *testing.T) {
	b, dir := blob.NewMemory(), t.TempDir()
	paths := protectedPaths(spellings["as it is"], true)
	plant(t, dir, paths, false)
	head, back := must.Pair(workspace.TakeAll(b, dir)(t.Context(), blob.Digest{}, workspace.Limits{}, nil))(t)
	left, named := modelOf(t, restore(t, b, head)), map[string]bool{}
	for _, l := range back {
		named[l.Path] = true
	}
	for p, kind := range paths {
		if _, stays := left[p]; stays != kind.Never || named[p] == kind.Never {
			t.Errorf("%q (%s) stays: %v, is named: %v", p, kind.What, stays, named[p])
		}
	}
}

// TestProtectedStaysOut does not import the version control of a user's directory.
func TestProtectedStaysOut(t *testing.T) {
	b, dir := blob.NewMemory(), t.TempDir()
	for _, kind := range workspace.Protected {
		for _, p := range kind.Patterns {
			if kind.Never {
				write(t, dir, map[string]string{"sub/" + p + "/config": "x"})
			}
		}
	}
	write(t, dir, map[string]string{"sub/cvs/resume.md": "1", "sub/hg": "2"})
	in := must.Get(workspace.Import(t.Context(), b, dir, nil))(t)
	want := model{"sub": "dir", "sub/cvs": "dir", "sub/cvs/resume.md": "file false 1", "sub/hg": "file false 2"}
	if diff := cmp.Diff(want, modelOf(t, restore(t, b, in.Head))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestNoLinkIntoVersionControl: a link that the run made would give a program a way into it.
func TestNoLinkIntoVersionControl(t *testing.T) {
	b, dir := blob.NewMemory(), t.TempDir()
	write(t, dir, map[string]string{"a/b": "1"})
	from, to := worked(t, b, dir, func(copied string) {
		for name, target := range map[string]string{"notes": ".git/hooks", "a/config": "../.HG/hgrc", "a/good": "b"} {
			must.Do(t, os.Symlink(target, filepath.Join(copied, name)))
		}
	})
	plan, err := workspace.NewPlan(t.Context(), b, from, to, nil)
	if err != nil || !slices.Equal(plan.Paths, []string{"a/good"}) {
		t.Errorf("carried over: %q, %v", plan.Paths, err)
	}
}

// TestNotProtected: the border. These are the work itself, and keep their way out.
func TestNotProtected(t *testing.T) {
	for _, p := range []string{
		"Makefile", "package.json", "Dockerfile", "conftest.py", "build.rs", "justfile", "src/main.go", "go.mod", "pyproject.toml", "Cargo.toml", ".gitignore", ".gitattributes", ".editorconfig", ".eslintrc.js", ".env.example",
		"hg", "git.go", "cvs/resume.md", "svn~1.md", "readme~1", "docs/agents/index.md", "_layouts/x", ".github/ISSUE_TEMPLATE/bug.md", ".storybook/main.js", "gradlew", "cargo.md",
	} {
		if is := workspace.ProtectedAs(p); is != "" {
			t.Errorf("%s is protected: %s", p, is)
		}
	}
}

// The lines of docs/files.md between which the table stands.
const (
	tableBegin = "<!-- The table of the protected paths: go test ./workspace -run TestPathTable -update -->\n"
	tableEnd   = "<!-- The end of the table. -->\n"
)

// TestPathTable: the table of the document equals that of the code.
func TestPathTable(t *testing.T) {
	const name = "../docs/files.md"
	doc := must.Get(os.ReadFile(name))(t)
	before, rest, ok := strings.Cut(string(doc), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the lines around the table", name)
	}
	var b strings.Builder
	b.WriteString(before + tableBegin + "| kind | `--apply` | why | paths, at any depth, with everything below |\n|---|---|---|---|\n")
	for _, kind := range workspace.Protected {
		does := "asks"
		if kind.Never {
			does = "never"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | `%s` |\n", kind.What, does, kind.Why, strings.Join(kind.Patterns, "`, `"))
	}
	b.WriteString(tableEnd + after)
	if b.String() == string(doc) {
		return
	}
	if !*update {
		t.Errorf("the table of %s is not that of the code: go test ./workspace -run TestPathTable -update", path.Clean(name))
		return
	}
	must.Do(t, os.WriteFile(name, []byte(b.String()), 0o644))
}
