package workspace

// Protection is a row of [Protected]: paths of one kind.
type Protection struct {
	What string // the kind, such as "configuration of CI"
	Why  string // who reads the paths, and when
	// Never marks paths that no workspace exchanges with a directory, in either direction.
	// Other paths are imported, and a Plan carries a change of one that PlanOptions.Allow
	// names.
	Never bool
	// Patterns match a path at any depth and all paths below it. They are in lower
	// case and match names in any case; * stands for any part of a name.
	Patterns []string
}

// The kinds of paths that other code names.
const (
	gitsOwn   = "git's own directory"
	rathStore = "a store of Rath"
)

// Protected are the paths that outside programs execute, or take configuration from,
// because they lie in a directory: at the next status, prompt, start or opened file,
// without an explicit build. A [Take] reverts a change of such a path, unless it is allowed
// by name or its kind is Never, since commands may use version control of their own.
//
// Files that a user runs knowingly as part of the project are not protected. Makefiles,
// package scripts, tests, settings of compilers and linters, Dockerfiles and programs are
// the work itself, and a reader of the diff sees them.
var Protected = []Protection{
	{What: gitsOwn, Why: "its configuration and hooks name programs for the next git command", Never: true, Patterns: []string{".git"}},
	{What: rathStore, Why: "it holds keys, transcripts and notes", Never: true, Patterns: []string{".rath"}},
	{
		What: "the data of another version control system", Why: "its configuration, hooks and triggers name programs for the next command in the directory, such as a prompt's status", Never: true,
		Patterns: []string{".hg", ".jj", ".sl", ".svn", "_svn", ".bzr", "_darcs", ".pijul", ".fslckout", "_fossil_", ".fossil-settings", "_mtn", ".repo"},
	},
	{
		What: "a git hook or git's configuration", Why: "git, or the program that installs its hooks, runs them with the next commit, checkout or push",
		Patterns: []string{
			".husky", ".huskyrc*", "husky.config.*", ".githooks", ".hooks", ".pre-commit-config.y*ml", ".pre-commit-hooks.y*ml", "prek.toml", "lefthook*.y*ml", "lefthook*.toml", "lefthook*.json*", ".lefthook*", ".overcommit.yml", ".overcommit", ".git-hooks",
			".gitmodules", ".gitconfig", ".config/git", ".lintstagedrc*", "lint-staged.config.*", ".simple-git-hooks*", "simple-git-hooks.*", ".commitlintrc*", "commitlint.config.*", ".czrc", ".cz.*", "captainhook.json", "grumphp.y*ml*", ".rusty-hook.toml", ".cargo-husky", "hk.pkl", ".hk*",
		},
	},
	{
		What: "a hook or the configuration of another version control system", Why: "its next command runs their programs",
		Patterns: []string{
			".hgrc", ".hgsub*", ".jjconfig.toml", ".subversion", ".bazaar", ".darcs", ".p4config*", ".p4enviro*", ".cvsrc", "cvs/root", "cvs/entries*", "cvs/repository", "cvs/tag", "cvs/template", "cvs/notify*", "cvs/base*", "cvs/*.prog", "cvsroot",
			"bitkeeper/triggers", "bitkeeper/etc", ".arcconfig", ".arcrc", ".arclint",
		},
	},
	{
		What: "configuration of CI", Why: "a server runs it when it is pushed, with the secrets of the project",
		Patterns: []string{
			".github/workflows", ".github/actions", ".gitea", ".forgejo", ".gitlab-ci*.y*ml", ".gitlab", ".circleci", ".travis.y*ml", "jenkinsfile*", ".jenkins", "azure-pipelines*.y*ml", ".azure-pipelines", ".azuredevops", ".vsts-ci.y*ml",
			"bitbucket-pipelines.y*ml", ".buildkite", ".drone.*", ".woodpecker*", ".appveyor.y*ml", "appveyor.y*ml", ".semaphore", ".teamcity", ".cirrus.*", "cloudbuild.*", ".tekton", ".ci", ".build.y*ml", ".builds", ".onedev-buildspec.y*ml", "buildspec*.y*ml",
			".zuul.*", "zuul.*", ".prow.y*ml", ".taskcluster.y*ml", ".packit.y*ml", ".copr", "codefresh.y*ml", ".codefresh", "codeship-*.y*ml", "wercker.y*ml", "bitrise.y*ml", "codemagic.y*ml", "screwdriver.y*ml", ".space.kts", ".harness", ".buddy", "buddy.y*ml",
			".scrutinizer.y*ml", ".shippable.y*ml", ".readthedocs.y*ml", "renovate.json*", ".renovaterc*", "netlify.toml", "amplify.y*ml", ".ebextensions", ".platform*",
		},
	},
	{
		What: "configuration of an editor", Why: "the editor reads it when it opens the directory or a file in it, and starts its programs",
		Patterns: []string{
			".vscode", ".idea", ".run", ".vs", "*.suo", ".fleet", ".zed", ".nova", ".lapce", ".devcontainer*", "devcontainer.json", "*.code-workspace", "*.sublime-project", "*.sublime-workspace", ".nvim*", ".exrc", ".vimrc", ".gvimrc", ".lvimrc", ".local.vimrc", "_vimrc", "_gvimrc", "_exrc", ".vim", ".config/nvim",
			".vimspector.json", ".ycm_extra_conf.py", ".dir-locals*.el", ".emacs*", ".spacemacs*", ".doom.d", ".helix", ".config/helix", ".kakrc", ".kateproject*", ".kateconfig", ".theia", ".che", ".gitpod*", ".stackblitzrc", ".replit", ".codesandbox", ".idx", "devfile.y*ml", ".devfile.y*ml",
			".project", ".externaltoolbuilders", "nbproject", ".ropeproject", ".spyproject", ".nanorc", ".joerc",
		},
	},
	{
		What: "configuration of a language server or build server", Why: "the editor starts it with the first file of the language, and it runs its programs and plugins",
		Patterns: []string{".bsp", ".lsp", ".metals", ".merlin", ".luarc.json*", "rust-analyzer.toml", ".rust-analyzer*", ".solargraph.y*ml", "omnisharp.json"},
	},
	{
		What: "configuration of a shell", Why: "a shell, its prompt or the hook of its cd reads it in the directory or in a home",
		Patterns: []string{
			".envrc", ".direnv*", ".config/direnv", ".bash*", "_bash*", ".profile", ".zsh*", ".zprofile", ".zlog*", ".kshrc", ".mkshrc", ".shrc", ".ashrc", ".shinit", ".cshrc", ".tcshrc", ".login*", ".logout", ".xonshrc*", ".elvish", ".config/fish", ".config/nushell", ".config/powershell", ".inputrc",
			".mise*", "mise*.toml", ".config/mise*", ".rtx*", ".tool-versions", ".asdfrc", ".prototools", ".rvmrc", ".versions.conf", ".autoenv*", ".shadowenv.d", ".ondir*", ".smartcd*", "devbox.json", "devenv.*", ".devenv*", ".flox", ".hermit", ".pkgx*", "pkgx.y*ml",
			".ssh", ".gnupg", ".netrc", "_netrc", ".tmux*", ".config/tmux", ".byobu", ".screenrc", ".tmuxinator*", ".zellij*", ".wezterm.lua", ".pam_environment", ".xinitrc", ".xsession*", ".xprofile", ".config/autostart", ".config/systemd", ".config/environment.d", ".local/bin", ".forward", ".procmailrc", ".mailcap", ".lesskey", ".lessfilter", ".wgetrc", ".curlrc", "_curlrc",
		},
	},
	{
		What: "the startup file of an interpreter, debugger or profiler", Why: "the program runs it when it starts in the directory",
		Patterns: []string{
			".rprofile", ".renviron", ".rdata", ".first.r", ".irbrc", "_irbrc", "irb.rc", ".pryrc", ".railsrc", ".byebugrc", ".rdbgrc*", ".ghci*", ".hugs*", ".ocamlinit", ".utoprc", ".iex.exs", ".erlang", ".octaverc", "octaverc", "startup.m", "finish.m", ".scilab", "scilab.ini", ".juliarc.jl", ".julia",
			".pdbrc*", ".ipdb", ".pythonrc*", ".pystartup", ".python_startup*", "sitecustomize.py", "usercustomize.py", ".ipython", "ipython_config.*", "ipython_kernel_config.*", ".jupyter", "jupyter_*config.*", ".bpython", ".ptpython", ".gdbinit*", "gdb.ini", ".gdbearlyinit", "*-gdb.py", "*-gdb.gdb", "*-gdb.scm", ".lldbinit*", ".cgdb", ".radare2rc", ".r2rc",
			".jdbrc", "jdb.ini", ".perldb", "perldb.ini", ".proverc", ".dbxrc", ".guile", ".guilerc", ".racketrc", ".mzschemerc", ".sbclrc", ".clisprc*", ".eclrc", ".abclrc", ".ccl-init.lisp", "ccl-init.lisp", ".swank*", ".csirc", ".gambcini", ".gforthrc", ".swiplrc", ".plrc", ".sicstusrc", ".yaprc", "profiles.clj", ".lein", ".nrepl.edn",
			".maximarc", "maxima-init.*", ".sage", ".gprc", ".gaprc", "gap.ini", ".gnuplot", ".asyrc", ".rootrc", "rootlogon.c", "rootalias.c", "rootlogoff.c", ".latexmkrc", "latexmkrc", "texmf.cnf", "login.sql", ".psqlrc*", ".sqliterc", ".duckdbrc", ".mongorc.js", ".mongoshrc.js", ".my.cnf", ".mylogin.cnf", ".redisclirc", ".cqlshrc", ".ammonite", ".sbtrc", ".sbtopts", ".jvmopts", ".node_repl*", ".noderc", ".valgrindrc", ".perfconfig",
		},
	},
	{
		What: "configuration of a package manager, or the source of a tool", Why: "it names the sources of programs and the programs started with any command of the tool",
		Patterns: []string{
			".npmrc", ".yarnrc*", ".yarn", ".pnpmfile.*", ".pnpmrc", ".corepack.env", ".bunfig.toml", "bunfig.toml", ".cargo", "rust-toolchain*", ".rustup", ".pypirc", "pip.conf", "pip.ini", ".pip", ".config/pip", "uv.toml", "poetry.toml", "pdm.toml", ".pdm.toml", ".pdm-python", ".condarc", "condarc", ".mambarc",
			".mvn", ".m2", ".gradle/init*", ".gradle/gradle.properties", ".gradle/wrapper", "gradle/wrapper*", ".sbt", ".ivy2", ".coursier", ".bazelrc", ".bazeliskrc", ".bazelversion", "tools/bazel*", ".buckconfig*", ".buckversion", ".pants.rc", ".bundle", ".gemrc", ".cpanrc", ".cpanm", ".cpan", ".cabal", ".opamrc", ".hex", ".swiftpm", ".conan*",
			"nuget.config", ".nuget", ".config/nuget", "global.json", ".config/dotnet-tools.json", ".terraformrc", "terraform.rc", ".tofurc", "ansible.cfg", ".ansible*", ".chef", ".kube", ".docker/config.json", ".docker/cli-plugins", ".aws", ".config/gcloud", ".cocoapods", ".composer", ".config/composer",
		},
	},
	{
		What: "instructions for an agent", Why: "the next agent in the directory obeys it, or starts its hooks and servers",
		Patterns: []string{
			"claude.md", "claude.local.md", ".claude*", "agents.md", "agents.override.md", "agents.local.md", "agent.md", ".agent", ".agents", "gemini.md", ".gemini*", ".codex", ".cursor*", ".windsurf*", ".cline*", ".roo*", ".kilocode*", ".aider*", ".continue*", ".copilot*", ".github/copilot*", ".github/instructions",
			".github/prompts", ".github/chatmodes", ".github/agents", ".github/skills", ".github/hooks", ".mcp*", "mcp.json", ".junie", ".kiro", ".amazonq", ".amp", ".ampcode", ".opencode*", "opencode.json*", "opencode.md", ".goose*", ".crush*", "crush.json", "crush.md", ".trae", ".augment*", ".rules", ".rathignore",
			".qwen*", "qwen.md", ".qoder*", ".codebuddy*", ".factory", ".openhands*", ".warp*", "warp.md", ".antigravity*", ".jules", ".serena", ".zencoder", ".tabnine*", ".cody*", ".rovodev", ".plandex*", ".gptme*", "gptme.toml", ".pi", ".swe-agent", ".skills", "skill.md", ".coderabbit.y*ml", ".sweep*",
		},
	},
	{
		What: "a file of the desktop", Why: "the file manager loads its targets when it shows the directory, from other machines too",
		Patterns: []string{"desktop.ini", "autorun.inf", ".directory", "*.lnk", "*.url", "*.scf", "*.library-ms", "*.search-ms"},
	},
}
