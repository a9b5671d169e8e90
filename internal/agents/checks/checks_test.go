package checks_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/agents/checks"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/tool"
)

func TestBadLists(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                "the file is empty",
		"checks: []":                      "c.yaml:1: checks: want a list",
		"{}":                              "there are no checks",
		"checks: [{}]":                    "c.yaml:1: check: want files and a command",
		"checks: [{files: [\"*.go\"]}]\n": "want files and a command",
		"checks:\n- {files: [\"*.go\"], command: x, timeout: 1h}":             `c.yaml:2: timeout: "1h": want a time up to 5m0s`,
		"checks:\n- {files: [\"*.go\"], command: x, timeout: -1s}":            "want a time",
		"checks:\n- {files: \"*.go\", command: x}":                            "files: want a list",
		"checks:\n- {path: [\"*.go\"], command: x}":                           `unknown field "path"`,
		"checks:" + strings.Repeat("\n- {files: [\"*.go\"], command: x}", 21): "want a list of 1 to 20",
	} {
		if _, err := checks.Parse("c.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
	page := string(must.Get(os.ReadFile("../../../docs/tools.md"))(t))
	_, rest, _ := strings.Cut(page, "```yaml\n")
	example, _, found := strings.Cut(rest, "```")
	if _, err := checks.Parse("docs/tools.md", []byte(example)); err != nil || !found {
		t.Errorf("the example of the document: %v", err)
	}
	if l, err := checks.Read(""); l != nil || err != nil {
		t.Errorf("no file: %v, %v", l, err)
	}
}

// edits is a tool of that name that changes nothing.
func edits(name string, result tool.Result) tool.Tool { return edit{name, result} }

type edit struct {
	name   string
	result tool.Result
}

func (e edit) Spec() tool.Spec { return tool.Spec{Name: e.name} }

func (e edit) Call(context.Context, tool.Call) (tool.Result, error) { return e.result, nil }

// commands is a sandbox that answers each command with its arguments.
type commands struct {
	sandbox.Sandbox
	exit sandbox.Exit
	ran  []string
}

func (c *commands) Info() sandbox.Info { return sandbox.Info{Dir: "/workspace"} }

func (c *commands) Exec(_ context.Context, cmd sandbox.Cmd) (sandbox.Exit, error) {
	c.ran = append(c.ran, strings.Join(cmd.Argv[2:], " "))
	return c.exit, nil
}

// TestChecks: each check runs once after a successful edit, with the changed files that its
// patterns match, and reports an exit code or an output.
func TestChecks(t *testing.T) {
	t.Parallel()
	list := must.Get(checks.Parse("c.yaml", []byte("checks:\n- {files: [\"*.go\"], command: vet}\n- {files: [docs/], command: spell}\n- {files: [\"/*.go\", \"!a.go\"], command: top}\n")))(t)
	patch := "*** Begin Patch\n*** Update File: x/b.go\n@@\n*** Add File: -v.go\n*** Delete File: c.go\n*** End Patch"
	ok, said := sandbox.Exit{}, sandbox.Exit{Code: 2, Stdout: sandbox.Output{Head: []byte("b.go:1: no"), Tail: []byte("end"), Total: 9000}, Ended: sandbox.Deadline}
	object := tool.Result{Body: map[string]any{"ok": true}}
	for name, tt := range map[string]struct {
		tool   string
		args   any
		result tool.Result
		exit   sandbox.Exit
		ran    []string
		want   string
	}{
		"one":            {tool.Edit, map[string]string{"path": "/workspace/x/../b.go"}, object, ok, []string{"vet sh ./b.go", "top sh ./b.go"}, `{"ok":true}`},
		"a patch":        {tool.ApplyPatch, map[string]string{"input": patch}, object, ok, []string{"vet sh ./x/b.go ./-v.go", "top sh ./-v.go"}, `{"ok":true}`},
		"a report":       {tool.WriteWorkspaceFile, map[string]string{"path": "a.go"}, object, said, []string{"vet sh ./a.go"}, `{"checks":[{"command":"vet","exit_code":2,"output":"b.go:1: no\n[... 8987 bytes cut ...]\nend","timed_out":true}],"ok":true}`},
		"of a text":      {tool.Edit, map[string]string{"path": "a.go"}, tool.Result{Body: "done"}, sandbox.Exit{Code: 1}, []string{"vet sh ./a.go"}, `{"checks":[{"command":"vet","exit_code":1}],"result":"done"}`},
		"other files":    {tool.Edit, map[string]string{"path": "a.txt"}, object, said, nil, `{"ok":true}`},
		"outside":        {tool.Edit, map[string]string{"path": "../a.go"}, object, said, nil, `{"ok":true}`},
		"a failed edit":  {tool.Edit, map[string]string{"path": "a.go"}, tool.Result{Body: "no", IsError: true}, said, nil, `"no"`},
		"another tool":   {tool.Grep, map[string]string{"path": "a.go"}, object, said, nil, `{"ok":true}`},
		"no path at all": {tool.Edit, 3, object, said, nil, `{"ok":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sb := &commands{exit: tt.exit}
			one := list.Around([]tool.Tool{edits(tt.tool, tt.result)})[0]
			r := must.Get(one.Call(t.Context(), tool.Call{Args: must.Get(json.Marshal(tt.args))(t), Sandbox: func(context.Context) (sandbox.Sandbox, error) { return sb, nil }}))(t)
			if got := string(must.Get(json.Marshal(r.Body))(t)); got != tt.want || !slices.Equal(sb.ran, tt.ran) {
				t.Errorf("%s after %q, want %s after %q", got, sb.ran, tt.want, tt.ran)
			}
		})
	}
}
