package tool

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
)

// TestWriteOverLossyRead: a file that is not UTF-8 is not written whole by a model that saw
// other characters in the place of its bytes. Edits and patches keep them.
func TestWriteOverLossyRead(t *testing.T) {
	t.Parallel()
	const before = "# caf\xe9\nprice = 5\n"
	boxes(t, map[string]string{"f": before, "ok": "caf\u00e9", "utf16": "\xff\xfea\x00"}, func(t *testing.T, dir string, call func(name, args string) Outcome) {
		for _, content := range []string{"# caf\ufffd\nprice = 7\n", "# caf?\nprice = 7\n", "# caf\u00e9\nprice = 7\n", ""} {
			for _, name := range []string{"f", "utf16"} {
				out := call(WriteWorkspaceFile, quote(t, writeArgs{name, content}))
				if out.Kind != NotText || !strings.Contains(string(out.Body), Edit) || !strings.Contains(string(out.Body), ApplyPatch) {
					t.Errorf("%q into %s: %s", content, name, out.Body)
				}
			}
		}
		// The other tools also write no replacement character for a byte.
		for _, c := range [][2]string{
			{Edit, quote(t, editArgs{Path: "f", Old: "price = 5", New: "caf\ufffd = 5"})},
			{ApplyPatch, quote(t, patchArgs{"*** Begin Patch\n*** Update File: f\n@@\n-# caf\ufffd\n+# caf\ufffd!\n*** End Patch"})},
		} {
			if out := call(c[0], c[1]); out.Kind != NotText {
				t.Errorf("%s: %s", c[0], out.Body)
			}
		}
		holds(t, dir, map[string]string{"f": before, "ok": "caf\u00e9", "utf16": "\xff\xfea\x00"})
		// A context line matches as shown to the model, and keeps its bytes.
		if out := call(ApplyPatch, quote(t, patchArgs{"*** Begin Patch\n*** Update File: f\n@@\n # caf\ufffd\n-price = 5\n+price = 7\n*** End Patch"})); out.IsError {
			t.Errorf("%s", out.Body)
		}
		// The remedy: it is deleted, and written anew.
		for _, c := range [][2]string{
			{ApplyPatch, quote(t, patchArgs{"*** Begin Patch\n*** Delete File: utf16\n*** End Patch"})},
			{WriteWorkspaceFile, quote(t, writeArgs{"utf16", "a"})},
			{WriteWorkspaceFile, quote(t, writeArgs{"ok", "\ufffd"})},
		} {
			if out := call(c[0], c[1]); out.IsError {
				t.Errorf("%s: %s", c[0], out.Body)
			}
		}
		holds(t, dir, map[string]string{"f": "# caf\xe9\nprice = 7\n", "ok": "\ufffd", "utf16": "a"})
	})
}

// TestAbsoluteNames: names that commands print lead to the files of the workspace; others
// outside do not.
func TestAbsoluteNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"a.txt": "x\n", "sub/b.go": "x\n"} {
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	box := must.Get(local.New(nil).Open(t.Context(), sandbox.Spec{Dir: dir, MinIsolation: sandbox.IsolationProcess}))(t)
	defer func() { must.Report(t, box.Close()) }()
	tb, at := table(t, Builtins()...), box.Info().Dir
	call := func(name string, args any) Outcome {
		return tb.Call(t.Context(), name, quote(t, args), Call{ID: "c", Sandbox: func(context.Context) (sandbox.Sandbox, error) { return box, nil }})
	}
	patch := func(name string) patchArgs {
		return patchArgs{"*** Begin Patch\n*** Update File: " + name + "\n@@\n-y\n+z\n*** End Patch"}
	}
	for _, tt := range []struct {
		tool string
		args any
		want string // part of the body
	}{
		{ReadWorkspaceFile, readArgs{Path: at + "/a.txt"}, `{"data":"x\n"}`},
		{ReadWorkspaceFile, readArgs{Path: at + "//a.txt"}, `{"data":"x\n"}`},
		{Grep, grepArgs{Pattern: "x", Path: at}, `"text":"a.txt:1:x\nsub/b.go:1:x\n"`},
		{Grep, grepArgs{Pattern: "x", Path: at + "/sub/", Glob: "*.go"}, `"text":"sub/b.go:1:x\n"`},
		{Glob, globArgs{Pattern: at + "/**/*.go"}, `{"files":["sub/b.go"]}`},
		{Glob, globArgs{Pattern: "*.go", Path: at + "/sub"}, `{"files":["sub/b.go"]}`},
		{ListWorkspaceFiles, listArgs{at}, `"path":"a.txt"`},
		{WorkspacePathExists, existsArgs{at + "/sub"}, `{"ok":true}`},
		{Edit, editArgs{Path: at + "/a.txt", Old: "x", New: "y"}, `"replaced":1`},
		{ApplyPatch, patch(at + "/a.txt"), `"path":"a.txt"`},
		{WriteWorkspaceFile, writeArgs{at + "/new/c.txt", "c"}, `{"bytes_written":1}`},
		{RunShellCommand, shellArgs{Cmd: "cat b.go", Cwd: at + "/sub"}, `"stdout":"x\n"`},
		{ReadWorkspaceFile, readArgs{Path: at + "/../a.txt"}, `path_refused`},
		{ReadWorkspaceFile, readArgs{Path: at + "x/a.txt"}, `path_refused`},
		{ReadWorkspaceFile, readArgs{Path: "/etc/passwd"}, `path_refused`},
		{ApplyPatch, patch("/etc/passwd"), `path_refused`},
	} {
		if out := call(tt.tool, tt.args); !strings.Contains(string(out.Body), tt.want) {
			t.Errorf("%s %s: %s, want %s", tt.tool, quote(t, tt.args), out.Body, tt.want)
		}
	}
	holds(t, dir, map[string]string{"a.txt": "z\n", "sub/b.go": "x\n", "new/c.txt": "c"})
}

