package notebook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rathcluster/rath/memory"
)

// openRathSnippet is the number of characters of a note that OpenRath shows.
const openRathSnippet = 200

// openRathWords calls emit for each term of OpenRath: the runs of ASCII letters and digits,
// in lower case.
func openRathWords(text string, emit func(word string)) {
	start := -1
	for i := 0; i <= len(text); i++ {
		if i < len(text) && ('a' <= text[i]|0x20 && text[i]|0x20 <= 'z' || '0' <= text[i] && text[i] <= '9') {
			if start < 0 {
				start = i
			}
			continue
		}
		if start >= 0 {
			emit(strings.ToLower(text[start:i]))
		}
		start = -1
	}
}

// findOpenRath searches like the local memory of OpenRath. Its scores depend on the
// searched notes instead of the whole store, so each search reads all of them.
func (m *InMemory) findOpenRath(ctx context.Context, q memory.Query, dir URI, limit int) ([]memory.Hit, error) {
	var query []string
	openRathWords(q.Text, func(word string) { query = append(query, word) })
	if len(query) == 0 {
		return []memory.Hit{}, nil
	}
	terms := map[string]int{} // index of each distinct term in counts
	for _, word := range query {
		if _, ok := terms[word]; !ok {
			terms[word] = len(terms)
		}
	}
	type doc struct {
		*entry
		path   string
		length int
		counts []int // by terms
		score  float64
	}
	var docs []doc
	m.mu.RLock()
	for uri, e := range m.entries {
		if below(uri, dir) {
			docs = append(docs, doc{entry: e, path: openRathPath(uri)})
		}
	}
	m.mu.RUnlock() // entries are replaced, never altered
	slices.SortFunc(docs, func(a, b doc) int { return cmp.Compare(a.path, b.path) })
	total, with := 0, make([]int, len(terms)) // words in all notes; number of notes with each term
	for i := range docs {
		d := &docs[i]
		if i%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		d.counts = make([]int, len(terms))
		openRathWords(d.note.Text, func(word string) {
			d.length++
			if at, ok := terms[word]; ok {
				d.counts[at]++
			}
		})
		total += d.length
		for at, n := range d.counts {
			if n > 0 {
				with[at]++
			}
		}
	}
	for i := range docs {
		d := &docs[i]
		for _, word := range query { // a repeated word counts twice
			if at := terms[word]; d.counts[at] > 0 {
				d.score += float64(idf(len(docs), with[at]) * saturate(d.counts[at], d.length, total, len(docs)))
			}
		}
	}
	slices.SortStableFunc(docs, func(a, b doc) int { return cmp.Compare(b.score, a.score) })
	docs = docs[:min(len(docs), limit)]
	hits := make([]memory.Hit, len(docs))
	for i, d := range docs {
		u, err := ParseURI(d.note.URI)
		if err != nil {
			return nil, err
		}
		hits[i] = memory.Hit{
			URI: d.note.URI, Snippet: openRathExcerpt(d.note.Text), Session: u.session(), Origin: d.note.Origin,
			Score: int64(math.Round(d.score * 1e6)),
		}
	}
	return hits, nil
}

// openRathPath returns the sort key of a note's file among the files of an OpenRath memory,
// whose directories are read one after the other, each in the order of its names.
func openRathPath(uri string) string {
	return strings.ReplaceAll(strings.TrimPrefix(uri, scheme)+".md", "/", "\x00")
}

// openRathExcerpt is the beginning of a text.
func openRathExcerpt(text string) string {
	text = strings.TrimSpace(text)
	if utf8.RuneCountInString(text) <= openRathSnippet {
		return text
	}
	return strings.TrimSpace(string([]rune(text)[:openRathSnippet])) + "..."
}

// scored returns the scoring of a query.
func scored(q memory.Query) (openRath bool, err error) {
	switch q.Scores {
	case "", memory.ScoresOpenRath:
		return q.Scores != "", nil
	}
	return false, fmt.Errorf("memory: scores %q: %w: want %q, or nothing", q.Scores, errors.ErrUnsupported, memory.ScoresOpenRath)
}
