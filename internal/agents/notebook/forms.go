package notebook

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of the search for other forms of a word.
const (
	maxFormless = 8 // words of a query for which other forms are looked up
	maxForms    = 8 // forms of one word
	maxEnding   = 3 // letters in which forms of a word differ at the end
	leastShared = 4 // letters that they share
	formWeight  = 0.5
)

// withForms adds to the terms of a query the forms of those words that no note has: words of
// the index that differ from them in a short ending alone, as inflected words do in most
// languages. Such a form may be another word, so that it counts half. English inflections
// are removed before, see [stem].
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

// isForm reports whether two words share their beginning, at least seven tenths of the
// longer one, and differ in an ending of at most three letters.
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
