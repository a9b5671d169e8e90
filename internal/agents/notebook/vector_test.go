package notebook

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/memory"
)

// vectorOf makes a vector of random numbers.
func vectorOf(tb testing.TB, model string, rng *rand.Rand, dimensions int) Vector {
	tb.Helper()
	of := make([]float32, dimensions)
	for i := range of {
		of[i] = float32(rng.NormFloat64())
	}
	v := must.Get(NewVector(model, of))(tb)
	return v
}

// TestNear finds the notes whose vectors are most similar to a query's, exactly and in
// order, below a name, and no vector of another model or other dimensions.
func TestNear(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := New(nil)
	asked := vectorOf(t, "a", rng, 30) // four at once, and two
	want := map[string]float64{}
	var puts []Note
	for i := range 200 {
		n := Note{URI: fmt.Sprintf("memory://user/%c/%03d", 'a'+i%2, i), Text: "text"}
		switch i % 4 {
		case 0, 1:
			n.Vector = vectorOf(t, "a", rng, 30)
			cosine := 0.0
			for k := 0; k < 120; k += 4 {
				cosine += float64(asked.Numbers.at(k)) * float64(n.Vector.Numbers.at(k))
			}
			want[n.URI] = cosine
		case 2:
			n.Vector = Vector{Model: "b", Numbers: asked.Numbers}
		case 3:
			n.Vector = vectorOf(t, "a", rng, 31)
		}
		puts = append(puts, n)
	}
	m.Apply(Change{Puts: puts})
	for _, under := range []string{"memory://user", "memory://user/b"} {
		dir := must.Get(ParseDir(under))(t)
		var order []string
		for uri, cosine := range want {
			if cosine > 0 && below(uri, dir) {
				order = append(order, uri)
			}
		}
		slices.SortFunc(order, func(a, b string) int { return int(math.Copysign(1, want[b]-want[a])) })
		found := m.ix.near(asked, dir, 10)
		for i, f := range found {
			if f.note.URI != order[i] || math.Abs(float64(f.score)/1e6-want[order[i]]) > 2e-6 {
				t.Errorf("match %d below %s is %s with %d, want %s with %f", i, under, f.note.URI, f.score, order[i], want[order[i]])
			}
		}
		if len(found) != 10 {
			t.Errorf("below %s %d were found", under, len(found))
		}
	}
	must.Do(t, m.Delete(t.Context(), "memory://user/a"))
	bytes, any := m.Vectors("a")
	if _, other := m.Vectors("b"); bytes != 50*120+50*124 || !any || other {
		t.Errorf("%d bytes of vectors are left, of a %v, of b %v", bytes, any, other)
	}
}

// TestFused ranks a note that is high in both rankings before those of one ranking, and
// finds a note that shares no word with the query by its vector.
func TestFused(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	asked := vectorOf(t, "a", rng, 8)
	m := New(nil)
	m.Apply(Change{Puts: []Note{
		{URI: "memory://user/both", Text: "a dark theme", Vector: asked},
		{URI: "memory://user/meaning", Text: "night colours", Vector: asked},
		{URI: "memory://user/words", Text: "the dark theme of a film that is no theme of dark rooms"},
		{URI: "memory://user/neither", Text: "lunch"},
	}})
	hits, err := m.FindNear(t.Context(), memory.Query{Text: "dark theme"}, asked)
	var got []string
	for _, h := range hits {
		got = append(got, fmt.Sprint(strings.TrimPrefix(h.URI, "memory://user/"), " ", h.Score))
	}
	// 1/61 is 16393 millionths, 1/62 is 16129.
	if want := []string{"both 32786", "meaning 16129", "words 16129"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("found %q, want %q: %v", got, want, err)
	}
}

// TestVectorsAreChecked stores no vector without a direction and reads no damaged one.
func TestVectorsAreChecked(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, of := range [][]float32{nil, {0, 0}, {nan, 1}, {inf, 1}, make([]float32, MaxDimensions+1)} {
		if v, err := NewVector("a", of); err == nil {
			t.Errorf("of %d numbers there is %v", len(of), v)
		}
	}
	v, err := NewVector("a", []float32{3, 4})
	if err != nil || v.Numbers.at(0) != 0.6 || v.Numbers.at(4) != 0.8 {
		t.Fatalf("%v: %v", v, err)
	}
	n := Note{URI: "memory://user/a", Text: "text", Vector: v}
	data, err := json.Marshal(n)
	if want := `{"uri":"memory://user/a","text":"text","vector":{"model":"a","numbers":"mpkZP83MTD8="}}`; err != nil || string(data) != want {
		t.Fatalf("%s, want %s: %v", data, want, err)
	}
	var back Note
	if err := json.Unmarshal(data, &back); err != nil || back != n {
		t.Errorf("%+v: %v", back, err)
	}
	for _, damaged := range []string{"", "mpkZ", "AAAAAAAA8H8=", "AADAfw==", "AAAAQQ==", "?"} {
		if err := json.Unmarshal([]byte(`{"vector":{"model":"a","numbers":"`+damaged+`"}}`), &back); err == nil {
			t.Errorf("numbers %q are read as %v", damaged, []byte(back.Vector.Numbers))
		}
	}
}

// BenchmarkFindNear asks a memory of 50,000 notes of sixty words, with vectors of 384
// dimensions.
func BenchmarkFindNear(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	words := rand.NewZipf(rng, 1.1, 4, 20_000)
	m := New(nil)
	var puts []Note
	for i := range 50_000 {
		var text strings.Builder
		for range 60 {
			fmt.Fprintf(&text, "w%d ", words.Uint64())
		}
		puts = append(puts, Note{URI: fmt.Sprintf("memory://user/memories/notes/%06d", i), Text: text.String(), Vector: vectorOf(b, "a", rng, 384)})
	}
	m.Apply(Change{Puts: puts})
	asked := vectorOf(b, "a", rng, 384)
	for i := 0; b.Loop(); i++ {
		q := memory.Query{Text: fmt.Sprintf("w%d w%d w%d w%d", 3+i%40, 40+i%400, 900+i%900, 5000+i%5000)}
		must.Get(m.FindNear(b.Context(), q, asked))(b)
	}
}
