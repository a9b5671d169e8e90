package tool

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/sandbox"
)

var searched = map[string]string{
	".gitignore":         "*.log\n/build/\n",
	".git/config":        "needle\n",
	"a.go":               "package a\n\n// Needle is here\nfunc f() {\n\tneedle()\n}\n",
	"b.log":              "needle\n",
	"bin":                "needle\x00\n",
	"build/out.go":       "needle\n",
	"crlf.txt":           "one\r\nneedle\r\n",
	"latin":              "needle \xff\n",
	"src/.gitignore":     "gen.go\n",
	"src/a.ts":           "x\nneedle\n",
	"src/b.tsx":          "needle",
	"src/deep/gen.go":    "needle\n",
	"src/deep/main.go":   "needle\nneedle\n",
	"vendor/x/readme.md": "nothing\n",
}

func TestGrep(t *testing.T) {
	t.Parallel()
	failed := func(kind, message, detail string) string {
		return fmt.Sprintf(`{"ok":false,"error_kind":%q,"message":%q,"detail":%q}`, kind, message, detail)
	}
	boxes(t, searched, func(t *testing.T, dir string, call func(name, args string) Outcome) {
		for _, tt := range []struct{ args, want string }{
			{`{"pattern":"needle"}`, `{"text":"a.go:5:\tneedle()\ncrlf.txt:2:needle\nlatin:1:needle ` + "\ufffd" + `\nsrc/a.ts:2:needle\nsrc/b.tsx:1:needle\nsrc/deep/main.go:1:needle\nsrc/deep/main.go:2:needle\n","matches":7,"files":6,"skipped":1}`},
			{`{"pattern":"needle","ignore_case":true,"glob":"*.go"}`, `{"text":"a.go:3:// Needle is here\na.go:5:\tneedle()\nsrc/deep/main.go:1:needle\nsrc/deep/main.go:2:needle\n","matches":4,"files":2}`},
			{`{"pattern":"^needle$","path":"src","glob":"*.{ts,tsx}"}`, `{"text":"src/a.ts:2:needle\nsrc/b.tsx:1:needle\n","matches":2,"files":2}`},
			{`{"pattern":"needle","path":"src","glob":"deep/**"}`, `{"text":"src/deep/main.go:1:needle\nsrc/deep/main.go:2:needle\n","matches":2,"files":1}`},
			{`{"pattern":"needle","files_only":true,"path":"./src/"}`, `{"text":"src/a.ts\nsrc/b.tsx\nsrc/deep/main.go\n","matches":3,"files":3}`},
			{`{"pattern":"(?i)NEEDLE","path":"a.go","context":1}`, `{"text":"a.go-2-\na.go:3:// Needle is here\na.go-4-func f() {\na.go:5:\tneedle()\na.go-6-}\n","matches":2,"files":1}`},
			{`{"pattern":"^(package|\\})","path":"a.go","context":1}`, `{"text":"a.go:1:package a\na.go-2-\n--\na.go-5-\tneedle()\na.go:6:}\n","matches":2,"files":1}`},
			{`{"pattern":"needle","limit":2}`, `{"text":"a.go:5:\tneedle()\ncrlf.txt:2:needle\n","matches":3,"files":3,"skipped":1,"truncated":"2 are shown: narrow the search, or raise limit"}`},
			{`{"pattern":"needle","path":"build"}`, `{"text":"build/out.go:1:needle\n","matches":1,"files":1}`},
			{`{"pattern":"nosuch"}`, `{"text":"","matches":0,"files":0,"skipped":1}`},
			{`{"pattern":"needle","path":"bin"}`, failed("not_text", `"bin" is binary (it holds a zero byte): use run_shell_command`, "bin")},
			{`{"pattern":"needle","path":"nosuch"}`, failed("file_not_found", `there is no "nosuch" in the workspace`, "nosuch")},
			{`{"pattern":"needle","path":".."}`, failed("path_refused", `".." is refused: want the name of a regular file or directory, relative to the workspace and inside it`, "..")},
			{`{"pattern":"a(?=b)"}`, failed("invalid_tool_arguments", "pattern: pattern \"a(?=b)\": error parsing regexp: invalid or unsupported Perl syntax: `(?=`; write RE2 (no look-around, no back references), and a backslash before what stands for itself, as in \\( or \\[", "a(?=b)")},
			{`{"pattern":"(a{900}b{900}){1}"}`, failed("invalid_tool_arguments", `pattern: it repeats too much; write RE2 (no look-around, no back references), and a backslash before what stands for itself, as in \( or \[`, "(a{900}b{900}){1}")},
			{`{"pattern":"a","glob":"!a"}`, failed("invalid_tool_arguments", `pattern "!a" begins with !: name what to find, not what to leave out`, "!a")},
		} {
			if diff := cmp.Diff(tt.want, string(call(Grep, tt.args).Body)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.args, diff)
			}
		}
		// Unreadable files are skipped.
		if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err == nil {
			if out := call(Grep, `{"pattern":"package"}`); !strings.Contains(string(out.Body), `"text":"a.go:1:package a\n","matches":1,"files":1,"skipped":2`) {
				t.Errorf("beside a link that leads nowhere: %s", out.Body)
			}
		}
	})
}

