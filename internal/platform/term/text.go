package term

import (
	"regexp"
	"strings"
	"unicode"
)

// sequences matches terminal control sequences: CSI and OSC sequences and escapes of two
// characters.
var sequences = regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b\n]*(?:\x07|\x1b\\\\)?|[PX^_][^\x1b\n]*(?:\x1b\\\\)?|[ -/]+[0-~]|[0-~])|\u009b[0-?]*[ -/]*[@-~]")

// Clean returns an external text that is safe to write to a terminal. It keeps line breaks
// and tabs, removes control sequences, and replaces characters that control, reorder or are
// invisible by U+FFFD.
func Clean(s string) string {
	if strings.ContainsAny(s, "\x1b\u009b") {
		s = sequences.ReplaceAllString(s, "")
	}
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && hidden(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}

func hidden(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r < 0xa0, r == 0x2028, r == 0x2029:
		return true
	case r == 0x200d, r == 0xfe0f: // parts of emoji
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf)
}

// Line returns a text from elsewhere on one line of at most width columns.
func Line(s string, width int) string {
	if len(s) > 16*width {
		s = s[:16*width]
	}
	return Clip(strings.Join(strings.Fields(Clean(s)), " "), width)
}

// Width returns the number of columns of a text without control characters.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n += columns(r)
	}
	return n
}

// Clip cuts a text to a number of columns, the last of which marks the cut.
func Clip(s string, width int) string {
	if width <= 0 {
		return ""
	}
	n, cut := 0, 0
	for i, r := range s {
		c := columns(r)
		if n+c <= width-1 {
			cut = i + len(string(r))
		}
		if n += c; n > width {
			return strings.TrimRight(s[:cut], " ") + "…"
		}
	}
	return s
}

// Pad returns s followed by spaces up to a width.
func Pad(s string, width int) string { return s + strings.Repeat(" ", max(width-Width(s), 0)) }

// wide are the characters that take two columns.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1},
		{Lo: 0x2e80, Hi: 0x303e, Stride: 1},
		{Lo: 0x3041, Hi: 0xa4cf, Stride: 1},
		{Lo: 0xac00, Hi: 0xd7a3, Stride: 1},
		{Lo: 0xf900, Hi: 0xfaff, Stride: 1},
		{Lo: 0xfe30, Hi: 0xfe6f, Stride: 1},
		{Lo: 0xff00, Hi: 0xff60, Stride: 1},
		{Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0x1f300, Hi: 0x1f64f, Stride: 1}, {Lo: 0x1f900, Hi: 0x1f9ff, Stride: 1}, {Lo: 0x20000, Hi: 0x3fffd, Stride: 1}},
}

func columns(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case r == 0x200d, r == 0xfe0f, unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// Wrap breaks a text into lines of at most width columns, at spaces where it
// can. Line breaks of the text stay.
func Wrap(s string, width int) []string {
	var out []string
	for para := range strings.SplitSeq(s, "\n") {
		para = strings.TrimRight(strings.ReplaceAll(para, "\t", "    "), " ")
		for Width(para) > width {
			cut, n, space := 0, 0, -1
			for i, r := range para {
				if n += columns(r); n > width {
					cut = i
					break
				}
				if r == ' ' && i > 0 {
					space = i
				}
			}
			if para[cut] == ' ' {
				space = cut
			}
			if space > 0 && strings.TrimSpace(para[:space]) != "" {
				cut = space
			}
			out = append(out, strings.TrimRight(para[:cut], " "))
			para = strings.TrimLeft(para[cut:], " ")
		}
		out = append(out, para)
	}
	return out
}
