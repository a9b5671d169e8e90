package dossier

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// sequences matches terminal sequences: CSI and OSC sequences, the latter up to their
// end or the end of the line, and other two-character escapes.
var sequences = regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b\n]*(?:\x07|\x1b\\\\)?|[@-Z\\\\^_]|[ -/]+[0-~])|\u009b[0-?]*[ -/]*[@-~]")

// plain removes terminal sequences from a text of the run and makes characters visible
// that would hide or reorder the text around them.
func plain(s string) string {
	if strings.ContainsAny(s, "\x1b\u009b") {
		s = sequences.ReplaceAllString(s, "")
	}
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return visible(s)
}

// visible replaces control characters and invisible characters, one by one.
func visible(s string) string {
	clean := true
	for _, r := range s {
		if hidden(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			fmt.Fprintf(&b, "⟦U+%04X⟧", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// hidden reports whether a character controls or reorders text, or is invisible.
func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20, r >= 0x7f && r < 0xa0:
		return true
	case r < 0x300:
		return r == 0xad
	case r == 0x200d: // joins emoji
		return false
	case r == 0x2028, r == 0x2029, r == 0x3164, r == 0xffa0, r == 0x115f, r == 0x1160, r == 0x2800:
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs)
}

// one returns a text on one line, at most limit characters.
func one(s string, limit int) string {
	return clip(strings.Join(strings.Fields(plain(clip(s, 8*limit))), " "), limit)
}

// clip cuts s to limit characters, the last of which marks the cut.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	n := 0
	for i := range s {
		if n++; n == limit {
			if i+utf8.RuneLen(firstRune(s[i:])) == len(s) {
				return s
			}
			return s[:i] + "…"
		}
	}
	return s
}

func firstRune(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

// maxText is the maximum number of characters of a text in the rendering.
const maxText = 3000

// Text is a text of the run for display: cut, without terminal sequences and with hidden
// characters made visible.
type Text struct {
	Shown string
	More  int // characters that are only in the commit
}

func textOf(s string) Text {
	n := utf8.RuneCountInString(s)
	if n <= maxText {
		return Text{Shown: plain(s)}
	}
	cut := 0
	for i := range s {
		if cut == maxText {
			return Text{Shown: plain(s[:i]), More: n - maxText}
		}
		cut++
	}
	return Text{Shown: plain(s)}
}

// Empty reports whether the text is empty.
func (t Text) Empty() bool { return t.Shown == "" }

// took formats milliseconds for display.
func took(ms int64) string {
	switch {
	case ms < 1000:
		return fmt.Sprintf("%d ms", ms)
	case ms < 60_000:
		return fmt.Sprintf("%d.%d s", ms/1000, ms%1000/100)
	case ms < 3_600_000:
		return fmt.Sprintf("%d min %d s", ms/60_000, ms%60_000/1000)
	}
	return fmt.Sprintf("%d h %d min", ms/3_600_000, ms%3_600_000/60_000)
}

// bytesOf formats a size for display.
func bytesOf(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%d KiB", (n+1<<9)>>10)
	}
	return fmt.Sprintf("%d MiB", (n+1<<19)>>20)
}

// differ returns the number of the first line in which two texts differ, from
// 1, and both lines; 0 if they are the same.
func differ(got, want string) (n int, g, w string) {
	if got == want {
		return 0, "", ""
	}
	for n = 1; ; n++ {
		var moreG, moreW bool
		g, got, moreG = strings.Cut(got, "\n")
		w, want, moreW = strings.Cut(want, "\n")
		if g != w || moreG != moreW {
			return n, g, w
		}
	}
}