func TestGlob(t *testing.T) {
	t.Parallel()
	boxes(t, searched, func(t *testing.T, _ string, call func(name, args string) Outcome) {
		for _, tt := range []struct{ args, want string }{
			{`{"pattern":"*.go"}`, `{"files":["a.go","src/deep/main.go"]}`},
			{`{"pattern":"./*.go"}`, `{"files":["a.go","src/deep/main.go"]}`},
			{`{"pattern":"**/*.{ts,tsx,md}"}`, `{"files":["src/a.ts","src/b.tsx","vendor/x/readme.md"]}`},
			{`{"pattern":"src/*"}`, `{"files":["src/.gitignore","src/a.ts","src/b.tsx"]}`},
			{`{"pattern":"**","path":"src"}`, `{"files":["src/.gitignore","src/a.ts","src/b.tsx","src/deep/main.go"]}`},
			{`{"pattern":"deep/*.go","path":"src"}`, `{"files":["src/deep/main.go"]}`},
			{`{"pattern":"{a"}`, `{"files":[]}`},
			{`{"pattern":"*","path":"a.go"}`, `{"ok":false,"error_kind":"path_refused","message":"\"a.go\" is refused: want the name of a regular file or directory, relative to the workspace and inside it","detail":"a.go"}`},
			{`{"pattern":"*","path":"nosuch"}`, `{"ok":false,"error_kind":"file_not_found","message":"there is no \"nosuch\" in the workspace","detail":"nosuch"}`},
			{`{"pattern":"../*"}`, `{"ok":false,"error_kind":"invalid_tool_arguments","message":"pattern \"../*\" leaves the workspace: want one relative to path","detail":"../*"}`},
			{`{"pattern":"src/"}`, `{"ok":false,"error_kind":"invalid_tool_arguments","message":"pattern \"src/\" ends with a slash: only files are found; add **","detail":"src/"}`},
			{`{"pattern":" "}`, `{"ok":false,"error_kind":"invalid_tool_arguments","message":"pattern \" \" is empty, or has white space around it: want one such as **/*.go","detail":" "}`},
			{`{"pattern":"` + strings.Repeat("{a,b}", 7) + `"}`, `{"ok":false,"error_kind":"invalid_tool_arguments","message":"pattern \"{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}\" stands for more than 64 patterns, or is too long","detail":"{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"}`},
		} {
			if diff := cmp.Diff(tt.want, string(call(Glob, tt.args).Body)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.args, diff)
			}
		}
	})
}

// TestSearchBounds reaches each bound of a search.
func TestSearchBounds(t *testing.T) {
	t.Parallel()
	f := &fake{files: map[string]string{"long": strings.Repeat("x", 5000) + "\n", "much": strings.Repeat("needle in a line of text\n", 2000)}}
	for i := range MaxEntries + 1 {
		f.files[fmt.Sprintf("d/%04d", i)] = "x"
	}
	tb := table(t, Builtins()...)
	for _, tt := range []struct{ name, args, want string }{
		{Grep, `{"pattern":"x+","path":"long"}`, strings.Repeat("x", maxShownLine) + `[... 4700 characters ...]\n"`},
		{Grep, `{"pattern":"needle","path":"much","limit":1000}`, `are shown: narrow the search, or raise limit"}`},
		{Glob, `{"pattern":"*"}`, `"truncated":"500 are shown: narrow the pattern, or look in a part of the directories by path"}`},
	} {
		if out := tb.Call(t.Context(), tt.name, tt.args, Call{Sandbox: f.open}); !strings.Contains(string(out.Body), tt.want) || len(out.Body) > 2*MaxShown {
			t.Errorf("%s: %d bytes, want %s: %.200s", tt.args, len(out.Body), tt.want, out.Body)
		}
	}
	for _, args := range []struct{ name, args string }{{Grep, `{"pattern":"nosuch"}`}, {Glob, `{"pattern":"nosuch"}`}} {
		out := tb.Call(t.Context(), args.name, args.args, Call{Sandbox: func(context.Context) (sandbox.Sandbox, error) { return endless{f}, nil }})
		if !strings.Contains(string(out.Body), "20000 files and directories were looked at") {
			t.Errorf("%s: %.200s", args.name, out.Body)
		}
	}
}

// endless is a sandbox in which each directory has another one.
type endless struct{ *fake }

func (e endless) Files() sandbox.Files { return endlessFiles(e) }

type endlessFiles struct{ *fake }

func (endlessFiles) List(_ context.Context, name string) ([]sandbox.Entry, error) {
	if len(name) > 400 {
		return nil, nil
	}
	list := make([]sandbox.Entry, 100)
	for i := range list {
		base := fmt.Sprintf("%02d", i)
		list[i] = sandbox.Entry{Name: base, Path: path.Join(name, base), Dir: true}
	}
	return list, nil
}

func (endlessFiles) Open(_ context.Context, name string) (io.ReadCloser, error) {
	return nil, fs.ErrNotExist
}

func (endlessFiles) Stat(_ context.Context, name string) (sandbox.Entry, error) {
	return sandbox.Entry{Name: path.Base(name), Path: name, Dir: true}, nil
}
