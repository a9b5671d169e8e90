package term_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/internal/testkit/must"
)

func TestCleanKeepsTextAndDropsWhatSteers(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\nmore":                    "plain\ttext\nmore",
		"\x1b[31mred\x1b[0m":                   "red",
		"\x1b]0;title\x07after":                "after",
		"\x1b]8;;http://x\x1b\\link\x1b]8;;\a": "link",
		"\x1bcreset":                           "reset",
		"\x1bPq#0\x1b\\sixel":                  "sixel",
		"a\rb":                                 "a\ufffdb",
		"a\r\nb":                               "a\nb",
		"back\bspace":                          "back\ufffdspace",
		"right\u202eleft":                      "right\ufffdleft",
		"\u009b31mred":                         "red",
		"bad\xffbyte":                          "bad\ufffdbyte",
		"trailing escape \x1b":                 "trailing escape \ufffd",
		"żółw 👩‍💻 日本":                          "żółw 👩‍💻 日本",
	} {
		if got := term.Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("\x1b[1;2H\x1b]0;x\x07\u009b1m")
	f.Fuzz(func(t *testing.T, s string) {
		got := term.Clean(s)
		for _, r := range got {
			if r == 0x1b || r == 0x9b || r == '\r' || r < 0x20 && r != '\n' && r != '\t' {
				t.Fatalf("Clean(%q) keeps %U", s, r)
			}
		}
		if again := term.Clean(got); again != got {
			t.Fatalf("Clean is not stable on %q: %q, then %q", s, got, again)
		}
	})
}

func TestWidthAndClip(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		room  int
		want  string
	}{
		{"abcdef", 6, 6, "abcdef"},
		{"abcdef", 6, 5, "abcd…"},
		{"日本語", 6, 6, "日本語"},
		{"日本語", 6, 5, "日本…"},
		{"日本語", 6, 4, "日…"},
		{"e\u0301te\u0301", 3, 3, "e\u0301te\u0301"},
		{"ab cd", 5, 4, "ab…"},
		{"abc", 3, 0, ""},
	} {
		if got := term.Width(c.in); got != c.width {
			t.Errorf("Width(%q) = %d, want %d", c.in, got, c.width)
		}
		if got := term.Clip(c.in, c.room); got != c.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", c.in, c.room, got, c.want)
		}
	}
}

func TestWrap(t *testing.T) {
	got := term.Wrap("one two three\n\nabcdefghijkl mn", 7)
	want := []string{"one two", "three", "", "abcdefg", "hijkl", "mn"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, l := range term.Wrap(strings.Repeat("日本 ", 40), 9) {
		if term.Width(l) > 9 {
			t.Errorf("%q is wider than 9", l)
		}
	}
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestColourOnlyWhereItIsWanted(t *testing.T) {
	for _, c := range []struct {
		name  string
		opts  term.Options
		paint bool
	}{
		{"piped", term.Options{}, false},
		{"forced", term.Options{Env: env("CLICOLOR_FORCE", "1")}, true},
		{"forced with zero", term.Options{Env: env("CLICOLOR_FORCE", "0")}, false},
		{"NO_COLOR wins", term.Options{Env: env("CLICOLOR_FORCE", "1", "NO_COLOR", "1")}, false},
		{"the flag wins", term.Options{Env: env("NO_COLOR", "1"), Color: "always"}, true},
		{"never", term.Options{Env: env("CLICOLOR_FORCE", "1"), Color: "never"}, false},
	} {
		w := term.New(new(strings.Builder), &c.opts)
		if got := w.Paint(term.Red, "x") != "x"; got != c.paint {
			t.Errorf("%s: painted is %v, want %v", c.name, got, c.paint)
		}
	}
}

// TestMessage: a message is wrapped for people, and stays one line for programs.
func TestMessage(t *testing.T) {
	const long = "rath: the words of a message that is longer than the forty columns"
	if got := term.New(io.Discard, nil).Message(long); got != long {
		t.Errorf("for programs: %q", got)
	}
	got := term.New(io.Discard, &term.Options{Env: env("COLUMNS", "40")}).Message(long)
	if want := "rath: the words of a message that is\nlonger than the forty columns"; got != want {
		t.Errorf("for people: %q", got)
	}
}

func TestPlainWithoutTerminal(t *testing.T) {
	var b strings.Builder
	w := term.New(&b, &term.Options{Env: env("COLUMNS", "100")})
	w.Note("working")
	w.Println("a line")
	w.Note("")
	w.Rows([]string{"ID", "WHAT"}, [][]string{{"1", "日本"}, {"222", "x"}})
	if d := cmp.Diff("a line\nID   WHAT\n1    日本\n222  x\n", b.String()); d != "" {
		t.Error(d)
	}
	if w.Terminal() || w.Width() != 100 {
		t.Errorf("terminal %v, width %d", w.Terminal(), w.Width())
	}
}

func TestErrorsOfTheWriterAreKept(t *testing.T) {
	f := must.Get(os.CreateTemp(t.TempDir(), ""))(t)
	must.Do(t, f.Close())
	w := term.New(f, nil)
	w.Println("lost")
	if !errors.Is(w.Err(), os.ErrClosed) {
		t.Errorf("Err() = %v, want os.ErrClosed", w.Err())
	}
}

// TestRowsOfOneCell: a line about a row widens no column.
func TestRowsOfOneCell(t *testing.T) {
	var b strings.Builder
	term.New(&b, nil).Rows([]string{"A", "B"}, [][]string{{"1", "2"}, {"  > a long line about the row above it"}, {"333", "4"}})
	if want := "A    B\n1    2\n  > a long line about the row above it\n333  4\n"; b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
