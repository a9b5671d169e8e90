package manifest_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rathcluster/rath/internal/files/manifest"
)

// TestTrace: after random changes the lines are those of the last text. Each has a change
// whose text contains it, and a removed line is reported with the change that added it.
func TestTrace(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var lines []manifest.Traced[int]
		var texts [][]string
		for by := range 8 {
			text := make([]string, r.IntN(12))
			for i := range text {
				text[i] = string(rune('a' + r.IntN(4)))
			}
			texts = append(texts, text)
			before, gone := len(lines), 0
			lines = manifest.Trace(lines, text, by, func(l manifest.Traced[int]) {
				if gone++; l.By >= by {
					t.Fatalf("change %d removes a line of change %d", by, l.By)
				}
			})
			added := 0
			for _, l := range lines {
				if !slices.Contains(texts[l.By], l.Text) {
					t.Fatalf("%q is by change %d, whose text is %q", l.Text, l.By, texts[l.By])
				}
				if l.By == by {
					added++
				}
			}
			if !slices.Equal(manifest.Texts(lines), text) || len(lines) != before-gone+added {
				t.Fatalf("%v after %q", lines, text)
			}
		}
	}
}
