package notebook

import (
	"strings"
	"unicode/utf8"
)

// The maximum size of a snippet in characters, and of its part before the first match.
const (
	maxSnippet = 240
	leadIn     = 40
)

// snippet returns the passage of text with the highest total weight of terms, the earliest
// among equals. It returns a text that fits whole.
func snippet(text string, terms []term) string {
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) <= maxSnippet {
		return text
	}
	weights := make(map[string]float64, len(terms))
	for _, t := range terms {
		weights[t.text] = t.idf
	}
	type place struct {
		term  string
		start int // in characters
	}
	var places []place
	chars, at := 0, 0
	scan(text, false, func(term string, start, _ int) {
		if weights[term] == 0 || start < at {
			return
		}
		chars += utf8.RuneCountInString(text[at:start])
		at = start
		places = append(places, place{term, chars})
	})

	// Slide over the matches; inside counts the terms in the window from places[i] to
	// places[j-1], each once.
	from, best, sum := 0, 0.0, 0.0
	inside := make(map[string]int)
	for i, j := 0, 0; i < len(places); i++ {
		for ; j < len(places) && places[j].start-places[i].start < maxSnippet-leadIn; j++ {
			if inside[places[j].term]++; inside[places[j].term] == 1 {
				sum += weights[places[j].term]
			}
		}
		if sum > best+1e-9 {
			from, best = places[i].start, sum
		}
		if inside[places[i].term]--; inside[places[i].term] == 0 {
			sum -= weights[places[i].term]
		}
	}
	return cut(text, from-leadIn)
}

// cut returns maxSnippet characters of text around from, broken at white space if possible.
func cut(text string, from int) string {
	runes := []rune(text)
	from = max(0, min(from, len(runes)-maxSnippet))
	to := min(len(runes), from+maxSnippet)
	if from > 0 {
		for i := from; i < from+leadIn && i < to; i++ {
			if runes[i] == ' ' {
				from = i + 1
				break
			}
		}
	}
	if to < len(runes) {
		for i := to; i > to-leadIn && i > from; i-- {
			if runes[i] == ' ' {
				to = i
				break
			}
		}
	}
	out := string(runes[from:to])
	if from > 0 {
		out = "…" + out
	}
	if to < len(runes) {
		out += "…"
	}
	return out
}
