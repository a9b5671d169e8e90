package manifest_test

import (
	"fmt"

	"github.com/rathcluster/rath/internal/files/manifest"
)

// Two texts are compared line by line.
func ExampleDiffLines() {
	old, now := []string{"one", "two", "three"}, []string{"one", "2", "three", "four"}
	for _, e := range manifest.DiffLines(old, now) {
		lines := old[e.OldFrom:e.OldTo]
		if e.Op == '+' {
			lines = now[e.NewFrom:e.NewTo]
		}
		fmt.Println(string(e.Op), lines)
	}
	// Output:
	//   [one]
	// - [two]
	// + [2]
	//   [three]
	// + [four]
}
