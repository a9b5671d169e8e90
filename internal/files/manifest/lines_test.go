package manifest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// rebuild makes both texts again from the operations between them and counts
// the changed lines.
func rebuild(t *testing.T, ops []Edit, a, z []string) (edits int) {
	t.Helper()
	var left, right []string
	i, j := 0, 0
	for _, o := range ops {
		if o.OldFrom != i || o.NewFrom != j || o.OldTo < o.OldFrom || o.NewTo < o.NewFrom {
			t.Fatalf("operation %+v does not follow on %d, %d", o, i, j)
		}
		i, j = o.OldTo, o.NewTo
		switch o.Op {
		case ' ':
			if !slices.Equal(a[o.OldFrom:o.OldTo], z[o.NewFrom:o.NewTo]) {
				t.Fatalf("operation %+v says that different lines are equal", o)
			}
		case '-':
			if o.NewFrom != o.NewTo {
				t.Fatalf("%+v", o)
			}
			edits += o.OldTo - o.OldFrom
		case '+':
			if o.OldFrom != o.OldTo {
				t.Fatalf("%+v", o)
			}
			edits += o.NewTo - o.NewFrom
		}
		left, right = append(left, a[o.OldFrom:o.OldTo]...), append(right, z[o.NewFrom:o.NewTo]...)
	}
	if !slices.Equal(left, a) || !slices.Equal(right, z) {
		t.Fatalf("the operations make %q and %q of %q and %q", left, right, a, z)
	}
	return edits
}

// shortest is the length of the shortest edit script, by the textbook table.
func shortest(a, z []string) int {
	row := make([]int, len(z)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j := range z {
			up := row[j+1]
			if a[i] == z[j] {
				row[j+1] = diagonal
			} else {
				row[j+1] = 1 + min(up, row[j])
			}
			diagonal = up
		}
	}
	return row[len(z)]
}

func TestDiffLines(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func() []string {
		lines := make([]string, r.IntN(14))
		for i := range lines {
			lines[i] = string(rune('a' + r.IntN(4)))
		}
		return lines
	}
	for range 3000 {
		a, z := text(), text()
		if got, want := rebuild(t, DiffLines(a, z), a, z), shortest(a, z); got != want {
			t.Fatalf("%d edits between %q and %q, %d would do", got, a, z, want)
		}
	}
}

// TestDiffLinesIsBounded compares texts with no common lines, or with every other line in
// common, far beyond the limit.
func TestDiffLinesIsBounded(t *testing.T) {
	var a, z []string
	for i := range 20_000 {
		a = append(a, fmt.Sprint("a", i))
		z = append(z, fmt.Sprint("z", i))
		if i%2 == 0 {
			a[i], z[i] = fmt.Sprint(i), fmt.Sprint(i)
		}
	}
	if edits := rebuild(t, DiffLines(a, z), a, z); edits < 20_000 {
		t.Errorf("%d edits", edits)
	}
	// A short change in a long text is found at any length.
	z = slices.Clone(a)
	z[10_000] = "changed"
	if edits := rebuild(t, DiffLines(a, z), a, z); edits != 2 {
		t.Errorf("%d edits for one changed line", edits)
	}
}
