package pages

import (
	"fmt"
	"html/template"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rathcluster/rath/internal/evidence/lineage"
)

// shown returns a text of an agent or a user as HTML in which each character is visible:
// control, format and combining characters beyond two, unusual blanks, bytes that are no
// UTF-8, and letters that pass for Latin ones stand as escapes. Credentials are masked.
func shown(s string) template.HTML {
	html, _ := visible(lineage.Mask(s))
	return html
}

// hiddenIn counts the characters of a text that shown escapes.
func hiddenIn(s string) int {
	_, n := visible(lineage.Mask(s))
	return n
}

// clipped is shown for the first limit bytes of a text, with a remark about the rest.
func clipped(s string, limit int) template.HTML {
	if len(s) <= limit {
		return shown(s)
	}
	// Masked before it is cut, so that no part of a credential is left.
	masked := lineage.Mask(s[:min(len(s), 4*limit)])
	cut := masked[:min(len(masked), limit)]
	for len(cut) > 0 && !utf8.RuneStart(masked[min(len(cut), len(masked)-1)]) {
		cut = cut[:len(cut)-1]
	}
	html, _ := visible(cut)
	return html + template.HTML(fmt.Sprintf(` <span class="dim">… %d more bytes</span>`, len(s)-limit)) //nolint:gosec // a number
}

func visible(s string) (template.HTML, int) {
	var b strings.Builder
	b.Grow(len(s) + len(s)/8)
	hidden, piled := 0, 0
	escape := func(name string) {
		hidden++
		b.WriteString(`<span class="esc">` + name + `</span>`)
	}
	word := 0 // the start of the word in s
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			escape(fmt.Sprintf("byte %02X", s[i]))
		case unicode.Is(unicode.M, r) && piled >= 2, unseen(r):
			escape(nameOf(r))
		default:
			writeEscaped(&b, r)
		}
		if unicode.Is(unicode.M, r) {
			piled++
		} else {
			piled = 0
		}
		i += size
		if next, _ := utf8.DecodeRuneInString(s[i:]); unicode.IsLetter(r) && !unicode.IsLetter(next) {
			if foreign := mixed(s[word:i]); foreign != "" {
				escape("not Latin: " + template.HTMLEscapeString(foreign))
			}
		}
		if !unicode.IsLetter(r) {
			word = i
		}
	}
	return template.HTML(b.String()), hidden //nolint:gosec // each rune was escaped
}

func writeEscaped(b *strings.Builder, r rune) {
	switch r {
	case '<':
		b.WriteString("&lt;")
	case '>':
		b.WriteString("&gt;")
	case '&':
		b.WriteString("&amp;")
	case '"':
		b.WriteString("&#34;")
	case '\'':
		b.WriteString("&#39;")
	default:
		b.WriteRune(r)
	}
}

// unseen reports whether a character has no shape of its own, or changes the order of
// others.
func unseen(r rune) bool {
	switch {
	case r == '\n' || r == '\t' || r == ' ':
		return false
	case r == 0x115f, r == 0x1160, r == 0x3164, r == 0xffa0, r == 0x2800, r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0100 && r <= 0xe01ef: // fillers, blanks, selectors
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zs, unicode.Zl, unicode.Zp) || !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S)
}

func nameOf(r rune) string {
	switch r {
	case 0:
		return "NUL"
	case '\r':
		return "CR"
	case 0x1b:
		return "ESC"
	case 0xa0:
		return "NBSP"
	}
	return fmt.Sprintf("U+%04X", r)
}

// mixed returns the Cyrillic and Greek letters of a word that also has Latin ones.
func mixed(word string) string {
	latin, other := false, ""
	for _, r := range word {
		switch {
		case unicode.Is(unicode.Latin, r):
			latin = true
		case unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian):
			other += string(r)
		}
	}
	if !latin {
		return ""
	}
	return other
}

// plain returns a text for places without markup, such as a title: the escapes of
// shown, in brackets.
func plain(s string) string {
	var b strings.Builder
	for _, r := range lineage.Mask(s) {
		if unseen(r) || r == '\n' || r == '\t' {
			b.WriteString("[" + nameOf(r) + "]")
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
