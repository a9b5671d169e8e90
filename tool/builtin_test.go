package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func table(t testing.TB, tools ...Tool) *Table {
	t.Helper()
	tb := must.Get(NewTable(tools...))(t)
	return tb
}

// TestBuiltinSpecs compares the specs that models and prompt caches see with a golden file.
func TestBuiltinSpecs(t *testing.T) {
	t.Parallel()
	type spec struct {
		Name, Description string
		Effect            Effect
		Lane              string
		Schema            json.RawMessage
	}
	var specs []spec
	for _, s := range table(t, Builtins()...).Specs() {
		specs = append(specs, spec{s.Name, s.Description, s.Effect, s.LaneOf(nil), s.Schema})
	}
	got := must.Get(json.MarshalIndent(specs, "", "  "))(t)
	got = append(got, '\n')
	path := filepath.Join("testdata", "builtins.json")
	if *update {
		must.Do(t, os.WriteFile(path, got, 0o644))
	}
	want := must.Get(os.ReadFile(path))(t)
	want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("specs changed (-golden +now); run with -update if they should:\n%s", diff)
	}
}

func TestByName(t *testing.T) {
	t.Parallel()
	for _, want := range Builtins() {
		name := want.Spec().Name
		if got, ok := ByName(name); !ok || got.Spec().Name != name {
			t.Errorf("%s: found %v, %t", name, got, ok)
		}
	}
	if _, ok := ByName("rm_rf"); ok {
		t.Error("found a tool that is not built in")
	}
}

// exited is a command that ended by itself.
func exited(code int, stdout, stderr string) sandbox.Exit {
	return sandbox.Exit{
		Code: code, Ended: sandbox.Exited, Elapsed: 12345 * time.Microsecond,
		Stdout: sandbox.Output{Head: []byte(stdout), Total: int64(len(stdout))},
		Stderr: sandbox.Output{Head: []byte(stderr), Total: int64(len(stderr))},
	}
}

