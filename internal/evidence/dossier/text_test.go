package dossier

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rathcluster/rath/internal/core/excerpt"
)

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"":                      "",
		"a\tb\nc":               "a\tb\nc",
		"a\r\nb\rc":             "a\nb⟦U+000D⟧c",
		"\x1b[1;31mred\x1b[0m":  "red",
		"\x1b]0;title\x07text":  "text",
		"\x1b]8;;x\x1b\\link":   "link",
		"\x1b]0;never\nended":   "\nended",
		"\x1bcreset":            "⟦U+001B⟧creset",
		"\u009b31mred":          "red",
		"a\x00b\u202ec\u2066d":  "a⟦U+0000⟧b⟦U+202E⟧c⟦U+2066⟧d",
		"zero\u200bwidth\ufeff": "zero⟦U+200B⟧width⟦U+FEFF⟧",
		"näher 東京 👩\u200d💻":     "näher 東京 👩\u200d💻",
		"\U000e0041tag":         "⟦U+E0041⟧tag",
	} {
		if got := plain(in); got != want {
			t.Errorf("plain(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestClip(t *testing.T) {
	for _, tt := range []struct {
		in    string
		limit int
		want  string
	}{{"", 1, ""}, {"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"äöü", 3, "äöü"}, {"äöüß", 3, "äö…"}, {"äöü", 2, "ä…"}} {
		got := clip(tt.in, tt.limit)
		if got != tt.want || utf8.RuneCountInString(got) > tt.limit {
			t.Errorf("clip(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := excerpt.Thousands(n); got != want {
			t.Errorf("lineage.Thousands(%d) = %s, want %s", n, got, want)
		}
	}
	for ms, want := range map[int64]string{0: "0 ms", 999: "999 ms", 1250: "1.2 s", 61_000: "1 min 1 s", 7_260_000: "2 h 1 min"} {
		if got := took(ms); got != want {
			t.Errorf("took(%d) = %s, want %s", ms, got, want)
		}
	}
}

// FuzzCode checks that no text ends its code span or its block, and that a
// bar in a cell never ends the cell.
func FuzzCode(f *testing.F) {
	for _, s := range []string{"", "a", "`", "``a`", "a`", "a|b`|", "\n```\n", "~~~", `\|`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := code(s)
		if strings.ContainsAny(got, "\n\r") {
			t.Fatalf("code(%q) = %q has more than one line", s, got)
		}
		if got != "" {
			fence := got[:len(got)-len(strings.TrimLeft(got, "`"))]
			inner := strings.TrimSuffix(strings.TrimPrefix(got, fence), fence)
			if longest(inner, '`') >= len(fence) || len(got) != len(inner)+2*len(fence) {
				t.Fatalf("code(%q) = %q ends early", s, got)
			}
		}
		m := marker{f: &Facts{}}
		m.block("text", s)
		lines := strings.Split(strings.TrimSuffix(m.b.String(), "\n"), "\n")
		fence := strings.TrimSuffix(lines[0], "text")
		for _, l := range lines[1 : len(lines)-1] {
			if strings.Contains(l, fence) {
				t.Fatalf("block(%q) ends early: %q", s, m.b.String())
			}
		}
		for i, r := range cell(s) {
			if r == '|' && (i == 0 || cell(s)[i-1] != '\\') {
				t.Fatalf("cell(%q) = %q ends the cell", s, cell(s))
			}
		}
	})
}
