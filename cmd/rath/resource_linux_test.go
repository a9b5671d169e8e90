package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestAddResources: names are checked before the first file is written, and each
// skipped entry is listed with the reason. The argument may be a link; links below it
// are not followed.
func TestAddResources(t *testing.T) {
	if isPlayed(t) {
		return
	}
	t.Chdir(t.TempDir())
	if code, _, errs := rath(t, "run", "-m", "hi", "--model", "echo", "-q"); code != 0 {
		t.Fatalf("run: exit %d: %s", code, errs)
	}
	link := func(to, name string) {
		t.Helper()
		must.Do(t, os.Symlink(to, name))
	}
	for _, dir := range []string{"docs", "docs/bad\xff", "bare"} {
		must.Do(t, os.Mkdir(dir, 0o700))
	}
	for name, text := range map[string]string{
		"docs/a.md": "One.", "docs/b\n.md": "Two.", "docs/bad\xff/c.md": "Three.", "docs/latin\xe9.md": "Four.", "docs/z.md": "Five.",
		"docs/empty.md": "", "docs/blank.md": " \n", "docs/logo.png": "\x89PNG\x00", "tab\t.md": "Six.",
	} {
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
	}
	link("../docs/a.md", "docs/link.md")
	link("loop", "docs/loop")
	link("docs/a.md", "link.md")
	link("docs", "linked")
	for _, pipe := range []string{"docs/pipe", "pipe"} {
		must.Do(t, syscall.Mkfifo(pipe, 0o600))
	}
	for _, tt := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"--from", "docs"}, 0, "memory://resources/docs/a.md\nmemory://resources/docs/z.md\n", `added: 2 passages of 2 files
left out, a URI cannot have its name: "b\n.md"
left out, a URI cannot have its name: "bad\xff"
left out, it is empty: blank.md
left out, it is empty: empty.md
left out, a URI cannot have its name: "latin\xe9.md"
left out, it is a link: link.md
left out, it is not text: logo.png
left out, it is a link: loop
left out, it is a pipe: pipe
`},
		{[]string{"--from", "linked", "-q"}, 0, "memory://resources/linked/a.md\nmemory://resources/linked/z.md\n", ""},
		{[]string{"--from", "link.md", "-q"}, 0, "memory://resources/link.md\n", ""},
		{[]string{"--from", "docs/empty.md"}, app.ExitUsage, "", "rath: no file to add, it is empty: empty.md\n"},
		{[]string{"--from", "bare"}, app.ExitUsage, "", "rath: bare has no files to add\n"},
		{[]string{"--from", "pipe"}, app.ExitUsage, "", "rath: pipe is no regular file\n"},
		{[]string{"--from", "tab\t.md"}, app.ExitUsage, "", `rath: the name of "tab\t.md" cannot be in a URI: give one with --uri memory://resources/NAME` + "\n"},
		{[]string{"--from", "tab\t.md", "--uri", "memory://resources/tab.md", "-q"}, 0, "memory://resources/tab.md\n", ""},
		{[]string{"--from", "docs", "--uri", "resources"}, app.ExitUsage, "", `rath: memory: invalid uri "resources": want memory://<scope>/<name>` + "\n"},
	} {
		code, out, errs := rath(t, append([]string{"memory", "add", "team"}, tt.args...)...)
		if code != tt.code || out != tt.out || errs != tt.errs {
			t.Errorf("%q: exit %d\n%s%s\nwant %d\n%s%s", tt.args, code, out, errs, tt.code, tt.out, tt.errs)
		}
	}
	must.Do(t, os.WriteFile("docs/a.md", nil, 0o600))
	if code, _, errs := rath(t, "memory", "add", "team", "--from", "docs", "-q"); code != 0 {
		t.Errorf("once more: exit %d: %s", code, errs)
	}
	if _, out, _ := rath(t, "memory", "ls", "team", "memory://resources/docs"); strings.Contains(out, "a.md") {
		t.Errorf("a file that is empty now is there as before:\n%s", out)
	}
}

// TestSkillsWithPipe: an entry that cannot be stored among the files of skills is
// reported with the flag that named them.
func TestSkillsWithPipe(t *testing.T) {
	t.Chdir(t.TempDir())
	must.Do(t, os.Mkdir("ours", 0o700))
	must.Do(t, syscall.Mkfifo("ours/pipe", 0o600))
	const want = `rath: --skills ours: "pipe" is a FIFO, socket or device`
	if code, _, errs := rath(t, "run", "-m", "x", "--model", "echo", "--skills", "ours"); code != app.ExitUsage || !strings.HasPrefix(errs, want) {
		t.Errorf("exit %d: %s; want %q", code, errs, want)
	}
}
