package notebook

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/memory"
)

// asciiWords are the runs of ASCII letters and digits in lower case: OpenRath's terms,
// with which the analysis of stores is compared.
func asciiWords(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
}

// TestBM25Reference holds the formula to the values that OpenRath gives.
func TestBM25Reference(t *testing.T) {
	t.Parallel()
	texts := []string{
		"The user prefers a dark colour theme at night.",
		"The user reads English and writes Python.",
		"Dark dark dark coffee in the morning",
		"nothing here",
	}
	docs := make([][]string, len(texts))
	for i, text := range texts {
		docs[i] = asciiWords(text)
	}
	tests := []struct {
		query string
		want  [4]float64
	}{
		{"reading code at night", [4]float64{2.009971293, 0, 0, 0}},
		{"dark theme", [4]float64{1.583572608, 0, 1.121597380, 0}},
		{"Dark, DARK!", [4]float64{1.157173924, 0, 2.243194759, 0}},
		{"python user the", [4]float64{0.876312291, 2.138325359, 0.338401275, 0}},
		{"", [4]float64{}},
		{"深色", [4]float64{}},
	}
	for _, tt := range tests {
		got := BM25(asciiWords(tt.query), docs)
		for i, want := range tt.want {
			if math.Abs(got[i]-want) > 1e-9 {
				t.Errorf("%q, document %d: score %.9f, want %.9f", tt.query, i, got[i], want)
			}
		}
	}
}

// TestFindAgainstReference compares the index, after a random history of
// writes, replacements and deletes, with BM25 over the notes that are left.
func TestFindAgainstReference(t *testing.T) {
	t.Parallel()
	vocabulary := strings.Fields("alpha beta gamma delta running theme 東京 東京都 京都 naïve FanOut JetStream log42 epsilon zeta")
	rng := rand.New(rand.NewPCG(1, 2))
	text := func(n int) string {
		words := make([]string, n)
		for i := range words {
			words[i] = vocabulary[int(float64(len(vocabulary))*rng.Float64()*rng.Float64())]
		}
		return strings.Join(words, " ")
	}
	m := New(nil)
	want := make(map[string]string)
	for range 600 {
		uri := fmt.Sprintf("memory://agent/n%d", rng.IntN(80))
		if rng.IntN(4) == 0 {
			must.Do(t, m.Delete(t.Context(), uri))
			delete(want, uri)
			continue
		}
		want[uri] = text(1 + rng.IntN(30))
		must.Do(t, m.Write(t.Context(), uri, want[uri], memory.Origin{}))
	}
	analyse := func(text string, query bool) (terms []string) {
		scan(text, query, func(term string, _, _ int) { terms = append(terms, term) })
		return terms
	}
	var uris []string
	var docs [][]string
	for uri, text := range want {
		uris = append(uris, uri)
		docs = append(docs, analyse(text, false))
	}
	for range 50 {
		query := text(1 + rng.IntN(4))
		scores := BM25(analyse(query, true), docs)
		expect := make(map[string]int64)
		for i, s := range scores {
			if s > 0 {
				expect[uris[i]] = int64(math.Round(s * 1e6))
			}
		}
		hits := must.Get(m.Find(t.Context(), memory.Query{Text: query, Limit: memory.MaxLimit}))(t)
		got := make(map[string]int64)
		for i, h := range hits {
			got[h.URI] = h.Score
			if i > 0 && (hits[i-1].Score < h.Score || hits[i-1].Score == h.Score && hits[i-1].URI > h.URI) {
				t.Errorf("%q: hit %d (%v) stands after %v", query, i, h, hits[i-1])
			}
		}
		near := cmp.Comparer(func(a, b int64) bool { return a-b <= 1 && b-a <= 1 })
		if diff := cmp.Diff(expect, got, near); diff != "" {
			t.Errorf("%q: scores (-reference +index):\n%s", query, diff)
		}
	}
	must.Do(t, m.Delete(t.Context(), "memory://"))
	if n := len(m.ix.postings); n != 0 || m.ix.total != 0 {
		t.Errorf("an emptied index holds %d terms and counts %d", n, m.ix.total)
	}
}
