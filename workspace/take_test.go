package workspace_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/sandbox/overlay"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/workspace"
)

// shell is the actions of a command in a directory; it keeps the first error.
type shell struct {
	dir string
	err error
}

func (s *shell) do(err error) { s.err = errors.Join(s.err, err) }

func (s *shell) at(name string) string { return filepath.Join(s.dir, filepath.FromSlash(name)) }

func (s *shell) write(name, text string) {
	s.do(os.MkdirAll(filepath.Dir(s.at(name)), 0o755))
	s.do(os.WriteFile(s.at(name), []byte(text), 0o644))
}
func (s *shell) remove(name string)           { s.do(os.RemoveAll(s.at(name))) }
func (s *shell) link(target, name string)     { s.do(os.Symlink(target, s.at(name))) }
func (s *shell) mode(m fs.FileMode, n string) { s.do(os.Chmod(s.at(n), m)) }
func (s *shell) move(from, to string)         { s.do(os.Rename(s.at(from), s.at(to))) }

// TestTakePutsBack reverts a command's changes to protected paths, in the head and in the
// directory; all other changes stay.
func TestTakePutsBack(t *testing.T) {
	const ci = ".github/workflows/ci.yml"
	start := func(s *shell) {
		s.write(ci, "old")
		s.write(".github/dependabot.yml", "old")
		s.write("CLAUDE.md", "old")
		s.write("sub/pkg/.github/workflows/x.yml", "old")
		s.write("main.go", "old")
	}
	kept := []string{ci, ".github/dependabot.yml", "CLAUDE.md", "main.go", "sub/pkg/.github/workflows/x.yml"}
	with := func(more ...string) []string {
		all := slices.Concat(kept, more)
		slices.Sort(all)
		return all
	}
	without := func(less ...string) []string {
		return slices.DeleteFunc(slices.Clone(kept), func(p string) bool { return slices.Contains(less, p) })
	}
	for _, tt := range []struct {
		name  string
		allow []string
		do    func(s *shell)
		back  []string
		files []string // the expected paths; nil are the original ones
		newer []string // that are not as before
		empty []string // directories
	}{
		{name: "nothing", do: func(*shell) {}},
		{name: "another file", do: func(s *shell) { s.write("main.go", "new") }, newer: []string{"main.go"}},
		{
			name: "changed, added and removed", do: func(s *shell) {
				s.write(ci, "new")
				s.write(".github/workflows/more/deep.yml", "new")
				s.remove("CLAUDE.md")
				s.write("main.go", "new")
			},
			back: []string{ci, ".github/workflows/more/deep.yml", "CLAUDE.md"}, newer: []string{"main.go"},
		},
		{name: "made executable", do: func(s *shell) { s.mode(0o755, ci) }, back: []string{ci}},
		{
			name: "by any case, at any depth, and of every kind", do: func(s *shell) {
				s.write("a/b/Agents.MD", "new")
				s.write(".Vscode/tasks.json", "new")
				s.write("x/.envrc", "new")
				s.write("x/y", "new")
				s.do(os.MkdirAll(s.at("c/d"), 0o755))
			},
			back: []string{".Vscode/tasks.json", "a/b/Agents.MD", "x/.envrc"}, files: with("x/y"), newer: []string{"x/y"}, empty: []string{"c/d"},
		},
		{
			name: "the directory above removed", do: func(s *shell) { s.remove(".github") },
			back: []string{ci}, files: without(".github/dependabot.yml"),
		},
		{
			name: "the directory above moved", do: func(s *shell) { s.move(".github", "gh") },
			back: []string{ci}, files: append(without(".github/dependabot.yml"), "gh/dependabot.yml", "gh/workflows/ci.yml"),
		},
		{
			name: "a tree removed", do: func(s *shell) { s.remove("sub") },
			back: []string{"sub/pkg/.github/workflows/x.yml"},
		},
		{
			name: "made a link out", do: func(s *shell) {
				s.remove(".github/workflows")
				s.link("/etc", ".github/workflows")
			},
			back: []string{".github/workflows", ci},
		},
		{
			name: "the directory above made a link", do: func(s *shell) {
				s.move(".github", "gh")
				s.write("gh/workflows/ci.yml", "evil")
				s.link("gh", ".github")
			},
			back: []string{".github", ci}, files: append(without(".github/dependabot.yml"), "gh/dependabot.yml", "gh/workflows/ci.yml"),
			newer: []string{"gh/workflows/ci.yml"},
		},
		{
			name: "a link that protected paths would lie behind", do: func(s *shell) {
				s.write("hidden/fish/config.fish", "new")
				s.link("hidden", ".config")
			},
			back: []string{".config"}, files: with("hidden/fish/config.fish"), newer: []string{"hidden/fish/config.fish"},
		},
		{
			name: "a file made a directory", do: func(s *shell) {
				s.remove("CLAUDE.md")
				s.write("CLAUDE.md/x/y", "new")
			},
			back: []string{"CLAUDE.md/x/y"},
		},
		{
			name: "a directory made a file", do: func(s *shell) {
				s.remove(".github")
				s.write(".github", "new")
			},
			back: []string{ci}, files: without(".github/dependabot.yml"),
		},
		{
			name: "directories without permissions", do: func(s *shell) {
				s.write(ci, "new")
				s.write(".github/workflows/more.yml", "new")
				s.mode(0, ci)
				s.mode(0, ".github/workflows")
				s.mode(0, ".github")
				s.mode(0, ".")
			},
			back: []string{ci, ".github/workflows/more.yml"},
		},
		{
			name: "hooks of a repository that the command made, but for samples", do: func(s *shell) {
				s.write("r/.git/hooks/pre-commit", "new")
				s.write("r/.git/hooks/pre-commit.sample", "new")
				s.write("r/.git/config", "new")
			},
			back: []string{"r/.git/hooks/pre-commit"}, files: with("r/.git/config", "r/.git/hooks/pre-commit.sample"),
			newer: []string{"r/.git/config", "r/.git/hooks/pre-commit.sample"},
		},
		{
			name: "a file that is allowed", allow: []string{ci}, do: func(s *shell) {
				s.write(ci, "new")
				s.write(".github/workflows/more.yml", "new")
			},
			back: []string{".github/workflows/more.yml"}, newer: []string{ci},
		},
		{
			name: "a directory that is allowed", allow: []string{".vscode/", ".github"}, do: func(s *shell) {
				s.remove(ci)
				s.write(".vscode/a/b.json", "new")
			},
			files: append(without(ci), ".vscode/a/b.json"), newer: []string{".vscode/a/b.json"}, empty: []string{".github/workflows"},
		},
		{
			name: "a file that is allowed in a new directory", allow: []string{".vscode/a/b.json"}, do: func(s *shell) {
				s.write(".vscode/a/b.json", "new")
				s.write(".vscode/a/c.json", "new")
			},
			back: []string{".vscode/a/c.json"}, files: with(".vscode/a/b.json"), newer: []string{".vscode/a/b.json"},
		},
		{
			name: "a file that is allowed below one that is not", allow: []string{"CLAUDE.md/x"}, do: func(s *shell) {
				s.remove("CLAUDE.md")
				s.write("CLAUDE.md/x", "new")
			},
			back: []string{"CLAUDE.md"},
		},
	} {
		for _, way := range []string{"", ", reading all", ", of a shared checkout"} {
			t.Run(tt.name+way, func(t *testing.T) {
				b := blob.NewMemory()
				from := &shell{dir: t.TempDir()}
				start(from)
				base := snapshot(t, b, from.dir, blob.Digest{})
				s := &shell{dir: filepath.Join(t.TempDir(), "w")}
				var take workspace.Take
				var err error
				switch way {
				case "":
					take, err = workspace.Checkout(t.Context(), b, base, s.dir)
				case ", reading all":
					err = workspace.Restore(t.Context(), b, base, s.dir)
					take = workspace.TakeAll(b, s.dir)
				default:
					take = shared(t, b, base, s.dir)
				}
				tt.do(s)
				must.Do(t, errors.Join(err, from.err, s.err))
				head, left, err := take(t.Context(), base, workspace.Limits{}, tt.allow)
				must.Do(t, err)
				var back []string
				for _, w := range left {
					if w.Why == "" {
						t.Errorf("%s is put back and not said why", w.Path)
					}
					back = append(back, w.Path)
				}
				slices.Sort(back)
				slices.Sort(tt.back)
				if !slices.Equal(back, tt.back) {
					t.Errorf("put back %q, want %q", back, tt.back)
				}
				// The directory matches the head, and a second Take finds no change.
				if again := snapshot(t, b, s.dir, head); again != head {
					t.Errorf("the directory holds %s, the head is %s", again.Short(), head.Short())
				}
				if again, left, err := take(t.Context(), head, workspace.Limits{}, tt.allow); again != head || len(left) > 0 || err != nil {
					t.Errorf("a second snapshot is %s and puts back %v: %v", again.Short(), left, err)
				}
				checkFiles(t, s.dir, cmpOr(tt.files, kept), tt.newer, tt.empty)
			})
		}
	}
}

