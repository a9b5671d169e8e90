package dossier

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestCompare checks on random texts that the edits, line by line, turn one
// into the other. That they are few is tested where they are found.
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
		for _, e := range compare(a, b) {
			switch e.op {
			case ' ':
				if a[e.old] != b[e.new] {
					t.Fatalf("%v %v: keeps %d as %d", a, b, e.old, e.new)
				}
				old, new = append(old, a[e.old]), append(new, b[e.new])
			case '-':
				old = append(old, a[e.old])
			case '+':
				new = append(new, b[e.new])
			}
		}
		if strings.Join(old, "") != strings.Join(a, "") || strings.Join(new, "") != strings.Join(b, "") {
			t.Fatalf("%v to %v: the edits are of %v to %v", a, b, old, new)
		}
	}
}
