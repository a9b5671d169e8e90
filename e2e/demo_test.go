//go:build e2e && linux

package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// hints returns the commands that the demo proposes, as printed.
func hints(t *testing.T, out string) []string {
	t.Helper()
	_, tail, ok := strings.Cut(out, "\nnext ")
	if !ok {
		t.Fatalf("the demo proposes nothing:\n%s", out)
	}
	var found []string
	for line := range strings.Lines(tail) {
		for hint := range strings.SplitSeq(line, "  |  ") {
			found = append(found, strings.TrimSpace(hint))
		}
	}
	return found
}

// hint returns the only one that begins so.
func hint(t *testing.T, out, beginning string) string {
	t.Helper()
	for _, h := range hints(t, out) {
		if strings.HasPrefix(h, beginning) {
			return h
		}
	}
	t.Fatalf("the demo does not propose %q:\n%s", beginning, out)
	return ""
}

// proof returns the dossier that the demo has written, as printed, and the
// head that it names.
func proof(t *testing.T, out string) (name, head string) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^proof (\S+)\s+(?:chain )?head ([0-9a-f]+)\.\.\s+\(rath verify: ok\)$`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("the demo shows no proof:\n%s", out)
	}
	return m[1], m[2]
}

// TestDemo follows a newcomer: the demo in an empty directory, each of its hints typed as
// printed, the crash, the start after it, and the demo once more.
func TestDemo(t *testing.T) {
	d := newDesk(t)
	first := d.rath("demo")
	first.want(t, 0, "rath demo ", "scripted model: no key, no network", "sandbox ", "fsync on every commit",
		`"slug drops the last word"`, "recalls 0 notes", "planner", "fork of s1", "edits slug.sh", "2 of 3 green, exit 1", "REJECTED",
		"files back to", "memory      remembers", "recalls 1 note", "3 of 3 green, exit 0", "ADOPTED into s1", "done ")
	for line := range strings.Lines(first.stdout) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
	if strings.Contains(first.stdout, "\x1b") {
		t.Errorf("a pipe gets escape sequences: %q", first.stdout)
	}
	if n := strings.Count(first.stdout, "fork of s1"); n != 2 {
		t.Errorf("the first demo forks %d times, want twice:\n%s", n, first.stdout)
	}

	d.typed(hint(t, first.stdout, "rath why ")).want(t, 0, "slug.sh", "coder")
	d.typed(hint(t, first.stdout, "rath show ")).want(t, 0, "fork of s1", "REJECTED", "ADOPTED")

	// The second demo succeeds at once, because of the note.
	second := d.rath("demo")
	second.want(t, 0, "recalls 1 note", "3 of 3 green, exit 0", "ADOPTED into s1")
	if strings.Contains(second.stdout, "REJECTED") {
		t.Errorf("the second demo does not succeed at the first attempt:\n%s", second.stdout)
	}

	crashed := d.typed(hint(t, first.stdout, "rath demo --crash"))
	if crashed.signal != syscall.SIGKILL || !strings.Contains(crashed.stdout, "kill -9     process") || strings.Contains(crashed.stdout, "ADOPTED") {
		t.Fatalf("the crash is none: %v", crashed)
	}
	again := regexp.MustCompile(`(?m)^next\s+(rath demo)\s`).FindStringSubmatch(crashed.stdout)
	if again == nil {
		t.Fatalf("the crash does not say how to go on: %v", crashed)
	}
	resumed := d.typed(again[1])
	resumed.want(t, 0, "resume      run ", "which do not run again", "run         resumes, attempt 2", "3 of 3 green, exit 0", "ADOPTED into s1")
	name, head := proof(t, resumed.stdout)
	d.typed("rath verify "+name).want(t, 0, head)

	// Without the note, the first story is repeated.
	d.rath("demo", "--fresh").want(t, 0, "recalls 0 notes", "REJECTED", "ADOPTED into s1")

	// No run is left open.
	if ps := d.rath("ps", "--format", "jsonl"); ps.code != 0 || strings.Count(ps.stdout, `"succeeded"`) != 4 || strings.Count(ps.stdout, "\n") != 4 {
		t.Errorf("want four runs that succeeded: %v", ps)
	}
}

// TestDemoTwiceCrashed crashes the demo and then its resumption; the third start completes
// it.
func TestDemoTwiceCrashed(t *testing.T) {
	d := newDesk(t)
	for range 2 {
		if o := d.rath("demo", "--crash"); o.signal != syscall.SIGKILL {
			t.Fatalf("the crash is none: %v", o)
		}
	}
	last := d.rath("demo")
	last.want(t, 0, "resume      run ", "attempt 3", "REJECTED", "3 of 3 green, exit 0", "ADOPTED into s1")
	name, _ := proof(t, last.stdout)
	d.rath("verify", name).want(t, 0)
}

// TestVerify tampers with the demo's dossier in all of its forms.
func TestVerify(t *testing.T) {
	d := newDesk(t)
	out := d.rath("demo")
	out.want(t, 0)
	name, short := proof(t, out.stdout)
	page := must.Get(os.ReadFile(filepath.Join(d.dir, name)))(t)
	for _, form := range []string{"html", "md"} {
		d.rath("export", "@last", "--dossier", form, "--out", "copy."+form).want(t, 0)
		d.rath("verify", "copy."+form).want(t, 0, short)
	}

	// One byte of a commit: a text that the page shows and a commit holds.
	const said = "skip empty words"
	logs := bytes.Index(page, []byte("\n\"logs\":["))
	at := logs + bytes.Index(page[max(logs, 0):], []byte(said))
	if logs < 0 || at < logs {
		t.Fatalf("no commit of the dossier holds %q", said)
	}
	flipped := bytes.Clone(page)
	flipped[at] ^= 1
	d.file("flipped.html", string(flipped))
	o := d.rath("verify", "flipped.html")
	o.want(t, 1, "commit")
	if !regexp.MustCompile(`commit \d+`).MatchString(o.stderr) {
		t.Errorf("the first bad commit has no number: %v", o)
	}

	// One byte of the rendered text.
	at = bytes.Index(page, []byte(said))
	flipped = bytes.Clone(page)
	flipped[at] ^= 1
	d.file("rendered.html", string(flipped))
	d.rath("verify", "rendered.html").want(t, 1)

	// The end is cut off and the rest written again: only the head shows it.
	d.rath("export", "@last", "--dossier", "html", "--out", "whole.html").want(t, 0)
	report := d.rath("verify", "whole.html", "--format", "json")
	report.want(t, 0)
	head := regexp.MustCompile(short + `[0-9a-f]{58}`).FindString(report.stdout)
	if head == "" {
		t.Fatalf("the report does not name the head %s: %v", short, report)
	}
	d.rath("verify", "whole.html", "--head", head).want(t, 0)
	d.rath("export", "@last", "--dossier", "json", "--out", "whole.json").want(t, 0)
	data := must.Get(os.ReadFile(filepath.Join(d.dir, "whole.json")))(t)
	e := must.Get(dossier.Decode(data))(t)
	for i := range e.Logs {
		if l := &e.Logs[i]; l.Session == e.Home.ID {
			l.Commits = l.Commits[:len(l.Commits)-1]
		}
	}
	if _, err := dossier.HTML(e); err == nil {
		t.Error("a document is made whose signature is over more than it has")
	}
	e.Signatures = nil
	cut := must.Get(dossier.HTML(e))(t)
	d.file("cut.html", string(cut))
	d.rath("verify", "cut.html").want(t, 0)
	d.rath("verify", "cut.html", "--head", head).want(t, 1, head[:6])

	d.file("empty.html", "")
	d.rath("verify", "empty.html").want(t, 1)
	d.rath("verify", "nothing.html").want(t, 3, "nothing.html")
	d.rath("verify", "whole.html", "--head", "abc").want(t, 2, "64 hexadecimal digits")
}
