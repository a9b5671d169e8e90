package dossier_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/tool"
)

var (
	update = flag.Bool("update", false, "render the golden files anew")
	record = flag.Bool("record", false, "play the run anew that the golden evidence is of")
)

// golden compares with a file. A change in the rendering of old evidence makes old
// documents unverifiable.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must.Do(t, os.WriteFile(path, got, 0o644))
		return
	}
	want := read(t, name)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got). If the change is meant, raise dossier.Layout (unless it was raised since the last release) and run with -update:\n%s", path, diff)
	}
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	data := must.Get(os.ReadFile(filepath.Join("testdata", name)))(t)
	return data
}

// sample returns stored evidence of the fix, so that only this package is under test.
func sample(t testing.TB) *dossier.Evidence {
	t.Helper()
	e := must.Get(dossier.Decode(read(t, "fix.json")))(t)
	return e
}

func TestGolden(t *testing.T) {
	if *record {
		_, e := played(t)
		doc := must.Get(e.Encode())(t)
		must.Do(t, os.WriteFile(filepath.Join("testdata", "fix.json"), doc, 0o644))
	}
	docs := render(t, sample(t))
	golden(t, "fix.html", docs[dossier.FormHTML])
	golden(t, "fix.md", docs[dossier.FormMarkdown])
	golden(t, "fix.json", docs[dossier.FormJSON])
	for form, doc := range docs {
		r, err := dossier.Verify(doc, nil)
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		if r.Form != form || r.Run != fixRun || r.Home != home || r.Commits != 32 || len(r.Sessions) != 3 || r.Anchored > 0 {
			t.Errorf("%s: %+v", form, r)
		}
	}
}

// TestFacts checks the facts of a run that is played now.
func TestFacts(t *testing.T) {
	_, e := played(t)
	f := must.Get(dossier.Read(e))(t)
	want := dossier.Numbers{Sessions: 3, ModelCalls: 7, ToolCalls: 6, Tokens: 3570, Commits: f.Numbers.Commits}
	if diff := cmp.Diff(want, f.Numbers); diff != "" || f.Numbers.Commits < 20 {
		t.Errorf("numbers (-want +got):\n%s", diff)
	}
	if f.Verdict != "The run succeeded: s3 adopted, 1 branch rejected." {
		t.Errorf("verdict %q", f.Verdict)
	}
	if len(f.Rejections) != 1 || !strings.HasPrefix(f.Rejections[0].Reason, "breaks empty input: not ok 2 </script>") {
		t.Errorf("rejections %+v", f.Rejections)
	}
	if len(f.Memory) != 2 || f.Memory[0].Write || !f.Memory[1].Write || !strings.HasPrefix(f.Memory[0].Notes[0].Text, "An empty title once broke slug.sh") {
		t.Errorf("memory %+v", f.Memory)
	}
	if len(f.Decisions) != 2 || f.Decisions[1].By != "ana" {
		t.Errorf("decisions %+v", f.Decisions)
	}
	if len(f.Prompts) != 7 {
		t.Errorf("%d prompts", len(f.Prompts))
	}
	shown := map[string][]int{}
	for _, in := range f.Instructions {
		if in.What == "prompt" {
			shown[in.Text.Shown] = in.Steps
		} else if in.What != "tools" || !strings.Contains(in.Text.Shown, tool.WriteWorkspaceFile) || len(in.Steps) != 6 {
			t.Errorf("instructions %+v", in)
		}
	}
	if len(f.Instructions) != 4 || len(shown["Plan the work."]) != 1 || len(shown["Be quick."]) != 3 || len(shown["Be careful."]) != 3 {
		t.Errorf("instructions %+v", f.Instructions)
	}
	for _, s := range f.Steps {
		if s.Kind != journal.StepTool {
			continue
		}
		switch {
		case strings.Contains(s.Text, "announce"):
			wantAttempts := []dossier.Attempt{{N: 1, What: "announced"}, {N: 3, What: "recorded"}}
			if diff := cmp.Diff(wantAttempts, s.Attempts); diff != "" || s.Effect != "non_idempotent" {
				t.Errorf("announce has effect %q and attempts (-want +got):\n%s", s.Effect, diff)
			}
		case s.Effect != "sandboxed" || s.Before.IsZero() || s.After.IsZero() || s.Args.Empty() || s.Body.Empty():
			t.Errorf("step %d, %s: effect %q, head %s to %s, called with %q, returned %q", s.N, s.Text, s.Effect, s.Before, s.After, s.Args.Shown, s.Body.Shown)
		}
	}
}

