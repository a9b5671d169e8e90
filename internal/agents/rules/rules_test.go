package rules_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/agents/rules"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/tool"
)

var update = flag.Bool("update", false, "rewrite the expected output")

func command(cmd string) *rules.Call {
	args, _ := json.Marshal(map[string]string{"cmd": cmd})
	return &rules.Call{Tenant: "default", Workflow: "agent", Agent: "agent", Tool: tool.RunShellCommand, Args: args, Dir: "/workspace"}
}

// TestDefaultCommands: the decisions of the default rules about the command lines of
// testdata/commands.txt, attacks among them, each with its reason.
func TestDefaultCommands(t *testing.T) {
	const file = "testdata/commands.txt"
	want := must.Get(os.ReadFile(file))(t)
	var got bytes.Buffer
	for text := range strings.Lines(string(want)) {
		if strings.HasPrefix(text, "#") || strings.TrimSpace(text) == "" {
			got.WriteString(text)
			continue
		}
		_, quoted, _ := strings.Cut(text, "\t")
		quoted, _, _ = strings.Cut(quoted, "\t")
		var cmd string
		must.Do(t, json.Unmarshal([]byte(quoted), &cmd))
		d := rules.Default().Decide(command(cmd))
		fmt.Fprintf(&got, "%s\t%s\t%s\n", d.Verdict, quoted, d.Reason)
	}
	if *update {
		must.Do(t, os.WriteFile(file, got.Bytes(), 0o644))
	} else if got.String() != string(want) {
		t.Errorf("the decisions differ from %s; rewrite it with -update:\n%s", file, got.String())
	}
}

// TestStrictestDecides: refuse comes before ask and ask before allow, in any order of the
// rules, and a part that cannot be read is asked about.
func TestStrictestDecides(t *testing.T) {
	l := must.Get(rules.Parse("rules.yaml", []byte(`
otherwise: allow
rules:
  - {verdict: allow, tool: run_shell_command}
  - {verdict: refuse, tool: run_shell_command, command: ["rm -rf *", "git push *"], reason: push from your own machine}
  - {verdict: ask, command: ["curl *"]}
  - {verdict: refuse, path: [secrets/, "**/*.pem"]}
  - {verdict: refuse, host: ["*.internal", metadata.example]}
  - {verdict: ask, tool: "pay__*", amount: {arg: order.total, bound: 100}}
  - {verdict: refuse, tool: "pay__*", amount: {arg: order.total, bound: 10000}}
  - {verdict: refuse, tool: "mail__send", args: {to: "*@example.org"}}
`)))(t)
	call := func(name, args string) *rules.Call {
		return &rules.Call{Tool: name, Args: []byte(args), Dir: "/workspace", Link: func(name string) (string, bool) {
			to, ok := map[string]string{"a/link": "../b", "b": "secrets", "loop": "loop", "out": "/etc"}[name]
			return to, ok
		}}
	}
	for _, c := range []struct {
		call *rules.Call
		want rules.Verdict
	}{
		{command("ls"), rules.Allow},
		{command("git status; rm -rf x"), rules.Refuse},
		{command("/bin/rm -rf x"), rules.Refuse},
		{command("(cd a && rm -rf x)"), rules.Refuse},
		{command("echo $(rm -rf x)"), rules.Refuse},
		{command("$(echo rm) -rf x"), rules.Ask},
		{command("r\\m -rf x"), rules.Refuse},
		{command("ls 'unclosed"), rules.Ask},
		{command("curl -s example.com"), rules.Ask},
		{command("curl example.com && git push"), rules.Refuse},
		{command("cat secrets/key"), rules.Refuse},
		{command("cat ./a/../secrets/key"), rules.Refuse},
		{command("cat /workspace/secrets/key"), rules.Refuse},
		{command("cat /elsewhere/secrets/key"), rules.Refuse},
		{command("cat a/link/key"), rules.Ask}, // set below
		{command("cat --file=secrets/key"), rules.Refuse},
		{command("cat $x"), rules.Ask},
		{command("wget http://db.internal/x"), rules.Refuse},
		{command("wget http://db.example/x"), rules.Allow},
		{call("read_workspace_file", `{"path":"a/../secrets/x"}`), rules.Refuse},
		{call("read_workspace_file", `{"path":"a/link/x"}`), rules.Refuse},
		{call("read_workspace_file", `{"path":"docs/x"}`), rules.Allow},
		{call("read_workspace_file", `{"path":"loop/secrets/x"}`), rules.Refuse},
		{call("read_workspace_file", `{"path":"out/passwd"}`), rules.Allow},
		{call("apply_patch", `{"input":"*** Begin Patch\n*** Delete File: keys/a.pem\n*** End Patch"}`), rules.Refuse},
		{call("run_code", `{"code":"open('secrets/x')"}`), rules.Ask},
		{call("fetch", `{"url":"https://Metadata.Example:8080/x"}`), rules.Refuse},
		{call("fetch", `{"url":"https://example.com"}`), rules.Allow},
		{call("pay__charge", `{"order":{"total":99.5}}`), rules.Allow},
		{call("pay__charge", `{"order":{"total":101}}`), rules.Ask},
		{call("pay__charge", `{"order":{"total":10001}}`), rules.Refuse},
		{call("pay__charge", `{"order":{"total":"1"}}`), rules.Ask},
		{call("pay__charge", `{"order":{"total":1e999}}`), rules.Ask},
		{call("pay__charge", `{}`), rules.Ask},
		{call("pay__charge", `not JSON`), rules.Ask},
		{call("mail__send", `{"to":"eve@example.org"}`), rules.Refuse},
		{call("mail__send", `{"to":["eve@example.org"]}`), rules.Ask},
		{call("mail__send", `{"to":"eve@example.com"}`), rules.Allow},
	} {
		if strings.Contains(string(c.call.Args), "a/link/key") {
			c.call.Link, c.want = call("", "").Link, rules.Refuse
		}
		if d := l.Decide(c.call); d.Verdict != c.want {
			t.Errorf("%s %s: %s (%s), want %s", c.call.Tool, c.call.Args, d.Verdict, d.Reason, c.want)
		}
	}
}

