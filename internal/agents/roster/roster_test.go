package roster_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/agents/roster"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/workspace"
)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text string
		want roster.Agent
	}{
		"plain": {
			"---\nname: reviewer\ndescription: >\n  Reviews\n  changes.\n---\n\nBe short.\n",
			roster.Agent{Name: "reviewer", Description: "Reviews changes.", Prompt: "Be short."},
		},
		"of a coding assistant": {
			"\ufeff---\r\nname: code-reviewer\r\ndescription: Reviews. Use after edits.\r\ntools: Read, Grep, Bash\r\nmodel: inherit\r\ncolor: red\r\n---\r\nBe short.",
			roster.Agent{Name: "code-reviewer", Description: "Reviews. Use after edits.", Prompt: "Be short.", Tools: []string{"grep", "read_workspace_file", "run_shell_command", "view_image"}},
		},
		"all fields": {
			"---\nname: a1\ndescription: d\ntools: [grep, lookup]\nmcp: github\nmodel: small\nrounds: 3\ntokens: 1000\nusd: 0.5\n---\nx",
			roster.Agent{Name: "a1", Description: "d", Prompt: "x", Tools: []string{"grep", "lookup"}, MCP: []string{"github"}, Model: "small", Rounds: 3, Tokens: 1000, MicroUSD: 500_000},
		},
		"no tools": {"---\nname: a\ndescription: d\ntools: []\n---\nx", roster.Agent{Name: "a", Description: "d", Prompt: "x", None: true}},
	}
	page := string(must.Get(os.ReadFile("../../../docs/agents.md"))(t))
	_, rest, _ := strings.Cut(page, "```markdown\n")
	example, _, _ := strings.Cut(rest, "```")
	if a, err := roster.Parse("docs/agents.md", example); err != nil || a.Name != "reviewer" || len(a.Tools) != 4 {
		t.Errorf("the example of the document: %+v, %v", a, err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.want.File = "f.md"
			if diff := cmp.Diff(tt.want, must.Get(roster.Parse("f.md", tt.text))(t)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// bad are texts of files that cannot be used, with a part of the reason.
var bad = map[string]string{
	"":                                       "does not begin with ---",
	"name: a":                                "does not begin with ---",
	"---\nname: a\n":                         "does not begin with ---",
	"---\nname: a\n---\nx":                   "a description of 0 characters",
	"---\nname: A b\ndescription: d\n---\nx": `the name "A b"`,
	"---\nname: ../a\ndescription: d\n---\nx":                                                         `the name "../a"`,
	"---\nname: workspace__a\ndescription: d\n---\nx":                                                 "the name",
	"---\nname: a\ndescription: d\n---\n \n":                                                          "no text after the front matter",
	"---\nname: a\ndescription: d\nhooks: [x]\n---\nx":                                                "hooks",
	"---\nname: a\ndescription: d\npermissionMode: bypassPermissions\n---\nx":                         "permissionMode",
	"---\nname: a\ndescription: d\ntools: Bash(rm:*)\n---\nx":                                         "operator's rules",
	"---\nname: a\ndescription: d\ntools: Task\n---\nx":                                               "starts no other agents",
	"---\nname: a\ndescription: d\ntools: mcp__github__search\n---\nx":                                "name the server",
	"---\nname: a\ndescription: d\ntools: {a: b}\n---\nx":                                             "tools that cannot be read",
	"---\nname: a\ndescription: d\nrounds: -1\n---\nx":                                                "negative",
	"---\nname: a\ndescription: d\nrounds: many\n---\nx":                                              "cannot be used",
	"---\nname: &x a\ndescription: *x\n---\nx":                                                        "references",
	"---\na: &a [1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nname: c\ndescription: [*b,*b,*b,*b,*b]\n---\nx": "references",
	"---\nname: a\x00\ndescription: d\n---\nx":                                                        "binary",
	"---\nname: a\ndescription: d\n---\n" + strings.Repeat("x", 1<<20):                                "more than 32768 bytes",
	"---\nname: a\ndescription: " + strings.Repeat("x", 9000) + "\n---\nx":                            "front matter of more than",
	"---\nname: a\ndescription: " + strings.Repeat("x", 1025) + "\n---\nx":                            "1025 characters",
	"---\nname: a\ndescription: d\ntools: " + strings.Repeat("x,", 65) + "\n---\nx":                   "at most 64",
}

func TestBadAgents(t *testing.T) {
	t.Parallel()
	for text, want := range bad {
		if a, err := roster.Parse("f.md", text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "f.md") {
			t.Errorf("%.60q: %+v, %v; want %q", text, a, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for text := range bad {
		f.Add(text)
	}
	f.Add("---\nname: a\ndescription: d\ntools: Read\n---\nx")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := roster.Parse("f.md", text)
		if err == nil && (a.Name == "" || a.Description == "" || a.Prompt == "" || strings.Contains(a.Name, "_") || len(a.Tools) > 128) {
			t.Errorf("%q: %+v", text, a)
		}
	})
}

const good = "---\nname: NAME\ndescription: Works.\n---\nWork."

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			must.Do(t, os.Symlink(to, file))
			continue
		}
		must.Do(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "NAME", strings.TrimSuffix(filepath.Base(name), ".md"))), 0o644))
	}
	return dir
}

