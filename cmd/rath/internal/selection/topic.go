package selection

import (
	"strings"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/platform/term"
)

// Topic documents the language of --where.
func Topic() string {
	var b strings.Builder
	b.WriteString(`--where filters runs by conditions with and, or, not and parentheses:

  state=failed and tool=run_shell_command
  under=7f3a and not agent=critic
  state in (queued, waiting) and older=2h

A condition applies to a whole run. A field with several values matches if one
of them does: tool=grep means some step called grep, tool!=grep no step did. A
star matches any text. Put values with other characters than letters, digits and
_ - . : / @ * + in quotes. Runs and sessions have the usual names, such as
"@last", and may be abbreviated. Nodes find runs by state, workflow, by, tag,
code, parent and age in an index; a list with other conditions alone reads the
history. The fields:

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