// TestHostileText checks that no text of the run escapes its code span or element.
func TestHostileText(t *testing.T) {
	docs := render(t, sample(t))
	page := string(docs[dossier.FormHTML])
	page, evidence, _ := strings.Cut(page, `<script type="application/json" id="evidence">`)
	if n := strings.Count(strings.ToLower(page+evidence), "<script"); n != 0 {
		t.Errorf("the page has %d more scripts", n)
	}
	if strings.Count(evidence, "<") != 3 || !strings.HasSuffix(evidence, "</script>\n</body>\n</html>\n") {
		t.Error("the evidence holds markup")
	}
	for _, bad := range []string{"<img", "<iframe", "<link", "<base", "<form", "<object", `href="http`, `href="javascript`, "url(", "@import"} {
		if strings.Contains(strings.ToLower(page), bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	for _, tag := range regexp.MustCompile(`<[a-zA-Z][^>]*>`).FindAllString(page, -1) {
		if regexp.MustCompile(`(?i)\s(on[a-z]+|src|style|srcset|action|background)=`).MatchString(tag) {
			t.Errorf("the page has the tag %s", tag)
		}
	}
	for _, want := range []string{"default-src &#39;none&#39;", "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;", "⟦U&#43;202E⟧", "⟦U&#43;200B⟧", "red link"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	mark := string(docs[dossier.FormMarkdown])
	if strings.Count(mark, "\n-->") != 1 || !strings.HasSuffix(mark, "\n-->\n") {
		t.Error("the comment with the evidence ends early")
	}
	mark, _, _ = strings.Cut(mark, "<!-- rath evidence")
	for n, line := range outside(mark) {
		if strings.ContainsAny(line, "<>") {
			t.Errorf("line %d has markup outside of code: %s", n+1, line)
		}
	}
	for form, doc := range map[string]string{"html": page, "markdown": mark} {
		for _, r := range doc {
			if r < ' ' && r != '\n' && r != '\t' || r == 0x202e || r == 0x200b || r == 0x2028 {
				t.Fatalf("%s holds %U", form, r)
			}
		}
	}
}

// outside returns the lines of Markdown without its code and without our own
// anchors.
func outside(text string) []string {
	lines := strings.Split(text, "\n")
	fence := ""
	for i, line := range lines {
		ticks := line[:len(line)-len(strings.TrimLeft(line, "`"))]
		switch {
		case fence != "":
			if line == fence {
				fence = ""
			}
			lines[i] = ""
		case len(ticks) >= 3 && !strings.Contains(line[len(ticks):], "`"):
			fence, lines[i] = ticks, ""
		default:
			lines[i] = anchor.ReplaceAllString(withoutCode(line), "")
		}
	}
	return lines
}

var anchor = regexp.MustCompile(`<a id="t[0-9]+"></a>`)

// withoutCode removes the code spans of a line as CommonMark defines them: a run of
// backticks up to the next run of the same length.
func withoutCode(line string) string {
	var b strings.Builder
	for line != "" {
		i := strings.IndexByte(line, '`')
		if i < 0 {
			break
		}
		b.WriteString(line[:i])
		line = line[i:]
		n := len(line) - len(strings.TrimLeft(line, "`"))
		end := -1
		for at := n; at < len(line); {
			j := strings.IndexByte(line[at:], '`')
			if j < 0 {
				break
			}
			at += j
			m := len(line[at:]) - len(strings.TrimLeft(line[at:], "`"))
			if at += m; m == n {
				end = at
				break
			}
		}
		if end < 0 {
			b.WriteString(line[:n])
			line = line[n:]
			continue
		}
		line = line[end:]
	}
	return b.String() + line
}
