package dossier

import (
	"strings"

	"github.com/rathcluster/rath/internal/manifest"
)

// edit is one line of a comparison: kept, removed or added.
type edit struct {
	op  byte // ' ', '-' or '+'
	old int  // index of the line before; where it would be for '+'
	new int
}

// compare returns how the lines of a become those of b, line by line. It is
// deterministic, because every reader of a dossier must find the same.
func compare(a, b []string) []edit {
	out := make([]edit, 0, max(len(a), len(b)))
	for _, e := range manifest.DiffLines(a, b) {
		old, now := e.OldFrom, e.NewFrom
		for range max(e.OldTo-e.OldFrom, e.NewTo-e.NewFrom) {
			out = append(out, edit{e.Op, old, now})
			if e.Op != '+' {
				old++
			}
			if e.Op != '-' {
				now++
			}
		}
	}
	return out
}

// split cuts a text into lines that keep their ends, so that a missing newline
// at the end of a file is a difference.
func split(s string) []string {
	if s == "" {
		return nil
	}
	lines := strings.SplitAfter(s, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}
