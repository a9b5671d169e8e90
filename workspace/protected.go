package workspace

import (
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

// Protected are the paths that programs outside of the sandbox run, or take for orders:
// a Plan carries a change of one only if it is allowed by name. The patterns are those of
// gitignore, at any depth, in lower case.
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
type guard []struct {
	what  string
	rules *ignore.Rules
}

func newGuard() (guard, error) {
	var g guard
	for _, p := range Protected {
		// A pattern of several names is of any depth too.
		r := new(ignore.Rules)
		for _, line := range p.Patterns {
			if strings.Contains(line, "/") {
				line = "**/" + line
			}
			if err := r.Add("", []byte(line)); err != nil {
				return nil, err
			}
		}
		g = append(g, struct {
			what  string
			rules *ignore.Rules
		}{p.What, r})
	}
	return g, nil
}

// theGuard is made once: the patterns do not change.
var theGuard = sync.OnceValues(newGuard)

// ProtectedAs says what a path is that is Protected, such as "configuration of CI"; ""
// for any other path.
func ProtectedAs(path string) string {
	g, err := theGuard()
	if err != nil { // the patterns are those above
		panic(err)
	}
	return g.what(path)
}

// what says what a protected path is; "" for any other path.
func (g guard) what(p string) string {
	names := strings.Split(p, "/")
	for i, n := range names {
		names[i] = manifest.Fold(n)
	}
	p = strings.Join(names, "/")
	for _, kind := range g {
		if _, out := kind.rules.Excludes(p, false); out {
			return kind.what
		}
	}
	return ""
}
