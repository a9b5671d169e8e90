package notebook

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/memory"
)

// golden is a memory with the results of OpenRath's local memory, in millionths. The scores
// follow its description and were computed independently of this package.
var golden = struct {
	notes   map[string]string
	queries []struct {
		query memory.Query
		want  string
	}
}{
	notes: map[string]string{
		"memory://user/a": "The user prefers a dark colour theme at night.",
		"memory://user/b": "The user reads English and writes Python.",
		"memory://user/c": "Dark dark dark coffee in the morning",
		"memory://user/d": "nothing here",
	},
	queries: []struct {
		query memory.Query
		want  string
	}{
		{memory.Query{Text: "reading code at night"}, "a 2009971, b 0, c 0, d 0"},
		{memory.Query{Text: "dark theme"}, "a 1583573, c 1121597, b 0, d 0"},
		{memory.Query{Text: "Dark, DARK!"}, "c 2243195, a 1157174, b 0, d 0"},
		{memory.Query{Text: "python user the"}, "b 2138325, a 876312, c 338401, d 0"},
		{memory.Query{Text: "python user the", Limit: 2}, "b 2138325, a 876312"},
		{memory.Query{Text: "absent"}, "a 0, b 0, c 0, d 0"},
		{memory.Query{Text: "prefer"}, "a 0, b 0, c 0, d 0"}, // no stem: "prefers" is another word
		{memory.Query{Text: "深色"}, ""},
		{memory.Query{Text: ""}, ""},
		{memory.Query{Text: "dark", Under: "memory://agent"}, ""},
		// The scores depend on the searched notes: here on one.
		{memory.Query{Text: "dark theme", Under: "memory://user/a"}, "a 575364"},
	},
}

// TestOpenRathScores: the hits, scores and order of OpenRath's local search.
func TestOpenRathScores(t *testing.T) {
	t.Parallel()
	m := New(nil)
	for uri, text := range golden.notes {
		must.Do(t, m.Write(t.Context(), uri, text, memory.Origin{Run: "r"}))
	}
	for _, tt := range golden.queries {
		tt.query.Scores = memory.ScoresOpenRath
		for name, find := range map[string]func() ([]memory.Hit, error){
			"find": func() ([]memory.Hit, error) { return m.Find(t.Context(), tt.query) },
			"near": func() ([]memory.Hit, error) { return m.FindNear(t.Context(), tt.query, Vector{}) },
		} {
			hits := must.Get(find())(t)
			var got []string
			for _, h := range hits {
				got = append(got, fmt.Sprintf("%s %d", strings.TrimPrefix(h.URI, "memory://user/"), h.Score))
				if h.Origin.Run != "r" || h.Snippet != golden.notes[h.URI] {
					t.Errorf("%q: hit %+v", tt.query.Text, h)
				}
			}
			if got := strings.Join(got, ", "); got != tt.want {
				t.Errorf("%s %q below %q: %s, want %s", name, tt.query.Text, tt.query.Under, got, tt.want)
			}
		}
	}
	if _, err := m.Find(t.Context(), memory.Query{Text: "x", Scores: "tfidf"}); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), `"openrath"`) {
		t.Errorf("scores of another kind: %v", err)
	}
}

// TestOpenRathOrder: equal scores stand as the files of a memory are walked, and a snippet is
// the beginning of the text.
func TestOpenRathOrder(t *testing.T) {
	t.Parallel()
	m := New(nil)
	for _, uri := range []string{"memory://user/a", "memory://user/a-b", "memory://user/a/z", "memory://user/ab", "memory://agent/z", "memory://session/s/x"} {
		must.Do(t, m.Write(t.Context(), uri, "\n same "+strings.Repeat("ä", 250), memory.Origin{}))
	}
	hits := must.Get(m.Find(t.Context(), memory.Query{Text: "same", Scores: memory.ScoresOpenRath}))(t)
	var got []string
	for _, h := range hits {
		got = append(got, h.URI)
		if h.Snippet != "same "+strings.Repeat("ä", 195)+"..." {
			t.Errorf("snippet %q", h.Snippet)
		}
	}
	want := []string{"memory://agent/z", "memory://session/s/x", "memory://user/a/z", "memory://user/a-b", "memory://user/a", "memory://user/ab"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestOpenRathAgainstReference compares random searches with the formula over all notes.
func TestOpenRathAgainstReference(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	vocabulary := strings.Fields("alpha Beta gamma-ray log42 naïve 東京 zeta, epsilon. THETA")
	text := func(n int) string {
		words := make([]string, n)
		for i := range words {
			words[i] = vocabulary[rng.IntN(len(vocabulary))]
		}
		return strings.Join(words, " ")
	}
	m := New(nil)
	var uris []string
	var docs [][]string
	for i := range 60 {
		uris = append(uris, fmt.Sprintf("memory://agent/n%02d", i))
		body := text(rng.IntN(20))
		docs = append(docs, asciiWords(body))
		must.Do(t, m.Write(t.Context(), uris[i], body, memory.Origin{}))
	}
	for range 40 {
		query := text(1 + rng.IntN(5))
		want := map[string]int64{}
		if len(asciiWords(query)) > 0 {
			for i, s := range BM25(asciiWords(query), docs) {
				want[uris[i]] = int64(math.Round(s * 1e6))
			}
		}
		hits := must.Get(m.Find(t.Context(), memory.Query{Text: query, Limit: memory.MaxLimit, Scores: memory.ScoresOpenRath}))(t)
		got := map[string]int64{}
		for _, h := range hits {
			got[h.URI] = h.Score
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", query, diff)
		}
	}
}
