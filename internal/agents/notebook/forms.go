package notebook

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of the search for other forms of a word.
const (
	maxFormless = 8 // words of a query whose forms are looked up
	maxForms    = 8 // forms of one word
	maxEnding   = 3 // maximum number of letters in which the endings differ
	leastShared = 4 // minimum number of shared letters
	formWeight  = 0.5
)

// withForms adds other forms of those query terms that no note contains: words of the index
// that differ only in a short ending, as inflected words do in most languages. Such a form
// may be another word, so it counts half. English inflections are removed earlier, see
// [stem].
func (ix *index) withForms(terms []term) []term {
	formless := maxFormless
	for _, t := range terms {
		if formless == 0 || len(terms) >= maxQueryTerms {
			break
		}
		if len(ix.of(t.text)) > 0 || utf8.RuneCountInString(t.text) < leastShared {
			continue
		}
		formless--
		var forms []string
		for text := range ix.postings {
			if isForm(t.text, text) {
				forms = append(forms, text)
			}
		}
		slices.SortFunc(forms, func(a, b string) int {
			if n := len(a) - len(b); n != 0 {
				return n
			}
			return strings.Compare(a, b)
		})
		for _, f := range forms[:min(len(forms), maxForms, maxQueryTerms-len(terms))] {
			if !slices.ContainsFunc(terms, func(o term) bool { return o.text == f }) {
				terms = append(terms, term{text: f, count: t.count, idf: formWeight * idf(ix.len(), len(ix.of(f)))})
			}
		}
	}
	return terms
}

// isForm reports whether two words share a prefix, of at least seven tenths of the longer
// one, and differ in an ending of at most three letters.
func isForm(a, b string) bool {
	shared := 0
	for i, r := range a {
		if s, n := utf8.DecodeRuneInString(b[min(i, len(b)):]); n == 0 || s != r {
			break
		}
		shared++
	}
	if shared < leastShared {
		return false
	}
	n, m := utf8.RuneCountInString(a), utf8.RuneCountInString(b)
	longer := max(n, m)
	return longer-min(n, m) <= maxEnding && n-shared <= maxEnding && m-shared <= maxEnding && shared >= int(math.Ceil(0.7*float64(longer)))
}
