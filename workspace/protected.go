package workspace

import (
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/rathcluster/rath/internal/ignore"
	"github.com/rathcluster/rath/internal/manifest"
)

// What a path is that never comes in, and so never goes out.
const (
	gitsOwn   = "git's own directory"
	rathStore = "a store of Rath"
)

// gitHooks holds the programs that git runs; those that end with .sample it does not.
const (
	gitHooks = ".git/hooks"
	gitHook  = "a git hook"
)

// never says what a name stands for that no workspace exchanges with the directory of a
// person, "" for any other name.
func never(name string) string {
	switch {
	case manifest.IsGit(name):
		return gitsOwn
	case manifest.Fold(name) == ".rath":
		return rathStore
	}
	return ""
}

// Protected are the paths that programs outside of the sandbox run, or take for orders: a
// [Take] puts one back that a command changed, and a Plan carries a change of one only if it
// is allowed by name. The patterns are those of gitignore, at any depth, in lower case.
// Git's own directory, which no Plan carries, is not among them; of it a Take puts back the
// hooks.
var Protected = []struct {
	What     string
	Patterns []string
}{
	{"a git hook or git's configuration", []string{".husky", ".githooks", ".hooks", ".pre-commit-config.y*ml", ".pre-commit-hooks.y*ml", "lefthook*.y*ml", ".lefthook*", ".overcommit.yml", ".gitmodules", ".gitconfig", ".lintstagedrc*", ".simple-git-hooks*"}},
	{"configuration of CI", []string{
		".github/workflows", ".github/actions", ".gitea", ".forgejo", ".gitlab-ci*.y*ml", ".gitlab", ".circleci", ".travis.y*ml", "jenkinsfile*", ".jenkins", "azure-pipelines*.y*ml", ".azure-pipelines",
		"bitbucket-pipelines.y*ml", ".buildkite", ".drone.y*ml", ".woodpecker*", ".appveyor.y*ml", "appveyor.y*ml", ".semaphore", ".teamcity", ".cirrus.y*ml", "cloudbuild.y*ml", ".tekton", ".ci",
	}},
	{"configuration of an editor", []string{
		".vscode", ".idea", ".vs", ".fleet", ".zed", ".devcontainer*", "*.code-workspace", "*.sublime-project", ".nvim.lua", ".nvimrc", ".exrc", ".vimrc", ".gvimrc", ".vim", ".dir-locals*.el", ".helix", ".emacs*", ".theia", ".gitpod*",
	}},
	{"configuration of a shell or what it loads", []string{
		".envrc", ".direnv", ".bash*", ".profile", ".zsh*", ".zprofile", ".zlog*", ".kshrc", ".cshrc", ".tcshrc", ".login", ".inputrc", ".config/fish", ".mise*", "mise*.toml", ".tool-versions", ".autoenv*", ".ssh", ".gnupg", ".netrc", ".tmux.conf", ".screenrc",
	}},
	{"configuration of a package manager", []string{".npmrc", ".yarnrc*", ".yarn", ".pnpmfile.cjs", ".cargo", ".pypirc", "pip.conf", ".mvn", ".bazelrc", ".bundle"}},
	{"orders to an agent", []string{
		"claude.md", "claude.local.md", ".claude*", "agents.md", "agents.override.md", "agent.md", ".agent", ".agents", "gemini.md", ".gemini", ".codex", ".cursor*", ".windsurf*", ".cline*", ".roo*", ".aider*", ".continue*", ".github/copilot*", ".github/instructions",
		".github/prompts", ".github/chatmodes", ".github/agents", ".mcp*", "mcp.json", ".junie", ".kiro", ".amazonq", ".opencode*", "opencode.json*", ".goose*", ".crush*", "crush.json", ".trae", ".augment*", ".rules", ".rathignore",
	}},
}

// guard finds the protected paths.
type guard []protectedKind

// protectedKind is a row of Protected: the patterns of one name, which the last name of a
// path decides, and those of several.
type protectedKind struct {
	what        string
	name, names *ignore.Rules
}

func newGuard() (guard, error) {
	var g guard
	for _, p := range Protected {
		k := protectedKind{p.What, new(ignore.Rules), new(ignore.Rules)}
		for _, line := range p.Patterns {
			rules := k.name
			if strings.Contains(line, "/") {
				// A pattern of several names is of any depth too.
				rules, line = k.names, "**/"+line
			}
			if err := rules.Add("", []byte(line)); err != nil {
				return nil, err
			}
		}
		g = append(g, k)
	}
	return g, nil
}

// theGuard is made once: the patterns do not change.
var theGuard = sync.OnceValues(newGuard)

// ProtectedAs says what a path is that is Protected, such as "configuration of CI"; ""
// for any other path.
func ProtectedAs(path string) string { return newFinder().what(path) }

// finder asks the guard about many paths of one tree: what a directory is, it asks once.
type finder struct {
	guard guard
	dirs  map[string]string
}

func newFinder() finder {
	g, err := theGuard()
	if err != nil { // the patterns are those above
		panic(err)
	}
	return finder{g, map[string]string{".": "", "/": ""}}
}

// what says what a path is that is protected, or lies below one that is; "" for any other
// path.
func (f finder) what(p string) string {
	dir := path.Dir(p)
	is, ok := f.dirs[dir]
	if !ok {
		is = f.what(dir)
		f.dirs[dir] = is
	}
	if is != "" {
		return is
	}
	return f.guard.own(p)
}

// own is what for a path whose parents are not protected.
func (g guard) own(p string) string {
	p = foldPath(p)
	name := path.Base(p)
	if dir := path.Dir(p); (dir == gitHooks || strings.HasSuffix(dir, "/"+gitHooks)) && path.Ext(name) != ".sample" {
		return gitHook
	}
	for _, kind := range g {
		if _, out := kind.name.Match(name, false); out {
			return kind.what
		}
		if _, out := kind.names.Match(p, false); out {
			return kind.what
		}
	}
	return ""
}

// foldPath folds each name of a path.
func foldPath(p string) string {
	names := strings.Split(p, "/")
	for i, n := range names {
		names[i] = manifest.Fold(n)
	}
	return strings.Join(names, "/")
}

// whatLink is what for a symbolic link: one in the place of a directory that protected
// paths lie in, such as .github, gives them to another directory.
func (f finder) whatLink(p string) string {
	if is := f.what(p); is != "" {
		return is
	}
	p = "/" + foldPath(p)
	behind := func(pattern string) bool {
		for dir := path.Dir(pattern); dir != "."; dir = path.Dir(dir) {
			if strings.HasSuffix(p, "/"+dir) {
				return true
			}
		}
		return false
	}
	if behind(gitHooks + "/*") {
		return gitHook
	}
	for _, kind := range Protected {
		if slices.ContainsFunc(kind.Patterns, behind) {
			return kind.What
		}
	}
	return ""
}
