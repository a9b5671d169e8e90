package notebook

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxTerm is the maximum length of an indexed term, in bytes. Longer runs are encoded data,
// not words.
const maxTerm = 96

// scan calls emit for each term of text with its position.
//
// Words are runs of letters, digits and marks of any script, in lower case with
// compatibility forms resolved. Latin and Greek letters lose their accents, and so does the
// Cyrillic ё. English stop words are dropped and English inflections removed. The parts of
// an identifier in camel case are terms as well. Scripts without spaces between words give
// one term per character and one per pair of neighbours. A query uses only the pairs, so
// that it does not match every text that shares one character.
func scan(text string, query bool, emit func(term string, start, end int)) {
	split(text, func(run string, at int, spaceless bool) {
		if spaceless {
			scanPairs(run, at, query, emit)
		} else {
			scanWord(run, at, emit)
		}
	})
}

// split calls emit for each run of letters, digits and marks with its position: a word, or
// a run of a script without spaces between words.
func split(text string, emit func(run string, at int, spaceless bool)) {
	start, spaceless := -1, false
	flush := func(end int) {
		if start >= 0 {
			emit(text[start:end], start, spaceless)
		}
		start = -1
	}
	for i, r := range text {
		switch {
		case r < utf8.RuneSelf && ('a' <= r|0x20 && r|0x20 <= 'z' || '0' <= r && r <= '9'):
			if start < 0 || spaceless {
				flush(i)
				start, spaceless = i, false
			}
		case r < utf8.RuneSelf:
			flush(i)
		case start >= 0 && (unicode.Is(unicode.M, r) || joins(r)):
			// Marks and invisible joiners continue the current run.
		case unicode.IsLetter(r) || unicode.IsNumber(r):
			if s := isSpaceless(r); start < 0 || s != spaceless {
				flush(i)
				start, spaceless = i, s
			}
		default:
			flush(i)
		}
	}
	flush(len(text))
}

// joins reports whether r is invisible inside a word: soft hyphen, zero width
// joiner and non-joiner.
func joins(r rune) bool { return r == '\u00ad' || r == '\u200c' || r == '\u200d' }

var spacelessScripts = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul,
	unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar,
}

// isSpaceless reports whether r belongs to a script that is searched by pairs of
// characters. Korean has spaces, but pairs suit its endings better.
func isSpaceless(r rune) bool {
	if r < 0x0e00 {
		return false
	}
	switch r {
	case 'ー', 'ｰ', 'ﾞ', 'ﾟ': // of no script, always between kana
		return true
	}
	return unicode.In(r, spacelessScripts...)
}

func scanPairs(run string, at int, query bool, emit func(string, int, int)) {
	exact := norm.NFKC.IsNormalString(run)
	end := at + len(run)
	if !exact {
		run = norm.NFKC.String(run)
	}
	// place maps a piece of the run to the text; after normalisation only the position of the
	// whole run is available.
	place := func(i, n int) (int, int) {
		if exact {
			return at + i, at + i + n
		}
		return at, end
	}
	prev, prevLen := -1, 0
	count := utf8.RuneCountInString(run)
	for i, r := range run {
		n := utf8.RuneLen(r)
		if !query || count == 1 {
			s, e := place(i, n)
			emit(run[i:i+n], s, e)
		}
		if prev >= 0 {
			s, e := place(prev, prevLen+n)
			emit(run[prev:i+n], s, e)
		}
		prev, prevLen = i, n
	}
}

func scanWord(word string, at int, emit func(string, int, int)) {
	end := at + len(word)
	send := func(part string) {
		// An accent makes a stop word a word: French thé is tea.
		if term, ascii := fold(part); term != "" && len(term) <= maxTerm && !(ascii && stopWords[term]) {
			emit(stem(term), at, end)
		}
	}
	send(word)
	first, lower := 0, false
	for i, r := range word {
		if unicode.IsUpper(r) && lower {
			send(word[first:i])
			first = i
		}
		lower = unicode.IsLower(r)
	}
	if first > 0 {
		send(word[first:])
	}
}

// fold returns the form of a word that is compared, and reports whether the word was ASCII.
func fold(word string) (folded string, ascii bool) {
	ascii = true
	for i := range len(word) {
		if word[i] >= utf8.RuneSelf {
			ascii = false
			break
		}
	}
	if ascii {
		return strings.ToLower(word), true
	}
	var out strings.Builder
	accents := false // whether marks after the last letter are accents
	for _, r := range norm.NFKD.String(word) {
		switch {
		case unicode.Is(unicode.M, r):
			if !accents {
				out.WriteRune(r)
			}
			continue
		case !unicode.IsLetter(r) && !unicode.IsNumber(r):
			continue
		}
		r = unicode.ToLower(r)
		accents = r == 'е' || unicode.In(r, unicode.Latin, unicode.Greek)
		if s, ok := foldings[r]; ok {
			out.WriteString(s)
		} else {
			out.WriteRune(r)
		}
	}
	return norm.NFC.String(out.String()), false
}

// foldings are the replacements of letters that Unicode does not decompose.
var foldings = map[rune]string{
	'ß': "ss", 'æ': "ae", 'œ': "oe", 'ø': "o", 'ł': "l", 'đ': "d", 'ð': "d", 'þ': "th", 'ı': "i", 'ς': "σ",
}

// stopWords carry no meaning alone. s, t, d, ll and the like are remains of apostrophes.
var stopWords = func() map[string]bool {
	m := make(map[string]bool)
	for w := range strings.FieldsSeq(`
		a about above after again all also am an and any are aren as at
		be because been before being below between both but by
		can cannot could couldn d did didn do does doesn doing don down during
		each few for from further had hadn has hasn have haven having he her here hers him his how
		i if in into is isn it its just ll m me more most my
		no nor not now of off on once only or other our ours out over own
		re s same shall she should shouldn so some such
		t than that the their theirs them then there these they this those through to too
		under until up upon us ve very was wasn we were weren what when where which while who whom whose why will with won would wouldn
		you your yours`) {
		m[w] = true
	}
	return m
}()