// TestAllowsWholeCalls: a rule that allows a part of a call does not allow the call.
func TestAllowsWholeCalls(t *testing.T) {
	l := must.Get(rules.Parse("rules.yaml", []byte(`
rules:
  - {verdict: allow, command: ["git add *", "go test ./...", "timeout 60 go test *", "cp src/* dst", "vim *"]}
  - {verdict: allow, command: ["git commit -m *"], agent: "re*"}
  - {verdict: allow, tool: [edit, apply_patch], path: [docs/, "*.md"]}
  - {verdict: allow, tool: fetch, host: [example.com]}
  - {verdict: allow, tool: pay, amount: {arg: n, bound: 10}}
  - {verdict: allow, tool: set, args: {mode: "dry*"}}
`)))(t)
	for _, c := range []struct {
		tool, args string
		want       rules.Verdict
	}{
		{tool.RunShellCommand, `{"cmd":"git add a && go test ./..."}`, rules.Allow},
		{tool.RunShellCommand, `{"cmd":"go test ./... -v"}`, rules.Ask},
		{tool.RunShellCommand, `{"cmd":"timeout 60 go test ./a"}`, rules.Allow},
		{tool.RunShellCommand, `{"cmd":"timeout 60 go test -exec ./x ./a"}`, rules.Ask},
		{tool.RunShellCommand, `{"cmd":"timeout 61 go test ./a"}`, rules.Ask},
		{tool.RunShellCommand, `{"cmd":"vim a"}`, rules.Allow},
		{tool.RunShellCommand, `{"cmd":"vim +'!rm a' a"}`, rules.Ask},
		{tool.RunShellCommand, `{"cmd":"cp src/a dst"}`, rules.Allow},
		{tool.RunShellCommand, `{"cmd":"cp src/a src/b dst"}`, rules.Ask},
		{tool.RunShellCommand, `{"cmd":"git add a; git commit -m x"}`, rules.Ask},
		{tool.Edit, `{"path":"docs/a/b.go"}`, rules.Allow},
		{tool.Edit, `{"path":"docs/../a.go"}`, rules.Ask},
		{tool.Edit, `{"path":"/etc/docs/a"}`, rules.Ask},
		{tool.Edit, `{"path":"README.md"}`, rules.Allow},
		{tool.Edit, `{}`, rules.Ask},
		{tool.ApplyPatch, `{"input":"*** Update File: docs/a\n*** Add File: b.md"}`, rules.Allow},
		{tool.ApplyPatch, `{"input":"*** Update File: docs/a\n*** Move to: c.go"}`, rules.Ask},
		{tool.Fetch, `{"url":"https://example.com/x"}`, rules.Allow},
		{tool.Fetch, `{"url":"https://example.com.evil.org/x"}`, rules.Ask},
		{tool.Fetch, `{"url":"https://example.com@evil.org/x"}`, rules.Ask},
		{"pay", `{"n":10}`, rules.Allow},
		{"pay", `{"n":-1}`, rules.Ask},
		{"pay", `{"n":11}`, rules.Ask},
		{"set", `{"mode":"dry run"}`, rules.Allow},
		{"set", `{}`, rules.Ask},
		{"set", `{"mode":["dry"]}`, rules.Ask},
	} {
		d := l.Decide(&rules.Call{Tool: c.tool, Agent: "other", Args: []byte(c.args), Dir: "/workspace"})
		if d.Verdict != c.want {
			t.Errorf("%s %s: %s (%s), want %s", c.tool, c.args, d.Verdict, d.Reason, c.want)
		}
	}
}

