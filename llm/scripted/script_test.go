package scripted_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
)

func research(t testing.TB) *scripted.Script {
	t.Helper()
	data, err := os.ReadFile("testdata/research.txtar")
	if err != nil {
		t.Fatal(err)
	}
	s, err := scripted.Parse("research.txtar", data)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParse(t *testing.T) {
	s := research(t)
	if len(s.Rules) != 10 || !strings.HasPrefix(s.Comment, "A researcher") {
		t.Fatalf("%d rules, comment %q", len(s.Rules), s.Comment)
	}
	want := []scripted.Rule{
		{
			Name:  "plan-overloaded",
			When:  []scripted.Cond{{Key: scripted.KeySystem, Value: "You are the planner"}, {Key: scripted.KeyAttempt, Value: "1"}},
			Reply: scripted.Reply{Code: llm.CodeOverloaded, RetryAfter: 1500 * time.Millisecond, Text: "The planner is busy."},
		},
		{
			Name:  "plan",
			When:  []scripted.Cond{{Key: scripted.KeySystem, Value: "You are the planner"}},
			Reply: scripted.Reply{Text: "1. search\n2. write", Usage: llm.Usage{Input: 40, Output: 6, CacheRead: 32}},
		},
		{
			Name: "search",
			When: []scripted.Cond{{Key: scripted.KeySystem, Value: "You are the researcher"}, {Key: scripted.KeyResult, Not: true, Value: "web_search"}},
			Reply: scripted.Reply{Reasoning: "I should look it up first.", Calls: []llm.ToolCall{
				{ID: "c1", Name: "web_search", Args: `{"q": "durable execution", "n": 3}`},
				{Name: "read_file", Args: `{"path":"notes.md"}`},
			}},
		},
	}
	if diff := cmp.Diff(want, s.Rules[:3]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]scripted.File{{Name: "work/notes.md", Data: []byte("# Notes\nkey: value\n")}}, s.Files); diff != "" {
		t.Error(diff)
	}
	last := s.Rules[9].Reply
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
			s, err := scripted.Parse("s", []byte(c.script))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v; want %q", s, err, c.want)
			}
		})
	}
}

// equal ignores the name, which is not part of the format, and the difference
// between nil and empty.
var equal = cmp.Options{cmpopts.IgnoreFields(scripted.Script{}, "Name"), cmpopts.EquateEmpty()}

func TestFormatIsTheInverse(t *testing.T) {
	texts := []string{
		"", "plain", "two\nlines", "ends\n", "\nbegins", " spaces ", "tab\tinside", "cr\rlf\r\n", `"quoted"`, "# no comment",
		"-- a --", "x\n-- a --\ny", "key: value", "nul\x00", "\uFEFFbom", "nel\u0085", "  \n x", "a\n\n\nb", "日本語 🙂", "line\u2028sep",
	}
	s := &scripted.Script{Comment: "A comment.\n\nWith a blank line."}
	for i, x := range texts {
		r := scripted.Rule{Name: strings.Repeat("r", i+1), Times: i, Reply: scripted.Reply{
			Text: x, Reasoning: x, Echo: i%2 == 0, Delay: time.Duration(i) * time.Millisecond, Gap: time.Duration(i), RetryAfter: time.Duration(i) * time.Second,
			Usage: llm.Usage{Input: int64(i), MicroUSD: int64(i / 2)},
			Calls: []llm.ToolCall{{Name: "f", Args: x}, {Name: "g", ID: "id", Args: x}, {Name: "h", Args: "@" + x}, {Name: "k", Args: ` {"a":1}`}, {Name: "l", Args: `{"a":1}`}},
		}}
		if x != "" {
			r.When = []scripted.Cond{{Key: scripted.KeyUser, Value: x}, {Key: scripted.KeyContains, Not: true, Value: x}}
		}
		s.Rules = append(s.Rules, r)
	}
	s.Rules = append(
		s.Rules,
		scripted.Rule{Name: "code", Reply: scripted.Reply{Code: llm.CodeQuota, Status: 402, Text: "pay"}},
		scripted.Rule{Name: "fault", Reply: scripted.Reply{Fault: scripted.FaultTruncate, Text: "x", Finish: llm.FinishLength}},
	)
	s.Files = []scripted.File{{Name: "work/a", Data: []byte("a\n")}, {Name: "work/b"}}
	for _, s := range []*scripted.Script{s, scripted.Echo(), research(t)} {
		data, err := s.Format()
		if err != nil {
			t.Fatal(err)
		}
		back, err := scripted.Parse("back", data)
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		if diff := cmp.Diff(s, back, equal); diff != "" {
			t.Errorf("%s\n%s", diff, data)
		}
	}
}

func TestFormatRefusesWhatCannotBeRead(t *testing.T) {
	ok := scripted.Reply{Text: "x"}
	for name, s := range map[string]*scripted.Script{
		"no rules":      {},
		"marker":        {Comment: "-- a --", Rules: []scripted.Rule{{Name: "a", Reply: ok}}},
		"rule name":     {Rules: []scripted.Rule{{Name: " a", Reply: ok}}},
		"rule newline":  {Rules: []scripted.Rule{{Name: "a\nb", Reply: ok}}},
		"rule is file":  {Rules: []scripted.Rule{{Name: "work/a", Reply: ok}}},
		"bad text":      {Rules: []scripted.Rule{{Name: "a", Reply: scripted.Reply{Text: "\xff"}}}},
		"bad call":      {Rules: []scripted.Rule{{Name: "a", Reply: scripted.Reply{Calls: []llm.ToolCall{{Name: "a b"}}}}}},
		"bad condition": {Rules: []scripted.Rule{{Name: "a", When: []scripted.Cond{{Key: "mood", Value: "x"}}, Reply: ok}}},
		"usage":         {Rules: []scripted.Rule{{Name: "a", Reply: scripted.Reply{Usage: llm.Usage{Input: -1}}}}},
		"file newline":  {Rules: []scripted.Rule{{Name: "a", Reply: ok}}, Files: []scripted.File{{Name: "work/a", Data: []byte("x")}}},
		"file name":     {Rules: []scripted.Rule{{Name: "a", Reply: ok}}, Files: []scripted.File{{Name: "a"}}},
	} {
		if data, err := s.Format(); err == nil {
			t.Errorf("%s: formatted as\n%s", name, data)
		}
		if _, err := scripted.New(s, nil); err == nil {
			t.Errorf("%s: used", name)
		}
	}
}

// A checkout on Windows must not change what a script says.
func TestCRLF(t *testing.T) {
	data, err := os.ReadFile("testdata/research.txtar")
	if err != nil {
		t.Fatal(err)
	}
	s, err := scripted.Parse("crlf", bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(research(t).Rules, s.Rules); diff != "" {
		t.Error(diff)
	}
}

func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("testdata/research.txtar")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("-- a --\ntext: \"\\u2028\"\ncall: f @ {}\nraw-call: g  x\n"))
	f.Add([]byte("c\n-- a --\nnot user: \" x\"\n\n\n hello \n\n-- work/x --\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := scripted.Parse("fuzz", data)
		if err != nil {
			return
		}
		out, err := s.Format()
		if err != nil {
			t.Fatalf("parsed but not formatted: %v", err)
		}
		back, err := scripted.Parse("back", out)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if diff := cmp.Diff(s, back, equal); diff != "" {
			t.Fatalf("%s\n%q", diff, out)
		}
	})
}
