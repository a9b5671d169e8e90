package lineage

import (
	"math/rand/v2"
	"testing"
)

// TestPlainLines: a text that is taken for a line as it stands is the line that
// looking at each of its characters makes of it.
func TestPlainLines(t *testing.T) {
	const letters = "ab  \n\tz~\x7f\u00e9\u202e\xff"
	r := rand.New(rand.NewPCG(1, 2))
	as := 0
	for range 20_000 {
		b := make([]byte, r.IntN(14))
		for i := range b {
			b[i] = letters[r.IntN(len(letters))]
			if r.IntN(3) > 0 {
				b[i] = letters[r.IntN(3)]
			}
		}
		s, limit := string(b), 2+r.IntN(12)
		if plain(s) {
			as++
		}
		if got, want := line(s, limit), clip(flat(s, limit), limit); got != want {
			t.Fatalf("%q in %d characters is %q, want %q", s, limit, got, want)
		}
	}
	if as < 1000 {
		t.Errorf("%d texts were plain: the test shows little", as)
	}
}
