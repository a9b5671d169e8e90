package scripted

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

func research(t testing.TB) *Script {
	t.Helper()
	data := must.Get(os.ReadFile("testdata/research.txtar"))(t)
	s := must.Get(Parse("research.txtar", data))(t)
	return s
}

func TestParse(t *testing.T) {
	s := research(t)
	if len(s.rules) != 10 || !strings.HasPrefix(s.Comment, "A researcher") {
		t.Fatalf("%d rules, comment %q", len(s.rules), s.Comment)
	}
	want := []rule{
		{
			Name:  "plan-overloaded",
			When:  []cond{{Key: keySystem, Value: "You are the planner"}, {Key: keyAttempt, Value: "1"}},
			Reply: reply{Code: llm.CodeOverloaded, RetryAfter: 1500 * time.Millisecond, Text: "The planner is busy."},
		},
		{
			Name:  "plan",
			When:  []cond{{Key: keySystem, Value: "You are the planner"}},
			Reply: reply{Text: "1. search\n2. write", Usage: session.Usage{Input: 40, Output: 6, CacheRead: 32}},
		},
		{
			Name: "search",
			When: []cond{{Key: keySystem, Value: "You are the researcher"}, {Key: keyResult, Not: true, Value: "web_search"}},
			Reply: reply{Reasoning: "I should look it up first.", Calls: []session.ToolCall{
				{ID: "c1", Name: "web_search", Args: `{"q": "durable execution", "n": 3}`},
				{Name: "read_file", Args: `{"path":"notes.md"}`},
			}},
		},
	}
	if diff := cmp.Diff(want, s.rules[:3]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]file{{Name: "work/notes.md", Data: []byte("# Notes\nkey: value\n")}}, s.files); diff != "" {
		t.Error(diff)
	}
	last := s.rules[9].Reply
	if !last.Echo || last.Text != "You said: " {
		t.Errorf("default: %+v", last)
	}
}

func TestParseErrorsNameTheLine(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"empty", "", "no rules"},
		{"only a comment", "hello", "no rules"},
		{"no colon", "x\n-- a --\nuser: hi\nHello!\n", `s:4: rule a: line "Hello!": want "key: value"`},
		{"unknown key", "-- a --\nuser: hi\nsays: x\n", `s:3: rule a: says: there is no such key`},
		{"unknown not", "-- a --\nnot times: 3\n\nx\n", `there is no such key`},
		{"says nothing", "-- a --\nuser: hi\n", `s:2: rule a: says nothing`},
		{"later rule", "-- a --\n\nhi\n\n-- b --\nturn: 0\n\nx\n", `s:6: rule b: turn: "0": want a number from 1 on`},
		{"quote", "-- a --\ntext: \"abc\n", "s:2: rule a: text: the quoted text is not a Go string"},
		{"two texts", "-- a --\ntext: x\n\ny\n", "another one in text:"},
		{"twice", "-- a --\ndelay: 1s\ndelay: 2s\n\ny\n", "delay: is there twice"},
		{"json", "-- a --\ncall: f {x}\n", "are not JSON (raw-call: takes anything)"},
		{"call", "-- a --\ncall:\n", `want "name {arguments}"`},
		{"finish", "-- a --\nfinish: done\n\nx\n", `finish: "done"`},
		{"finish without call", "-- a --\nfinish: tool_calls\n\nx\n", "needs a call"},
		{"usage", "-- a --\nusage: in=3\n\nx\n", "in=3: want input=N"},
		{"usage number", "-- a --\nusage: input=x\n\nx\n", "input=x: want a number"},
		{"delay", "-- a --\ndelay: 3\n\nx\n", "want a duration"},
		{"code", "-- a --\ncode: sad\n", `code: "sad" is none of`},
		{"status", "-- a --\nstatus: 200\n", "want 300 to 599"},
		{"fault", "-- a --\nfault: gremlins\n", `fault: "gremlins"`},
		{"fault and status", "-- a --\nfault: hang\nstatus: 500\n", "does not go with"},
		{"echo", "-- a --\necho: loud\n", "echo: want true or false"},
		{"same name", "-- a --\n\nx\n-- a --\n\ny\n", "two rules of that name"},
		{"empty value", "-- a --\nuser:\n\nx\n", "user: want a text"},
		{"not UTF-8", "-- a --\n\n\xff\n", "not valid UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Parse("s", []byte(c.script))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v; want %q", s, err, c.want)
			}
		})
	}
}

// equal ignores the name, which is not part of the format, and the difference
// between nil and empty.
var equal = cmp.Options{cmp.AllowUnexported(Script{}), cmpopts.IgnoreFields(Script{}, "Name"), cmpopts.EquateEmpty()}

