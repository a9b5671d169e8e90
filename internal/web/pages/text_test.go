package pages

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestShown: each character of a text is visible, and none acts.
func TestShown(t *testing.T) {
	for text, want := range map[string]string{
		"plain\ttext\n":       "plain\ttext\n",
		"<a href='x'>&":       "&lt;a href=&#39;x&#39;&gt;&amp;",
		"a\u202eb":            `a<span class="esc">U+202E</span>b`,
		"a\u200bb\x00":        `a<span class="esc">U+200B</span>b<span class="esc">NUL</span>`,
		"\x1b[31m\r":          `<span class="esc">ESC</span>[31m<span class="esc">CR</span>`,
		"a\xffb":              `a<span class="esc">byte FF</span>b`,
		"p\u0430y":            `pаy<span class="esc">not Latin: а</span>`,
		"мир":                 "мир",
		"e\u0301\u0301\u0301": "e\u0301\u0301" + `<span class="esc">U+0301</span>`,
		"a\u00a0b\u3164":      `a<span class="esc">NBSP</span>b<span class="esc">U+3164</span>`,
		"\U000e0041":          `<span class="esc">U+E0041</span>`,
	} {
		if got := string(shown(text)); got != want {
			t.Errorf("shown(%q) is %q, want %q", text, got, want)
		}
	}
	if n := hiddenIn("a\u202eb\u200bc"); n != 2 {
		t.Errorf("%d hidden characters, want 2", n)
	}
	if got := string(shown("key sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH")); strings.Contains(got, "abcdefghijklmnop") {
		t.Errorf("a credential is shown: %s", got)
	}
	long := strings.Repeat("ä", 5<<20)
	if got := string(clipped(long, 4097)); len(got) > 5000 || !utf8.ValidString(got) || !strings.Contains(got, "more bytes") {
		t.Errorf("a long line has %d bytes", len(got))
	}
}

// FuzzShown: no text escapes from its place.
func FuzzShown(f *testing.F) {
	f.Add("<b>\u202e")
	f.Fuzz(func(t *testing.T, text string) {
		for _, out := range []string{string(shown(text)), string(clipped(text, 10))} {
			bare := out
			for _, ours := range []string{`<span class="esc">`, `<span class="dim">`, "</span>"} {
				bare = strings.ReplaceAll(bare, ours, "")
			}
			if strings.ContainsAny(bare, "<>\"'\u202e\u200b\x00") || !utf8.ValidString(out) {
				t.Errorf("shown(%q) is %q", text, out)
			}
		}
		if strings.ContainsAny(plain(text), "\u202e\n\x00") {
			t.Errorf("plain(%q) is %q", text, plain(text))
		}
	})
}

// TestMarkdown: an answer is formatted, and its markup, links and pictures are text.
func TestMarkdown(t *testing.T) {
	got := string(markdown("**bold** `code` <b>x</b> [a](javascript:1) ![p](https://e/x.png) <https://auto.example>\n\n<script>\n1\n</script>\n\n- one\n\n```\n<i>\n```\n| a |\n|---|\n| <u> |\n"))
	for _, want := range []string{"<strong>bold</strong>", "<code>code</code>", "&lt;b&gt;x", "javascript:1", "https://e/x.png", "https://auto.example", "&lt;script&gt;", "<li>one", "&lt;i&gt;", "&lt;u&gt;"} {
		if !strings.Contains(got, want) {
			t.Errorf("it lacks %s:\n%s", want, got)
		}
	}
	for _, not := range []string{"<script", "<img", "href=", "src=", "<b>", "<i>", "<u>", "style="} {
		if strings.Contains(got, not) {
			t.Errorf("it has %s:\n%s", not, got)
		}
	}
}