// shared makes dir share a checkout of a head, or skips the test if mounting is unsupported.
func shared(t *testing.T, b blob.Store, head blob.Digest, dir string) workspace.Take {
	t.Helper()
	lower, changes := filepath.Join(filepath.Dir(dir), "lower"), filepath.Join(filepath.Dir(dir), "changes")
	take, err := workspace.CheckoutShared(t.Context(), b, head, lower)
	if err == nil {
		err = errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(changes, 0o700))
	}
	if err == nil {
		err = overlay.Mount(lower, changes, dir)
	}
	if errors.Is(err, overlay.ErrUnsupported) && os.Geteuid() != 0 {
		t.Skip(err)
	}
	must.Do(t, err)
	t.Cleanup(func() { must.Report(t, overlay.Unmount(dir)) })
	return take(dir)
}

func cmpOr(a, b []string) []string {
	if a != nil {
		return a
	}
	return b
}

// checkFiles compares the files of a directory: all contain "old" except for the newer
// ones. Some directories are empty.
func checkFiles(t *testing.T, dir string, want, newer, empty []string) {
	t.Helper()
	want = slices.Clone(want)
	slices.Sort(want)
	var got []string
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if e.IsDir() {
			names, err := os.ReadDir(p)
			if err == nil && (len(names) == 0) != slices.Contains(empty, rel) {
				t.Errorf("%s holds %v", rel, names)
			}
			return err
		}
		got = append(got, rel)
		data, err := os.ReadFile(p)
		if old := string(data) == "old"; old == slices.Contains(newer, rel) {
			t.Errorf("%s says %q", rel, data)
		}
		if fi, _ := e.Info(); fi.Mode()&0o444 != 0o444 {
			t.Errorf("%s has the mode %v", rel, fi.Mode())
		}
		return err
	})
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("there are %s (%v), want %s", strings.Join(got, " "), err, strings.Join(want, " "))
	}
}