// TestPatchWrapped applies a patch inside the lines that models put around it, and rejects
// any other text around it.
func TestPatchWrapped(t *testing.T) {
	t.Parallel()
	const patch = "*** Begin Patch\n*** Update File: f\n@@\n-a\n+b\n*** End Patch"
	for text, ok := range map[string]bool{
		"apply_patch <<'EOF'\n" + patch + "\nEOF":                               true,
		"apply_patch << \"PATCH\"\n" + patch + "\nPATCH\n":                      true,
		"<<EOF\n" + patch + "\nEOF":                                             true,
		"```\n" + patch + "\n```":                                               true,
		"```diff\r\n" + strings.ReplaceAll(patch, "\n", "\r\n") + "\r\n```\r\n": true,
		"~~~patch\n\n" + patch + "\n\n~~~\n":                                    true,
		"```bash\napply_patch <<'EOF'\n" + patch + "\nEOF\n```":                 true,
		"  \n" + patch + " \n":                                                  true,
		"cd sub && apply_patch <<'EOF'\n" + patch + "\nEOF":                     false,
		"rm -rf x\n" + patch:                                                    false,
		patch + "\nrm -rf x":                                                    false,
		"<<EOF\n" + patch + "\nEOT":                                             false,
		"```\n```":                                                              false,
		"":                                                                      false,
	} {
		if all, err := parsePatch("", text); (err == nil) != ok || ok && (len(all) != 1 || all[0].path != "f") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestByteOrderMark: the mark before the first line is no part of it, and stays.
func TestByteOrderMark(t *testing.T) {
	t.Parallel()
	update := func(hunk string) string {
		return quote(t, patchArgs{"*** Begin Patch\n*** Update File: f\n@@\n" + hunk + "\n*** End Patch"})
	}
	for _, tt := range []struct{ tool, args, after string }{
		{ApplyPatch, update("-a\n+A\n b"), "\ufeffA\nb\n"},
		{ApplyPatch, update("-\ufeffa\n+\ufeffA\n b"), "\ufeffA\nb\n"},
		{ApplyPatch, update(" a\n-b\n+B"), "\ufeffa\nB\n"},
		{ApplyPatch, update("+first\n a"), "\ufefffirst\na\nb\n"},
		{Edit, quote(t, editArgs{Path: "f", Old: "\ufeffa\nb", New: "c"}), "\ufeffc\n"},
		{Edit, quote(t, editArgs{Path: "f", Old: "a\nb", New: "\ufeffc"}), "\ufeffc\n"},
		{Grep, `{"pattern":"^a$"}`, "\ufeffa\nb\n"},
	} {
		boxes(t, map[string]string{"f": "\ufeffa\nb\n"}, func(t *testing.T, dir string, call func(name, args string) Outcome) {
			out := call(tt.tool, tt.args)
			if out.IsError || tt.tool == Grep && !strings.Contains(string(out.Body), `"matches":1`) {
				t.Errorf("%s %s: %s", tt.tool, tt.args, out.Body)
			}
			holds(t, dir, map[string]string{"f": tt.after})
		})
	}
}

// TestLongLine reads from the middle of a line, and shows a match there with its place.
func TestLongLine(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\u00e4", 40_000) + "needle" + strings.Repeat("b", 40_000)
	boxes(t, map[string]string{"f": "first\n" + long + "\nlast\n"}, func(t *testing.T, _ string, call func(name, args string) Outcome) {
		for args, want := range map[string]string{
			`{"path":"f","offset":2,"char_offset":40001,"char_limit":7}`:                 `{"data":"needleb"}`,
			`{"path":"f","offset":2,"char_offset":40001,"char_limit":6,"numbered":true}`: `{"data":"     2\tneedle"}`,
			`{"path":"f","offset":2,"char_offset":80004,"limit":2}`:                      `{"data":"bbb\nlast\n"}`,
			`{"path":"f","offset":2,"char_offset":90000,"limit":1}`:                      `{"data":"\n"}`,
			`{"path":"f","char_offset":3}`:                                               "",
			`{"path":"f","char_limit":8,"char_offset":2}`:                                `{"data":"irst\n\u00e4\u00e4\u00e4"}`,
		} {
			got := string(call(ReadWorkspaceFile, args).Body)
			if want == "" {
				if !strings.HasPrefix(got, `{"data":"rst\n`) {
					t.Errorf("%s: %.100s", args, got)
				}
				continue
			}
			if want = strings.ReplaceAll(want, `\u00e4`, "\u00e4"); got != want {
				t.Errorf("%s: %.200s, want %s", args, got, want)
			}
		}
		var body grepBody
		must.Do(t, json.Unmarshal(call(Grep, `{"pattern":"needle"}`).Body, &body))
		if !strings.Contains(body.Text, "needle") || len(body.Text) > 2*maxShownLine || !strings.HasPrefix(body.Text, "f:2:[... 399") {
			t.Errorf("%s", body.Text)
		}
		for pattern, want := range map[string]string{"^\u00e4": "f:2:\u00e4", "b$": "f:2:[... 7"} {
			if err := json.Unmarshal(call(Grep, quote(t, grepArgs{Pattern: pattern})).Body, &body); err != nil || !strings.HasPrefix(body.Text, want) {
				t.Errorf("%s: %.100s, %v", pattern, body.Text, err)
			}
		}
	})
	if diff := cmp.Diff("a\ufffd\ufffdb", shown("a\xff\xfeb")); diff != "" {
		t.Error(diff)
	}
}