func TestFormatIsTheInverse(t *testing.T) {
	texts := []string{
		"", "plain", "two\nlines", "ends\n", "\nbegins", " spaces ", "tab\tinside", "cr\rlf\r\n", `"quoted"`, "# no comment",
		"-- a --", "x\n-- a --\ny", "key: value", "nul\x00", "\uFEFFbom", "nel\u0085", "  \n x", "a\n\n\nb", "日本語 🙂", "line\u2028sep",
	}
	s := &Script{Comment: "A comment.\n\nWith a blank line."}
	for i, x := range texts {
		r := rule{Name: strings.Repeat("r", i+1), Times: i, Reply: reply{
			Text: x, Reasoning: x, Echo: i%2 == 0, Delay: time.Duration(i) * time.Millisecond, Gap: time.Duration(i), RetryAfter: time.Duration(i) * time.Second,
			Usage: session.Usage{Input: int64(i), MicroUSD: int64(i / 2)},
			Calls: []session.ToolCall{{Name: "f", Args: x}, {Name: "g", ID: "id", Args: x}, {Name: "h", Args: "@" + x}, {Name: "k", Args: ` {"a":1}`}, {Name: "l", Args: `{"a":1}`}},
		}}
		if x != "" {
			r.When = []cond{{Key: keyUser, Value: x}, {Key: keyContains, Not: true, Value: x}}
		}
		s.rules = append(s.rules, r)
	}
	s.rules = append(
		s.rules,
		rule{Name: "code", Reply: reply{Code: llm.CodeQuota, Status: 402, Text: "pay"}},
		rule{Name: "fault", Reply: reply{Fault: faultTruncate, Text: "x", Finish: llm.FinishLength}},
	)
	s.files = []file{{Name: "work/a", Data: []byte("a\n")}, {Name: "work/b"}}
	for _, s := range []*Script{s, Echo(), research(t)} {
		data, err := s.Format()
		must.Do(t, err)
		back, err := Parse("back", data)
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		if diff := cmp.Diff(s, back, equal); diff != "" {
			t.Errorf("%s\n%s", diff, data)
		}
	}
}

func TestFormatRefusesWhatCannotBeRead(t *testing.T) {
	ok := reply{Text: "x"}
	for name, s := range map[string]*Script{
		"no rules":      {},
		"marker":        {Comment: "-- a --", rules: []rule{{Name: "a", Reply: ok}}},
		"rule name":     {rules: []rule{{Name: " a", Reply: ok}}},
		"rule newline":  {rules: []rule{{Name: "a\nb", Reply: ok}}},
		"rule is file":  {rules: []rule{{Name: "work/a", Reply: ok}}},
		"bad text":      {rules: []rule{{Name: "a", Reply: reply{Text: "\xff"}}}},
		"bad call":      {rules: []rule{{Name: "a", Reply: reply{Calls: []session.ToolCall{{Name: "a b"}}}}}},
		"bad condition": {rules: []rule{{Name: "a", When: []cond{{Key: "mood", Value: "x"}}, Reply: ok}}},
		"usage":         {rules: []rule{{Name: "a", Reply: reply{Usage: session.Usage{Input: -1}}}}},
		"file newline":  {rules: []rule{{Name: "a", Reply: ok}}, files: []file{{Name: "work/a", Data: []byte("x")}}},
		"file name":     {rules: []rule{{Name: "a", Reply: ok}}, files: []file{{Name: "a"}}},
	} {
		if data, err := s.Format(); err == nil {
			t.Errorf("%s: formatted as\n%s", name, data)
		}
		if _, err := New(s, nil); err == nil {
			t.Errorf("%s: used", name)
		}
	}
}

// A checkout on Windows must not change the meaning of a script.
func TestCRLF(t *testing.T) {
	data := must.Get(os.ReadFile("testdata/research.txtar"))(t)
	s := must.Get(Parse("crlf", bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))))(t)
	if diff := cmp.Diff(research(t).rules, s.rules); diff != "" {
		t.Error(diff)
	}
}

func FuzzParse(f *testing.F) {
	data := must.Get(os.ReadFile("testdata/research.txtar"))(f)
	f.Add(data)
	f.Add([]byte("-- a --\ntext: \"\\u2028\"\ncall: f @ {}\nraw-call: g  x\n"))
	f.Add([]byte("c\n-- a --\nnot user: \" x\"\n\n\n hello \n\n-- work/x --\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("fuzz", data)
		if err != nil {
			return
		}
		out, err := s.Format()
		if err != nil {
			t.Fatalf("parsed but not formatted: %v", err)
		}
		back, err := Parse("back", out)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if diff := cmp.Diff(s, back, equal); diff != "" {
			t.Fatalf("%s\n%q", diff, out)
		}
	})
}

// TestWriteFilesOutside: a script writes below the directory that it is given, and
// nowhere else.
func TestWriteFilesOutside(t *testing.T) {
	for _, name := range []string{"work/../outside", "work/a/../../outside", "work//outside", "work/"} {
		s := must.Get(Parse("files", []byte("-- a --\n\nx\n\n-- "+name+" --\nx\n")))(t)
		parent := t.TempDir()
		if _, err := s.WriteFiles(filepath.Join(parent, "files")); err == nil || !strings.Contains(err.Error(), "file "+name) {
			t.Errorf("%s: %v", name, err)
		}
		if there, err := os.ReadDir(parent); err != nil || len(there) > 0 {
			t.Errorf("%s: wrote %v, %v", name, there, err)
		}
	}
}