// TestBadLists: each error names its line and a remedy.
func TestBadLists(t *testing.T) {
	for text, want := range map[string]string{
		"rules: [{tool: edit}]":                                   "want a verdict",
		"rules: [{verdict: maybe}]":                               "want allow, ask or refuse",
		"rules: [{verdict: ask, cmd: x}]":                         `unknown field "cmd"`,
		"rules: [{verdict: allow, command: ['sudo *']}]":          "sudo runs any program that follows",
		"rules: [{verdict: allow, command: ['sh -c *']}]":         "sh runs any program that follows",
		"rules: [{verdict: allow, command: ['env X=1 *']}]":       "env runs any program that follows",
		"rules: [{verdict: allow, command: ['*']}]":               "want a program",
		"rules: [{verdict: allow, command: ['g* status']}]":       "names the program",
		"rules: [{verdict: ask, command: ['a | b']}]":             "without quotes",
		"rules: [{verdict: ask, path: [/etc]}]":                   "a path in the workspace",
		"rules: [{verdict: ask, path: ['../x']}]":                 "a path in the workspace",
		"rules: [{verdict: ask, host: ['https://a']}]":            "want a name such as",
		"rules: [{verdict: ask, tool: ['[']}]":                    "is no pattern",
		"rules: [{verdict: ask, tool: []}]":                       "an empty list",
		"rules: [{verdict: ask, amount: {bound: 1}}]":             "name the argument",
		"rules: [{verdict: ask, amount: {arg: a, bound: -1}}]":    "want a number",
		"rules: [{verdict: ask, amount: {arg: a, bound: NaN}}]":   "want a number",
		"otherwise: no\nrules: []":                                "otherwise",
		"rules: 1":                                                "want a list",
		"rules:\n" + strings.Repeat("  - {verdict: ask}\n", 1001): "at most 1000",
	} {
		_, err := rules.Parse("rules.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "rules.yaml:") {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

// BenchmarkThousandRules fails if a list of 1,000 rules takes longer than 100 µs for a call.
func BenchmarkThousandRules(b *testing.B) {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "  - {verdict: %s, command: [\"tool%d sub *\", \"other%d *\"]}\n", []string{"allow", "ask", "refuse"}[i%3], i, i)
	}
	l := must.Get(rules.Parse("rules.yaml", []byte(text.String())))(b)
	c := command("git status --short && go test ./... | tail -n 20")
	for b.Loop() {
		l.Decide(c)
	}
	if per := b.Elapsed() / time.Duration(b.N); per > 100*time.Microsecond {
		b.Errorf("a call takes %v, the bar is 100 µs", per)
	}
}

// FuzzDecide: any command line has a decision, and a line with a part that the default rules
// do not read is not allowed.
func FuzzDecide(f *testing.F) {
	for _, cmd := range []string{"git status", "a; b", "x=1 ls", "echo $(ls)", "cat <<E\n$x\nE", "'", "ls *.go", "{a,b}", "! ls && (pwd)", "\x00", "a\\\nb"} {
		f.Add(cmd)
	}
	f.Fuzz(func(t *testing.T, cmd string) {
		d := rules.Default().Decide(command(cmd))
		if d.Reason == "" || d.Verdict == rules.Allow && strings.ContainsAny(strings.NewReplacer(`\`, "", "2>&1", "").Replace(cmd), "`\x00") && !strings.Contains(cmd, "'") && !strings.Contains(cmd, `\`) && !strings.Contains(cmd, "#") {
			t.Errorf("%q: %s, %q", cmd, d.Verdict, d.Reason)
		}
	})
}
