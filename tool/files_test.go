package tool

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/platform/scratch"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/sandbox/scripted"
)

func TestMain(m *testing.M) {
	local.Reexec()
	scratch.InMemory()
	os.Exit(m.Run())
}

// boxes opens a sandbox of each kind that every host has over a directory of its own.
func boxes(t *testing.T, files map[string]string, each func(t *testing.T, dir string, call func(name, args string) Outcome)) {
	t.Helper()
	for name, b := range map[string]sandbox.Backend{"local": local.New(nil), "scripted": scripted.New(nil)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range files {
				full := filepath.Join(dir, filepath.FromSlash(name))
				must.Do(t, os.MkdirAll(filepath.Dir(full), 0o755))
				must.Do(t, os.WriteFile(full, []byte(text), 0o644))
			}
			box := must.Get(b.Open(t.Context(), sandbox.Spec{Dir: dir, MinIsolation: sandbox.IsolationProcess}))(t)
			defer func() { must.Report(t, box.Close()) }()
			tb := table(t, Builtins()...)
			each(t, dir, func(name, args string) Outcome {
				return tb.Call(t.Context(), name, args, Call{ID: "c", Sandbox: func(context.Context) (sandbox.Sandbox, error) { return box, nil }})
			})
		})
	}
}

// holds compares all files below a directory with the expected ones.
func holds(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		if e.Type()&os.ModeSymlink != 0 {
			target, err := os.Readlink(p)
			got[filepath.ToSlash(name)] = "-> " + target
			return err
		}
		data, err := os.ReadFile(p)
		got[filepath.ToSlash(name)] = string(data)
		return err
	})
	must.Do(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func quote(t *testing.T, v any) string {
	t.Helper()
	data := must.Get(json.Marshal(v))(t)
	return string(data)
}

func TestEdit(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, before, args, after, want string }{
		{"once", "a\nb\nc\n", `{"path":"f","old_string":"b","new_string":"B"}`, "a\nB\nc\n", `{"replaced":1,"lines":[2]}`},
		{"without a last newline", "a\nb", `{"path":"f","old_string":"b","new_string":"c"}`, "a\nc", `{"replaced":1,"lines":[2]}`},
		{"removed", "a\nb\n", `{"path":"f","old_string":"b\n","new_string":""}`, "a\n", `{"replaced":1,"lines":[2]}`},
		{"all", "x x\nx", `{"path":"f","old_string":"x","new_string":"y\n","replace_all":true}`, "y\n y\n\ny\n", `{"replaced":3,"lines":[1,2,4]}`},
		{"all of what is there once", "x", `{"path":"f","old_string":"x","new_string":"y","replace_all":true}`, "y", `{"replaced":1,"lines":[1]}`},
		{"CRLF", "a\r\nb\r\n", `{"path":"f","old_string":"a\nb","new_string":"1\n2\n3"}`, "1\r\n2\r\n3\r\n", `{"replaced":1,"lines":[1]}`},
		{"CRLF, one line", "a\r\nb\r\n", `{"path":"f","old_string":"a","new_string":"1\n2"}`, "1\r\n2\r\nb\r\n", `{"replaced":1,"lines":[1]}`},
		{"CRLF as it is", "a\r\nb\r\n", `{"path":"f","old_string":"a\r\nb","new_string":"1\r\n2"}`, "1\r\n2\r\n", `{"replaced":1,"lines":[1]}`},
		{"mixed ends of lines", "a\r\nb\nc\n", `{"path":"f","old_string":"b\nc","new_string":"1\n2"}`, "a\r\n1\n2\n", `{"replaced":1,"lines":[2]}`},
		{"mixed, in the other part", "a\r\nb\r\nc\n", `{"path":"f","old_string":"a\nb","new_string":"1\n2"}`, "1\r\n2\r\nc\n", `{"replaced":1,"lines":[1]}`},
		{"not UTF-8", "a\xffb\n", `{"path":"f","old_string":"b","new_string":"é"}`, "a\xffé\n", `{"replaced":1,"lines":[1]}`},
		{"a byte order mark", "\ufeffa\n", `{"path":"f","old_string":"a","new_string":"b"}`, "\ufeffb\n", `{"replaced":1,"lines":[1]}`},
		{
			"not there", "a\n", `{"path":"f","old_string":"b","new_string":"c"}`, "",
			`{"ok":false,"error_kind":"mismatch","message":"old_string is not in \"f\": read the part of the file again and copy the text as it is, without numbers of lines","detail":"f"}`,
		},
		{
			"there but for white space", "func f() {\n\treturn\n}\n", `{"path":"f","old_string":"func f() {\n    return\n}","new_string":"c"}`, "",
			`{"ok":false,"error_kind":"mismatch","message":"old_string is not in \"f\": lines 1 to 3 differ from it in white space alone; copy them as they are","detail":"f"}`,
		},
		{
			"there twice", "a\nb\na\n", `{"path":"f","old_string":"a","new_string":"c"}`, "",
			`{"ok":false,"error_kind":"mismatch","message":"old_string is 2 times in \"f\", at lines 1, 3: take more of the text around it into it, or set replace_all","detail":"f"}`,
		},
		{
			"there twice with an overlap", "aaa", `{"path":"f","old_string":"aa","new_string":"c"}`, "",
			`{"ok":false,"error_kind":"mismatch","message":"old_string is 2 times in \"f\", at lines 1, 1: take more of the text around it into it, or set replace_all","detail":"f"}`,
		},
		{
			"nothing to replace", "a", `{"path":"f","old_string":"a","new_string":"a"}`, "",
			`{"ok":false,"error_kind":"invalid_tool_arguments","message":"old_string and new_string are the same: there is nothing to replace"}`,
		},
		{
			"binary", "a\x00b", `{"path":"f","old_string":"a","new_string":"b"}`, "",
			`{"ok":false,"error_kind":"not_text","message":"\"f\" is binary (it holds a zero byte) and is not edited: use run_shell_command","detail":"f"}`,
		},
		{
			"too large", strings.Repeat("a", MaxEdited+1), `{"path":"f","old_string":"a","new_string":"b"}`, "",
			`{"ok":false,"error_kind":"too_large","message":"\"f\" has more than 4 MiB: change it with run_shell_command","detail":"f"}`,
		},
		{
			"would be too large", strings.Repeat("a", MaxEdited/2), `{"path":"f","old_string":"a","new_string":"bcd","replace_all":true}`, "",
			`{"ok":false,"error_kind":"too_large","message":"\"f\" would have 6291456 bytes, at most 4194304 are written","detail":"f"}`,
		},
		{
			"missing", "a", `{"path":"g","old_string":"a","new_string":"b"}`, "",
			`{"ok":false,"error_kind":"file_not_found","message":"there is no \"g\" in the workspace","detail":"g"}`,
		},
		{
			"a directory", "a", `{"path":".","old_string":"a","new_string":"b"}`, "",
			`{"ok":false,"error_kind":"path_refused","message":"\".\" is refused: want the name of a regular file or directory, relative to the workspace and inside it","detail":"."}`,
		},
		{
			"outside", "a", `{"path":"../f","old_string":"a","new_string":"b"}`, "",
			`{"ok":false,"error_kind":"path_refused","message":"\"../f\" is refused: want the name of a regular file or directory, relative to the workspace and inside it","detail":"../f"}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			boxes(t, map[string]string{"f": tt.before}, func(t *testing.T, dir string, call func(name, args string) Outcome) {
				out := call(Edit, tt.args)
				if diff := cmp.Diff(tt.want, string(out.Body)); diff != "" {
					t.Errorf("body (-want +got):\n%s", diff)
				}
				after := tt.after
				if out.IsError {
					after = tt.before
				}
				holds(t, dir, map[string]string{"f": after})
			})
		})
	}
}

// TestEditKeepsModes: a script stays executable after an edit, and an edit writes a file
// that is read-only for commands and keeps it read-only.
func TestEditKeepsModes(t *testing.T) {
	t.Parallel()
	boxes(t, map[string]string{"run": "a", "fixed": "a"}, func(t *testing.T, dir string, call func(name, args string) Outcome) {
		modes := map[string]os.FileMode{"run": 0o755, "fixed": 0o444}
		for name, mode := range modes {
			must.Do(t, os.Chmod(filepath.Join(dir, name), mode))
			if out := call(Edit, `{"path":"`+name+`","old_string":"a","new_string":"b"}`); out.IsError {
				t.Errorf("%s: %s", name, out.Body)
			}
			if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v", name, fi.Mode(), err)
			}
		}
		holds(t, dir, map[string]string{"run": "b", "fixed": "b"})
	})
}

// TestEditOfLinks changes neither a link nor its target.
func TestEditOfLinks(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "secret")
	must.Do(t, os.WriteFile(outside, []byte("a"), 0o600))
	boxes(t, map[string]string{"f": "a"}, func(t *testing.T, dir string, call func(name, args string) Outcome) {
		for name, to := range map[string]string{"inside": "f", "out": outside} {
			if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
				if runtime.GOOS == "windows" { // without the right
					t.Log(err)
					return
				}
				t.Fatal(err)
			}
			for _, c := range [][2]string{
				{Edit, `{"path":"` + name + `","old_string":"a","new_string":"b"}`},
				{ApplyPatch, quote(t, patchArgs{"*** Begin Patch\n*** Update File: " + name + "\n@@\n-a\n+b\n*** End Patch"})},
			} {
				if out := call(c[0], c[1]); out.Kind != PathRefused {
					t.Errorf("%s of %s: %s", c[0], name, out.Body)
				}
			}
		}
		holds(t, dir, map[string]string{"f": "a", "inside": "-> f", "out": "-> " + outside})
		if data, err := os.ReadFile(outside); err != nil || string(data) != "a" {
			t.Errorf("outside: %q, %v", data, err)
		}
	})
}

func TestReadNumbered(t *testing.T) {
	t.Parallel()
	boxes(t, map[string]string{"f": "a\nb\n\nd"}, func(t *testing.T, _ string, call func(name, args string) Outcome) {
		for args, want := range map[string]string{
			`{"path":"f","numbered":true}`:                      `{"data":"     1\ta\n     2\tb\n     3\t\n     4\td"}`,
			`{"path":"f","numbered":true,"offset":2,"limit":2}`: `{"data":"     2\tb\n     3\t\n"}`,
			`{"path":"f","numbered":true,"offset":9}`:           `{"data":""}`,
		} {
			if got := string(call(ReadWorkspaceFile, args).Body); got != want {
				t.Errorf("%s: %s, want %s", args, got, want)
			}
		}
	})
}

func TestTodo(t *testing.T) {
	t.Parallel()
	tb := table(t, Builtins()...)
	for args, want := range map[string]string{
		`{"todos":[]}`: `{"done":0,"open":0}`,
		`{"todos":[{"content":"a","status":"completed"},{"content":"b","status":"in_progress"},{"content":"c","status":"pending"}]}`: `{"done":1,"open":2}`,
		`{"todos":[{"content":"a","status":"in_progress"},{"content":"b","status":"in_progress"}]}`:                                  `{"ok":false,"error_kind":"invalid_tool_arguments","message":"2 items are in_progress: at most one may be, the others are pending or completed"}`,
	} {
		if got := string(tb.Call(t.Context(), Todo, args, Call{}).Body); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
	for _, args := range []string{
		`{"todos":[{"content":"a","status":"done"}]}`, `{"todos":[{"content":"","status":"pending"}]}`,
		`{"todos":[` + strings.TrimSuffix(strings.Repeat(`{"content":"a","status":"pending"},`, MaxTodos+1), ",") + `]}`,
		`{"todos":[{"content":"` + strings.Repeat("a", MaxTodo+1) + `","status":"pending"}]}`,
	} {
		if out := tb.Call(t.Context(), Todo, args, Call{}); out.Kind != InvalidArguments {
			t.Errorf("%.80s: %s", args, out.Body)
		}
	}
}