func TestReadDir(t *testing.T) {
	t.Parallel()
	all := must.Get(roster.ReadDir(write(t, map[string]string{"b.md": good, "a.md": good, "README.md": "# Agents", "notes.txt": "x", "sub/c.md": good})))(t)
	if len(all) != 2 || all[0].Name != "a" || all[1].Name != "b" || all[0].Revision() != all[1].Revision() {
		t.Errorf("%+v", all)
	}
	all[0].Prompt += "!"
	if all[0].Revision() == all[1].Revision() {
		t.Error("another prompt has the same revision")
	}
	for name, files := range map[string]map[string]string{
		"has no file NAME.md": {"a.txt": good},
		"have the same name":  {"a.md": good, "b.md": "---\nname: a\ndescription: d\n---\nx"},
		"no text after":       {"a.md": good, "b.md": "---\nname: b\ndescription: d\n---\n"},
	} {
		if _, err := roster.ReadDir(write(t, files)); !errors.Is(err, roster.ErrAgents) || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
	if all, err := roster.ReadDir(""); err != nil || all != nil {
		t.Errorf("no directory: %v, %v", all, err)
	}
}

func TestOfWorkspace(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		".agents/agents/b.md": good, ".agents/agents/a.md": good, ".claude/agents/c.md": good,
		".claude/agents/a.md": good, ".claude/agents/bad.md": "x", ".claude/agents/link.md": "-> a.md", ".agents/agents/deep/d.md": good, "agents/e.md": good,
	})
	blobs := blob.NewMemory()
	head := must.Get(workspace.Snapshot(t.Context(), blobs, dir, blob.Digest{}, workspace.Limits{}))(t)
	all, told, err := roster.OfWorkspace(t.Context(), blobs, head)
	must.Do(t, err)
	var names []string
	for _, a := range all {
		names = append(names, a.Name+" "+a.File)
	}
	slices.Sort(told)
	want := []string{
		".claude/agents/a.md has the name of another one", ".claude/agents/link.md is a link, which is not followed",
		"agent file .claude/agents/bad.md does not begin with ---, name and description in YAML, and ---",
	}
	if !slices.Equal(names, []string{"a .agents/agents/a.md", "b .agents/agents/b.md", "c .claude/agents/c.md"}) || !slices.Equal(told, want) {
		t.Errorf("%q, left out %q", names, told)
	}
	if text := all[0].Quoted(); !strings.Contains(text, `["Work."]`) || !strings.Contains(text, ".agents/agents/a.md") {
		t.Errorf("quoted: %s", text)
	}
}
