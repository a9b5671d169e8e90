package selection

import (
	"strings"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/platform/term"
)

// Topic documents the language of --where.
func Topic() string {
	var b strings.Builder
	b.WriteString(`--where takes conditions about runs, joined with and, or, not and parentheses:

  state=failed and tool=run_shell_command
  under=7f3a and not agent=critic
  state in (queued, waiting) and older=2h

A condition asks something of a whole run, and one that could have several
answers holds if one of them fits: tool=grep means that some step called grep,
tool!=grep that none did. A star stands for any text; values with other signs
than letters, digits and _ - . : / @ * + stand between quotes. Runs and sessions
may be abbreviated, or named as everywhere: "@last". The fields:

`)
	longest := 0
	for _, f := range lineage.SelectorFields() {
		longest = max(longest, len(f.Name))
	}
	for _, f := range lineage.SelectorFields() {
		doc := f.Doc
		if f.Name == "state" {
			doc += "; or status"
		}
		for i, l := range term.Wrap(doc, 76-longest) {
			name := ""
			if i == 0 {
				name = f.Name
			}
			b.WriteString("  " + term.Pad(name, longest+2) + l + "\n")
		}
	}
	return b.String()
}
