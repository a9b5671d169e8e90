package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/scripted"
)

const patchedCode = `package a

func one() {
	x := 1
	use(x)
}

func two() {
	x := 1
	use(x)
}
`

func TestApplyPatch(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a.go": patchedCode, "crlf": "a\r\nb\r\nc\r\n", "open": "a\nb", "empty": "", "doc/quotes": "it’s – fine\n\ttabbed   \nend\n"}
	with := func(changed map[string]string) map[string]string {
		all := maps.Clone(files)
		for name, text := range changed {
			if all[name] = text; text == "gone" {
				delete(all, name)
			}
		}
		return all
	}
	tests := []struct {
		name, patch string
		changed     map[string]string
		want        string
	}{
		{
			"update behind a line", "*** Update File: a.go\n@@ func two() {\n-\tx := 1\n+\tx := 2\n \tuse(x)\n",
			map[string]string{"a.go": strings.Replace(patchedCode, "two() {\n\tx := 1", "two() {\n\tx := 2", 1)},
			`{"files":[{"path":"a.go","change":"updated","added":1,"removed":1}]}`,
		},
		{
			"two hunks, the numbers of a unified diff", "*** Update File: ./a.go\n@@ -1,3 +1,4 @@\n package a\n \n+// one\n func one() {\n@@ -8,1 +9,1 @@ func two() {\n-\tx := 1\n+\tx := 3\n",
			map[string]string{"a.go": strings.Replace(strings.Replace(patchedCode, "func one", "// one\nfunc one", 1), "two() {\n\tx := 1", "two() {\n\tx := 3", 1)},
			`{"files":[{"path":"a.go","change":"updated","added":2,"removed":1}]}`,
		},
		{
			"two sections of one file, the later one above", "*** Update File: a.go\n@@ func two() {\n-\tx := 1\n+\tx := 2\n*** Update File: a.go\n@@\n-package a\n+package b\n",
			map[string]string{"a.go": strings.Replace(strings.Replace(patchedCode, "two() {\n\tx := 1", "two() {\n\tx := 2", 1), "package a", "package b", 1)},
			`{"files":[{"path":"a.go","change":"updated","added":2,"removed":2}]}`,
		},
		{
			"add, delete, move with a change", "*** Add File: new/deep.txt\n+one\n+\n+two\n*** Delete File: empty\n*** Update File: open\n*** Move to: moved/open\n@@\n a\n-b\n+c\n",
			map[string]string{"new/deep.txt": "one\n\ntwo\n", "empty": "gone", "open": "gone", "moved/open": "a\nc"},
			`{"files":[{"path":"new/deep.txt","change":"added","added":3,"removed":0},{"path":"empty","change":"deleted","added":0,"removed":0},{"path":"open","change":"moved","to":"moved/open","added":1,"removed":1}]}`,
		},
		{
			"CRLF stays", "*** Update File: crlf\n@@\n a\n-b\n+B\n+BB\n c\n",
			map[string]string{"crlf": "a\r\nB\r\nBB\r\nc\r\n"},
			`{"files":[{"path":"crlf","change":"updated","added":2,"removed":1}]}`,
		},
		{
			"at the end, which has no newline", "*** Update File: open\n@@\n b\n+c\n*** End of File\n",
			map[string]string{"open": "a\nb\nc"},
			`{"files":[{"path":"open","change":"updated","added":1,"removed":0}]}`,
		},
		{
			"into nothing", "*** Update File: empty\n+a\n",
			map[string]string{"empty": "a\n"},
			`{"files":[{"path":"empty","change":"updated","added":1,"removed":0}]}`,
		},
		{
			"insert behind a line", "*** Update File: a.go\n@@ func two() {\n+\tlog()\n",
			map[string]string{"a.go": strings.Replace(patchedCode, "two() {\n", "two() {\n\tlog()\n", 1)},
			`{"files":[{"path":"a.go","change":"updated","added":1,"removed":0}]}`,
		},
		{
			"white space and quotes as a model writes them", "*** Update File: doc/quotes\n@@\n it's - fine\n tabbed\n-end\n+END\n",
			map[string]string{"doc/quotes": "it’s – fine\n\ttabbed   \nEND\n"},
			`{"files":[{"path":"doc/quotes","change":"updated","added":1,"removed":1}]}`,
		},
		{
			"empty lines between sections", "*** Update File: open\n@@\n-a\n+A\n\n*** Delete File: empty\n\n",
			map[string]string{"open": "A\nb", "empty": "gone"},
			`{"files":[{"path":"open","change":"updated","added":1,"removed":1},{"path":"empty","change":"deleted","added":0,"removed":0}]}`,
		},
		// An invalid patch changes no file, even after valid sections.
		{
			"does not fit", "*** Add File: n\n+x\n*** Update File: a.go\n@@\n-package b\n+package c\n", nil,
			`{"ok":false,"error_kind":"mismatch","message":"hunk 1 of \"a.go\" (line 6 of the patch) does not fit: from line 1 on these lines are not there, read the file again: \"package b\"; no file was changed","detail":"a.go"}`,
		},
		{
			"fits twice", "*** Delete File: open\n*** Update File: a.go\n@@\n-\tx := 1\n+\tx := 2\n", nil,
			`{"ok":false,"error_kind":"mismatch","message":"hunk 1 of \"a.go\" (line 5 of the patch) fits at lines 4, 9: give it more lines around the change, or \"@@\" with a line before it; no file was changed","detail":"a.go"}`,
		},
		{
			"behind no line", "*** Update File: a.go\n@@ func three() {\n-\tx := 1\n+\tx := 2\n", nil,
			`{"ok":false,"error_kind":"mismatch","message":"hunk 1 of \"a.go\" (line 4 of the patch) is behind a line \"func three() {\", which is not there from line 1 on; no file was changed","detail":"a.go"}`,
		},
		{
			"not at the end", "*** Update File: a.go\n@@\n-package a\n+package b\n*** End of File\n", nil,
			`{"ok":false,"error_kind":"mismatch","message":"hunk 1 of \"a.go\" (line 4 of the patch) is not at the end of the file, which it says it is: \"package a\"; no file was changed","detail":"a.go"}`,
		},
		{
			"added twice over", "*** Add File: open\n+x\n", nil,
			`{"ok":false,"error_kind":"mismatch","message":"\"open\" is there already: update it, or delete it first; no file was changed","detail":"open"}`,
		},
		{
			"moved over another", "*** Update File: open\n*** Move to: empty\n", nil,
			`{"ok":false,"error_kind":"mismatch","message":"\"empty\" is there already: update it, or delete it first; no file was changed","detail":"empty"}`,
		},
		{
			"missing", "*** Delete File: nosuch\n", nil,
			`{"ok":false,"error_kind":"file_not_found","message":"there is no \"nosuch\" in the workspace","detail":"nosuch"}`,
		},
		{
			"outside", "*** Add File: ../x\n+x\n", nil,
			`{"ok":false,"error_kind":"path_refused","message":"\"../x\" is refused: want the name of a regular file or directory, relative to the workspace and inside it","detail":"../x"}`,
		},
		{
			"below a file, which shows when it is written", "*** Delete File: empty\n*** Update File: crlf\n@@\n-b\n+B\n*** Add File: new\n+x\n*** Add File: open/below\n+x\n", nil,
			`{"ok":false,"error_kind":"path_refused","message":"\"open/below\" is refused: want the name of a regular file or directory, relative to the workspace and inside it","detail":"open/below"}`,
		},
		{
			"named twice", "*** Delete File: open\n*** Add File: open\n+x\n", nil,
			`{"ok":false,"error_kind":"invalid_tool_arguments","message":"line 3 of the patch: \"open\" is named twice"}`,
		},
		{
			"no header", "-a\n+b\n", nil,
			`{"ok":false,"error_kind":"invalid_tool_arguments","message":"line 2 of the patch: \"-a\": want \"*** Update File:\", \"*** Add File:\" or \"*** Delete File:\" and a name"}`,
		},
		{
			"no name", "*** Add File: \n+b\n", nil,
			`{"ok":false,"error_kind":"invalid_tool_arguments","message":"line 2 of the patch: there is no name after \"*** Add File:\""}`,
		},
		{
			"a line of no kind", "*** Update File: open\n@@\na\n", nil,
			`{"ok":false,"error_kind":"invalid_tool_arguments","message":"line 4 of the patch: \"a\" begins with neither a blank, - nor +"}`,
		},
		{
			"no hunk", "*** Update File: open\n", nil,
			`{"ok":false,"error_kind":"invalid_tool_arguments","message":"line 2 of the patch: there is no hunk for \"open\""}`,
		},
		{
			"a file to add without +", "*** Add File: x\nx\n", nil,
			`{"ok":false,"error_kind":"invalid_tool_arguments","message":"line 3 of the patch: each line of the file \"x\" that is added begins with +"}`,
		},
		{"no file", "", nil, `{"ok":false,"error_kind":"invalid_tool_arguments","message":"the patch names no file"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			boxes(t, files, func(t *testing.T, dir string, call func(name, args string) Outcome) {
				out := call(ApplyPatch, quote(t, patchArgs{"*** Begin Patch\n" + tt.patch + "*** End Patch\n"}))
				if diff := cmp.Diff(tt.want, string(out.Body)); diff != "" {
					t.Errorf("body (-want +got):\n%s", diff)
				}
				holds(t, dir, with(tt.changed))
			})
		})
	}
}

// TestPatchForms accepts a patch in the form of a shell, but not a unified diff.
func TestPatchForms(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"<<'EOF'\n*** Begin Patch\n*** Add File: a\n+x\n*** End Patch\nEOF", "\n*** Begin Patch\r\n*** Add File: a\r\n+x\r\n*** End Patch\r\n",
	} {
		if all, err := parsePatch("", text); err != nil || len(all) != 1 || all[0].text != "x\n" {
			t.Errorf("%q: %v, %v", text, all, err)
		}
	}
	var many strings.Builder
	for i := range MaxPatchFiles + 1 {
		fmt.Fprintf(&many, "*** Delete File: %d\n", i)
	}
	for text, want := range map[string]string{
		"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n": `does not begin with "*** Begin Patch"`,
		"": `does not begin with "*** Begin Patch"`, "*** Begin Patch": `does not begin with "*** Begin Patch"`,
		"*** Begin Patch\n*** Add File: a\n+x":                `and end with "*** End Patch"`,
		"*** Begin Patch\n" + many.String() + "*** End Patch": "of more than 100 files",
		strings.Repeat("x", MaxPatch+1):                       "1048577 bytes, at most 1048576",
	} {
		if _, err := parsePatch("", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

// failing is a sandbox whose files fail at the n-th change.
type failing struct {
	sandbox.Sandbox
	left *int
}

// failingFiles are its files.
type failingFiles struct {
	sandbox.Files
	left *int
}

var errDisk = errors.New("no space left")

func (f failing) Files() sandbox.Files { return failingFiles{f.Sandbox.Files(), f.left} }

func (f failingFiles) now() error {
	if *f.left--; *f.left == 0 {
		return errDisk
	}
	return nil
}

func (f failingFiles) Create(ctx context.Context, name string) (io.WriteCloser, error) {
	if err := f.now(); err != nil {
		return nil, err
	}
	return f.Files.Create(ctx, name)
}

func (f failingFiles) Remove(ctx context.Context, name string) error {
	if err := f.now(); err != nil {
		return err
	}
	return f.Files.Remove(ctx, name)
}

func (f failingFiles) Rename(ctx context.Context, name, to string) error {
	if err := f.now(); err != nil {
		return err
	}
	return f.Files.Rename(ctx, name, to)
}

// TestPatchIsUndone: a change that fails is undone with all before it.
func TestPatchIsUndone(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a": "1\n", "b": "2\n", "c": "3\n"}
	modes := map[string]os.FileMode{"a": 0o755, "b": 0o755, "c": 0o644}
	patch := quote(t, patchArgs{"*** Begin Patch\n*** Update File: a\n*** Move to: d\n@@\n-1\n+one\n*** Delete File: b\n*** Add File: e\n+5\n*** Update File: c\n@@\n-3\n+three\n*** End Patch"})
	for n := 1; ; n++ {
		dir := t.TempDir()
		for name, text := range files {
			must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), modes[name]))
		}
		box := must.Get(scripted.New(nil).Open(t.Context(), sandbox.Spec{Dir: dir, MinIsolation: sandbox.IsolationProcess}))(t)
		left := n
		out := table(t, applyPatch()).Call(t.Context(), ApplyPatch, patch, Call{Sandbox: func(context.Context) (sandbox.Sandbox, error) {
			return failing{box, &left}, nil
		}})
		must.Report(t, box.Close())
		if !out.IsError {
			if n != 7 { // six changes were made
				t.Errorf("%d changes were made: %s", n-1, out.Body)
			}
			holds(t, dir, map[string]string{"c": "three\n", "d": "one\n", "e": "5\n"})
			return
		}
		if out.Kind != OSError || !strings.Contains(string(out.Body), "no space left; no file was changed") {
			t.Errorf("change %d: %s", n, out.Body)
		}
		holds(t, dir, files)
		for name, mode := range modes {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
				t.Errorf("change %d: %q is back with %v, %v", n, name, info.Mode(), err)
			}
		}
	}
}

// TestPatchIsBounded: locating hunks takes few comparisons, is limited, and ends with its
// context.
func TestPatchIsBounded(t *testing.T) {
	t.Parallel()
	call := func(ctx context.Context, file, patch string) Outcome {
		box := &fake{files: map[string]string{"f": file}}
		return table(t, applyPatch()).Call(ctx, ApplyPatch, quote(t, patchArgs{"*** Begin Patch\n*** Update File: f\n" + patch + "*** End Patch"}), Call{Sandbox: box.open})
	}
	lines := strings.Repeat("x\n", 1<<20)
	many := strings.Repeat("@@ x\n", 400) + "+y\n"
	if out := call(t.Context(), lines, many); out.IsError {
		t.Errorf("400 lines: %s", out.Body)
	}
	all := must.Get(parsePatch("", "*** Begin Patch\n*** Update File: f\n"+many+"*** End Patch"))(t)
	by := newFinder(t.Context())
	if _, _, _, err := all[0].patched(lines, by); err != nil || maxCompared-by.left != 400 {
		t.Errorf("%d comparisons: %v", int(maxCompared)-by.left, err)
	}
	if out := call(t.Context(), lines, strings.Repeat("@@ x\n", maxHunks)+"+y\n"); !strings.Contains(string(out.Body), "more than 1000 hunks and lines after @@") {
		t.Errorf("too many: %s", out.Body)
	}
	square := "@@\n" + strings.Repeat(" x\n", 100_000) + "-y\n"
	if out := call(t.Context(), lines, square); out.Kind != TooLarge || !strings.Contains(string(out.Body), "takes too long to find") {
		t.Errorf("a square: %s", out.Body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	by = newFinder(ctx)
	all = must.Get(parsePatch("", "*** Begin Patch\n*** Update File: f\n"+square+"*** End Patch"))(t)
	if _, _, _, err := all[0].patched(lines, by); !errors.Is(err, context.Canceled) || by.left != maxCompared {
		t.Errorf("cancelled: %v after %d comparisons", err, int(maxCompared)-by.left)
	}
}

// FuzzPatch: no patch makes the reader or a file fail.
func FuzzPatch(f *testing.F) {
	f.Add("*** Update File: a\n@@ x\n a\n-b\n+c\n*** End of File", "a\nb\r\n")
	f.Add("*** Add File: a\n+x\n*** Delete File: b\n", "")
	f.Add("*** Update File: a\n*** Move to: b\n@@ -1 +1 @@\n\n+", "\n")
	f.Fuzz(func(t *testing.T, patch, text string) {
		all, err := parsePatch("", "*** Begin Patch\n"+patch+"\n*** End Patch")
		if err != nil {
			return
		}
		for _, p := range all {
			if _, _, _, err := p.patched(text, newFinder(t.Context())); err != nil {
				continue
			}
		}
	})
}
