package dossier

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestCompare checks on random texts that the edits turn one into the other
// and that there are as few as the textbook recurrence finds.
func TestCompare(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func() []string {
		lines := make([]string, r.IntN(12))
		for i := range lines {
			lines[i] = string(rune('a' + r.IntN(4)))
		}
		return lines
	}
	for range 3000 {
		a, b := text(), text()
		var old, new []string
		cost := 0
		for _, e := range compare(a, b) {
			switch e.op {
			case ' ':
				if a[e.old] != b[e.new] {
					t.Fatalf("%v %v: keeps %d as %d", a, b, e.old, e.new)
				}
				old, new = append(old, a[e.old]), append(new, b[e.new])
			case '-':
				old, cost = append(old, a[e.old]), cost+1
			case '+':
				new, cost = append(new, b[e.new]), cost+1
			}
		}
		if strings.Join(old, "") != strings.Join(a, "") || strings.Join(new, "") != strings.Join(b, "") {
			t.Fatalf("%v to %v: the edits are of %v to %v", a, b, old, new)
		}
		if want := len(a) + len(b) - 2*common(a, b); cost != want {
			t.Fatalf("%v to %v: %d edits, want %d", a, b, cost, want)
		}
	}
}

// common is the length of the longest common subsequence.
func common(a, b []string) int {
	best := make([][]int, len(a)+1)
	for i := range best {
		best[i] = make([]int, len(b)+1)
	}
	for i := range a {
		for j := range b {
			if best[i+1][j+1] = max(best[i][j+1], best[i+1][j]); a[i] == b[j] {
				best[i+1][j+1] = best[i][j] + 1
			}
		}
	}
	return best[len(a)][len(b)]
}

// TestCompareBounds checks that texts without a common line, which cost most,
// end at the bound and still compare.
func TestCompareBounds(t *testing.T) {
	a, b := make([]string, 3*maxEdits), make([]string, 3*maxEdits)
	for i := range a {
		a[i], b[i] = "a", "b"
	}
	if n := len(compare(a, b)); n != len(a)+len(b) {
		t.Errorf("%d edits, want %d", n, len(a)+len(b))
	}
}