func TestCommandBodies(t *testing.T) {
	t.Parallel()
	ended := func(end sandbox.End, code int) sandbox.Exit {
		e := exited(code, "part", "")
		e.Ended = end
		return e
	}
	refused := ended(sandbox.Refused, 127)
	refused.Stdout, refused.Stderr = sandbox.Output{}, sandbox.Output{Head: []byte("no such program\n"), Total: 16}
	tests := []struct {
		name, tool, args string
		exit             sandbox.Exit
		err              error
		want             string
	}{
		{
			"success", RunShellCommand, `{"cmd":"echo hi"}`, exited(0, "hi\n", ""), nil,
			`{"exit_code":0,"stdout":"hi\n","stderr":"","elapsed_ms":12}`,
		},
		{
			"exit code", RunShellCommand, `{"cmd":"exit 7"}`, exited(7, "", "<no> & é"), nil,
			`{"exit_code":7,"stdout":"","stderr":"<no> & é","elapsed_ms":12}`,
		},
		{
			"not UTF-8", RunShellCommand, `{"cmd":"x"}`, exited(0, "a\xffb", ""), nil,
			`{"exit_code":0,"stdout":"a` + "\ufffd" + `b","stderr":"","elapsed_ms":12}`,
		},
		{
			"timed out", RunShellCommand, `{"cmd":"x","timeout_ms":5}`, ended(sandbox.Deadline, 137), nil,
			`{"exit_code":137,"stdout":"part","stderr":"","elapsed_ms":12,"timed_out":true}`,
		},
		{
			"timed out without a code", RunShellCommand, `{"cmd":"x"}`, ended(sandbox.Deadline, 0), nil,
			`{"exit_code":124,"stdout":"part","stderr":"","elapsed_ms":12,"timed_out":true}`,
		},
		{
			"out of memory", RunShellCommand, `{"cmd":"x"}`, ended(sandbox.OutOfMem, 0), nil,
			`{"exit_code":137,"stdout":"part","stderr":"","elapsed_ms":12,"out_of_memory":true}`,
		},
		{
			"full disk", RunShellCommand, `{"cmd":"x"}`, ended(sandbox.DiskFull, 0), nil,
			`{"exit_code":137,"stdout":"part","stderr":"","elapsed_ms":12,"disk_full":true}`,
		},
		{
			"signal", RunShellCommand, `{"cmd":"x"}`, ended(sandbox.Signaled, 139), nil,
			`{"exit_code":139,"stdout":"part","stderr":"","elapsed_ms":12}`,
		},
		{
			"not started", RunShellCommand, `{"cmd":"x"}`, refused, nil,
			`{"ok":false,"error_kind":"os_error","message":"the command could not be started: no such program"}`,
		},
		{
			"bad directory", RunShellCommand, `{"cmd":"x","cwd":"../.."}`,
			sandbox.Exit{},
			fmt.Errorf("%w: /srv/host", sandbox.ErrPath),
			`{"ok":false,"error_kind":"path_refused","message":"\"../..\" is refused: want the name of a regular file or directory, relative to the workspace and inside it","detail":"../.."}`,
		},
		{
			"missing directory", RunShellCommand, `{"cmd":"x","cwd":"no"}`,
			sandbox.Exit{},
			&fs.PathError{Op: "open", Path: "/srv/host/no", Err: fs.ErrNotExist},
			`{"ok":false,"error_kind":"file_not_found","message":"there is no \"no\" in the workspace","detail":"no"}`,
		},
		{
			"lost", RunShellCommand, `{"cmd":"x"}`,
			sandbox.Exit{},
			sandbox.ErrLost,
			`{"ok":false,"error_kind":"sandbox_lost","message":"the session's sandbox died; what the call did is unknown"}`,
		},
		{
			"closed", RunCode, `{"code":"x"}`,
			sandbox.Exit{},
			sandbox.ErrClosed,
			`{"ok":false,"error_kind":"sandbox_closed","message":"the session's sandbox was closed under the call, because it died during another one or the run ends; what the call did is unknown"}`,
		},
		{
			"zero byte", RunShellCommand, `{"cmd":"a\u0000b"}`, exited(0, "", ""), nil,
			`{"ok":false,"error_kind":"invalid_tool_arguments","message":"cmd holds a zero byte"}`,
		},
		{
			"empty", RunShellCommand, `{"cmd":""}`, exited(0, "", ""), nil,
			`{"ok":false,"error_kind":"invalid_tool_arguments","message":"the arguments do not match the schema: \"cmd\": minLength: \"\" contains 0 Unicode code points, fewer than 1","detail":"{\"cmd\":\"\"}"}`,
		},
		{
			"code", RunCode, `{"code":"print(1)"}`, exited(0, "1\n", ""), nil,
			`{"text":null,"stdout":"1\n","stderr":"","error":null}`,
		},
		{
			"code fails", RunCode, `{"code":"x","language":"python"}`, exited(1, "", "NameError: x\n"), nil,
			`{"text":null,"stdout":"","stderr":"NameError: x\n","error":"NameError: x"}`,
		},
		{
			"code fails without a word", RunCode, `{"code":"exit 3","language":"sh"}`, exited(3, "", " \n"), nil,
			`{"text":null,"stdout":"","stderr":" \n","error":"exit status 3"}`,
		},
		{
			"code times out", RunCode, `{"code":"x","timeout_ms":1}`, ended(sandbox.Deadline, 0), nil,
			`{"text":null,"stdout":"part","stderr":"","error":"timed out and was killed","timed_out":true}`,
		},
		{
			"language", RunCode, `{"code":"x","language":"cobol"}`, exited(0, "", ""), nil,
			`{"ok":false,"error_kind":"unsupported_tool","message":"language \"cobol\" is not supported: use python, sh or bash, or run a compiler with run_shell_command","detail":"cobol"}`,
		},
		{
			"no interpreter", RunCode, `{"code":"x"}`, refused, nil,
			`{"ok":false,"error_kind":"unsupported_tool","message":"this sandbox has no interpreter for python (looked for python3, python): use another language","detail":"python"}`,
		},
		{
			"timeout too long", RunShellCommand, `{"cmd":"x","timeout_ms":600001}`, exited(0, "", ""), nil,
			`{"ok":false,"error_kind":"invalid_tool_arguments","message":"the arguments do not match the schema: \"timeout_ms\": maximum: 600001/1 is greater than 600000.000000","detail":"{\"cmd\":\"x\",\"timeout_ms\":600001}"}`,
		},
	}
	tb := table(t, Builtins()...)
	for _, tt := range tests {
		f := &fake{exec: func(context.Context, sandbox.Cmd) (sandbox.Exit, error) { return tt.exit, tt.err }}
		out := tb.Call(t.Context(), tt.tool, tt.args, Call{ID: "c1", Sandbox: f.open, Blobs: new(blobs)})
		if diff := cmp.Diff(tt.want, string(out.Body)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if failed := strings.HasPrefix(tt.want, `{"ok":false`); out.IsError != failed || (out.Kind != "") != failed {
			t.Errorf("%s: failed %t, kind %q", tt.name, out.IsError, out.Kind)
		}
		if tt.err != nil && !errors.Is(out.Err, tt.err) {
			t.Errorf("%s: the runtime gets %v, want %v", tt.name, out.Err, tt.err)
		}
	}
}

func TestCommandArgv(t *testing.T) {
	t.Parallel()
	f := &fake{exec: func(_ context.Context, c sandbox.Cmd) (sandbox.Exit, error) {
		if c.Argv[0] == "python3" {
			return sandbox.Exit{Ended: sandbox.Refused}, nil
		}
		return exited(0, "", ""), nil
	}}
	tb := table(t, Builtins()...)
	long := strings.Repeat("a", MaxCommand+1)
	for _, call := range []struct{ name, args string }{
		{RunShellCommand, `{"cmd":"cd src\nmake","cwd":"sub","timeout_ms":1500}`},
		{RunCode, `{"code":"-x"}`},
		{RunCode, `{"code":"ls","language":"sh","timeout_ms":null}`},
		{RunShellCommand, `{"cmd":"` + long + `"}`},
		{RunCode, `{"code":"` + long + long + `"}`},
	} {
		tb.Call(t.Context(), call.name, call.args, Call{ID: "c1", Sandbox: f.open})
	}
	type ran struct {
		Argv    []string
		Dir     string
		Timeout time.Duration
	}
	var got []ran
	for _, c := range f.cmds {
		got = append(got, ran{c.Argv, c.Dir, c.Timeout})
		if c.ID != "c1" || c.Output != MaxOutput || c.Offload != nil {
			t.Errorf("command %+v", c)
		}
	}
	want := []ran{
		{[]string{"/bin/sh", "-c", "cd src\nmake"}, "sub", 1500 * time.Millisecond},
		{[]string{"python3", "-c", "-x"}, "", 0},
		{[]string{"python", "-c", "-x"}, "", 0},
		{[]string{"sh", "-c", "ls"}, "", 0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	out := tb.Call(t.Context(), RunShellCommand, `{"cmd":"`+long+`"}`, Call{Sandbox: f.open})
	if out.Kind != TooLarge || !bytes.Contains(out.Body, []byte(WriteWorkspaceFile)) {
		t.Errorf("a long command: %s", out.Body)
	}
}

// TestCommandOutput cuts a long output through characters and keeps it whole.
func TestCommandOutput(t *testing.T) {
	tmp := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP"} { // Unix, Windows
		t.Setenv(name, tmp)
	}
	whole := strings.Repeat("é深", 200_000) // more than the limit held in memory
	f := &fake{exec: func(_ context.Context, c sandbox.Cmd) (sandbox.Exit, error) {
		if c.Offload != nil {
			for part := range strings.SplitAfterSeq(whole, "深") {
				if _, err := c.Offload.Write([]byte(part)); err != nil {
					t.Error(err)
				}
			}
		}
		e := exited(0, "", "fine")
		e.Stdout = sandbox.Output{Head: []byte(whole[:6001]), Tail: []byte(whole[len(whole)-6001:]), Total: int64(len(whole))}
		return e, nil
	}}
	var store blobs
	tb := table(t, Builtins()...)
	var body shellBody
	call := func(c Call) {
		t.Helper()
		body = shellBody{}
		c.Sandbox = f.open
		must.Do(t, json.Unmarshal(tb.Call(t.Context(), RunShellCommand, `{"cmd":"x"}`, c).Body, &body))
	}
	call(Call{Blobs: &store})
	if body.Truncated == nil || store.data[body.Truncated.Blob] != whole || body.Truncated.BlobBytes != int64(len(whole)) {
		t.Fatalf("the whole output is not kept: %+v", body.Truncated)
	}
	if body.Truncated.StdoutBytes != int64(len(whole)) || body.Truncated.StderrBytes != 4 || body.Stderr != "fine" {
		t.Errorf("truncated is %+v, stderr %q", body.Truncated, body.Stderr)
	}
	head, tail, ok := strings.Cut(body.Stdout, fmt.Sprintf("\n[... %d bytes cut ...]\n", len(whole)-2*6000))
	if !ok || !strings.HasPrefix(whole, head) || !strings.HasSuffix(whole, tail) || len(head) != 6000 || len(tail) != 6000 {
		t.Errorf("shown are %d and %d bytes: %.20q", len(head), len(tail), body.Stdout)
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
	call(Call{})
	if body.Truncated == nil || body.Truncated.Blob != "" {
		t.Errorf("without a blob store: %+v", body.Truncated)
	}
	call(Call{Blobs: &blobs{err: errors.New("disk full")}})
	if body.Truncated == nil || body.Truncated.Blob != "" || body.ExitCode != 0 {
		t.Errorf("with a broken blob store: %+v", body.Truncated)
	}
}

func TestSpillBound(t *testing.T) {
	t.Parallel()
	var s offload
	defer func() { must.Report(t, s.close()) }()
	part := make([]byte, 1<<20-1)
	for range 20 {
		if n, err := s.Write(part); n != len(part) || err != nil {
			t.Fatalf("write: %d, %v", n, err)
		}
	}
	ref, ok := s.keep(t.Context(), new(blobs))
	if !ok || ref.Size != sandbox.MaxOffload {
		t.Errorf("kept %d bytes (%t), want %d", ref.Size, ok, sandbox.MaxOffload)
	}
}

func TestFileBodies(t *testing.T) {
	t.Parallel()
	f := &fake{files: map[string]string{
		"a.txt": "one\ntwo\nthree\n", "dir/b": "b", "dir/c/d": "d", "latin": "caf\xe9", "empty": "", "noeol": "x\ny", "fffd": "\ufffd",
	}}
	notFound := func(name string) string {
		return `{"ok":false,"error_kind":"file_not_found","message":"there is no \"` + name + `\" in the workspace","detail":"` + name + `"}`
	}
	refused := func(name string) string {
		return `{"ok":false,"error_kind":"path_refused","message":"\"` + name +
			`\" is refused: want the name of a regular file or directory, relative to the workspace and inside it","detail":"` + name + `"}`
	}
	tests := []struct{ tool, args, want string }{
		{ReadWorkspaceFile, `{"path":"a.txt"}`, `{"data":"one\ntwo\nthree\n"}`},
		{ReadWorkspaceFile, `{"path":"a.txt","offset":2}`, `{"data":"two\nthree\n"}`},
		{ReadWorkspaceFile, `{"path":"a.txt","offset":2,"limit":1}`, `{"data":"two\n"}`},
		{ReadWorkspaceFile, `{"path":"a.txt","limit":1,"offset":null}`, `{"data":"one\n"}`},
		{ReadWorkspaceFile, `{"path":"a.txt","offset":9}`, `{"data":""}`},
		{ReadWorkspaceFile, `{"path":"noeol","offset":2,"limit":5}`, `{"data":"y"}`},
		{ReadWorkspaceFile, `{"path":"empty"}`, `{"data":""}`},
		{ReadWorkspaceFile, `{"path":"latin"}`, `{"data":"caf` + "\ufffd" + `","lossy":true}`},
		{ReadWorkspaceFile, `{"path":"fffd"}`, `{"data":"` + "\ufffd" + `"}`},
		{ReadWorkspaceFile, `{"path":"missing"}`, notFound("missing")},
		{ReadWorkspaceFile, `{"path":"../etc/passwd"}`, refused("../etc/passwd")},
		{ReadWorkspaceFile, `{"path":"/etc/passwd"}`, refused("/etc/passwd")},
		{ReadWorkspaceFile, `{"path":"pipe"}`, refused("pipe")},
		{ReadWorkspaceFile, `{"path":"locked"}`, `{"ok":false,"error_kind":"os_error","message":"\"locked\": open: permission denied"}`},
		{WriteWorkspaceFile, `{"path":"new/dir/é","content":"é"}`, `{"bytes_written":2}`},
		{ReadWorkspaceFile, `{"path":"new/dir/é"}`, `{"data":"é"}`},
		{WriteWorkspaceFile, `{"path":"empty2","content":""}`, `{"bytes_written":0}`},
		{WriteWorkspaceFile, `{"path":"../x","content":"é"}`, refused("../x")},
		{WriteWorkspaceFile, `{"path":"x","content":5}`, `{"ok":false,"error_kind":"invalid_tool_arguments",` +
			`"message":"the arguments do not match the schema: \"content\": type: 5 has type \"integer\", want \"string\"","detail":"{\"path\":\"x\",\"content\":5}"}`},
		{ListWorkspaceFiles, `{"path":"dir"}`, `{"entries":[{"name":"b","path":"dir/b","is_dir":false},{"name":"c","path":"dir/c","is_dir":true}]}`},
		{ListWorkspaceFiles, `{"path":"missing"}`, notFound("missing")},
		{ListWorkspaceFiles, `{"path":".."}`, refused("..")},
		{ListWorkspaceFiles, `{"path":"crowd"}`, `{"ok":false,"error_kind":"too_large","message":"\"crowd\" has more than 20000 entries: list a part of them with run_shell_command","detail":"crowd"}`},
		{WorkspacePathExists, `{"path":"a.txt"}`, `{"ok":true}`},
		{WorkspacePathExists, `{"path":"missing"}`, `{"ok":false}`},
		{WorkspacePathExists, `{"path":"locked"}`, `{"ok":false}`},
		{WorkspacePathExists, `{"path":"/etc"}`, refused("/etc")},
	}
	tb := table(t, Builtins()...)
	for _, tt := range tests {
		out := tb.Call(t.Context(), tt.tool, tt.args, Call{Sandbox: f.open})
		if diff := cmp.Diff(tt.want, string(out.Body)); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tt.tool, tt.args, diff)
		}
		if strings.Contains(string(out.Body), "/srv/host") {
			t.Errorf("%s %s tells the host's path: %s", tt.tool, tt.args, out.Body)
		}
	}
	for _, args := range []string{"", "{}", `{"path":"."}`, `{"path":null}`} {
		out := tb.Call(t.Context(), ListWorkspaceFiles, args, Call{Sandbox: f.open})
		if !bytes.Contains(out.Body, []byte(`{"name":"a.txt","path":"a.txt","is_dir":false}`)) {
			t.Errorf("list with arguments %q: %s", args, out.Body)
		}
	}
}

func TestReadLong(t *testing.T) {
	t.Parallel()
	tb := table(t, Builtins()...)
	for _, chars := range []int{MaxShown - 1, MaxShown, MaxShown + 1, MaxShown + MaxShown/2 - 1, 3*MaxShown + 7} {
		var text strings.Builder
		for i := range chars {
			text.WriteRune(rune('深' + i%5000))
		}
		f := &fake{files: map[string]string{"f": text.String()}}
		var body readBody
		must.Do(t, json.Unmarshal(tb.Call(t.Context(), ReadWorkspaceFile, `{"path":"f"}`, Call{Sandbox: f.open}).Body, &body))
		if chars <= MaxShown {
			if body.Data != text.String() || body.Truncated != nil {
				t.Errorf("%d characters: %d shown, %+v", chars, utf8.RuneCountInString(body.Data), body.Truncated)
			}
			continue
		}
		runes := []rune(text.String())
		want := fmt.Sprintf("%s\n[... %d characters cut ...]\n%s", string(runes[:MaxShown/2]), chars-MaxShown, string(runes[chars-MaxShown/2:]))
		if body.Data != want {
			t.Errorf("%d characters: shown is not the head and the tail", chars)
		}
		if diff := cmp.Diff(&cutFile{Chars: int64(chars), Lines: 1}, body.Truncated); diff != "" {
			t.Errorf("%d characters (-want +got):\n%s", chars, diff)
		}
	}

	lines := strings.Repeat("0123456789abcde\n", 4000)
	f := &fake{files: map[string]string{"lines": lines, "huge": strings.Repeat("x\n", MaxScanned/2+1)}}
	var body readBody
	must.Do(t, json.Unmarshal(tb.Call(t.Context(), ReadWorkspaceFile, `{"path":"lines","offset":1001}`, Call{Sandbox: f.open}).Body, &body))
	if diff := cmp.Diff(&cutFile{Chars: 48_000, Lines: 3000}, body.Truncated); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if out := tb.Call(t.Context(), ReadWorkspaceFile, `{"path":"huge"}`, Call{Sandbox: f.open}); out.Kind != TooLarge {
		t.Errorf("a huge file: %.200s", out.Body)
	}
	if out := tb.Call(t.Context(), ReadWorkspaceFile, `{"path":"huge","limit":1}`, Call{Sandbox: f.open}); string(out.Body) != `{"data":"x\n"}` {
		t.Errorf("the first line of a huge file: %.200s", out.Body)
	}
}

func TestListLong(t *testing.T) {
	t.Parallel()
	tb := table(t, Builtins()...)
	for n, want := range map[int]*cutList{MaxEntries: nil, MaxEntries + 1: {MaxEntries + 1}} {
		f := &fake{files: make(map[string]string)}
		for i := range n {
			f.files[fmt.Sprintf("f%04d", i)] = ""
		}
		var body listBody
		must.Do(t, json.Unmarshal(tb.Call(t.Context(), ListWorkspaceFiles, "", Call{Sandbox: f.open}).Body, &body))
		if len(body.Entries) != MaxEntries || body.Entries[0].Name != "f0000" || !cmp.Equal(body.Truncated, want) {
			t.Errorf("%d entries: %d listed, truncated %+v", n, len(body.Entries), body.Truncated)
		}
	}
}

// TestNoSandbox calls every built-in without one.
func TestNoSandbox(t *testing.T) {
	t.Parallel()
	args := map[string]string{
		RunShellCommand: `{"cmd":"x"}`, RunCode: `{"code":"x"}`, ReadWorkspaceFile: `{"path":"x"}`,
		WriteWorkspaceFile: `{"path":"x","content":""}`, ListWorkspaceFiles: "", WorkspacePathExists: `{"path":"x"}`,
		Edit: `{"path":"x","old_string":"a","new_string":"b"}`, Grep: `{"pattern":"x"}`, Glob: `{"pattern":"x"}`, ViewImage: `{"path":"x"}`,
		ApplyPatch: `{"input":"*** Begin Patch\n*** Delete File: x\n*** End Patch"}`,
	}
	full := errors.New("node is full")
	tb := table(t, Builtins()...)
	for _, s := range tb.Specs() {
		if s.Name == Todo || s.Name == Skill || s.Name == Fetch {
			continue // they need none, or its way to the network
		}
		out := tb.Call(t.Context(), s.Name, args[s.Name], Call{})
		if out.Kind != SandboxMissing || !bytes.Contains(out.Body, []byte("s.To(")) {
			t.Errorf("%s without a sandbox: %s", s.Name, out.Body)
		}
		out = tb.Call(t.Context(), s.Name, args[s.Name], Call{Sandbox: func(context.Context) (sandbox.Sandbox, error) { return nil, full }})
		if out.Kind != SandboxUnavailable || !errors.Is(out.Err, full) {
			t.Errorf("%s with a sandbox that does not open: %s, %v", s.Name, out.Body, out.Err)
		}
	}
}

// TestCommandCancelled ends the run while a command runs.
func TestCommandCancelled(t *testing.T) {
	t.Parallel()
	stop := errors.New("superseded")
	ctx, cancel := context.WithCancelCause(t.Context())
	f := &fake{exec: func(ctx context.Context, _ sandbox.Cmd) (sandbox.Exit, error) {
		cancel(stop)
		<-ctx.Done()
		return sandbox.Exit{Code: 137, Ended: sandbox.Cancelled}, nil
	}}
	tb := table(t, Builtins()...)
	out := tb.Call(ctx, RunShellCommand, `{"cmd":"x"}`, Call{Sandbox: f.open})
	if out.Kind != Cancelled || !out.IsError || !errors.Is(out.Err, stop) {
		t.Errorf("cancelled: %s, %v", out.Body, out.Err)
	}
	if tb.Call(ctx, RunShellCommand, `{"cmd":"x"}`, Call{Sandbox: f.open}); len(f.cmds) != 1 {
		t.Errorf("%d commands ran, want none after the run ended", len(f.cmds))
	}
	f.exec = func(context.Context, sandbox.Cmd) (sandbox.Exit, error) {
		return sandbox.Exit{Ended: sandbox.Cancelled}, nil
	}
	if out := tb.Call(t.Context(), RunShellCommand, `{"cmd":"x"}`, Call{Sandbox: f.open}); out.Kind != SandboxLost {
		t.Errorf("cancelled without a cancel: %s", out.Body)
	}
}
