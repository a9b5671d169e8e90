package lineage

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
)

// JSON returns the picture as indented JSON.
func (p *Picture) JSON() ([]byte, error) {
	out, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("lineage: picture: %w", err)
	}
	return append(out, '\n'), nil
}

// mermaidArrows are the arrows and names of each kind of edge.
var mermaidArrows = map[string]string{
	EdgeContinues: "---",
	EdgeForked:    "-->|fork|",
	EdgeDetached:  "-.->|copy|",
	EdgeAdopted:   "==>|adopted|",
	EdgeMerged:    "==>|merged|",
}

// Mermaid returns the picture as a Mermaid flowchart.
func (p *Picture) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	if p.Title != "" {
		fmt.Fprintf(&b, "  accTitle: %s\n", mermaidText(p.Title))
	}
	for _, n := range p.Nodes {
		lines := []string{"<b>" + mermaidText(n.Label) + "</b> " + n.span()}
		if n.Title != "" {
			lines = append(lines, mermaidText(n.Title))
		}
		for i, l := range n.Lines {
			if n.Hidden > 0 && i == n.hiddenAt() {
				lines = append(lines, fmt.Sprintf("... %d more", n.Hidden))
			}
			lines = append(lines, mermaidText(strings.TrimSpace(l.Actor+" "+l.Text)))
		}
		if n.Last && n.Disposition != Open {
			lines = append(lines, mermaidText(strings.TrimSpace(strings.ToUpper(n.Disposition)+" "+n.Reason)))
		}
		fmt.Fprintf(&b, "  %s[\"%s\"]:::%s\n", n.ID, strings.Join(lines, "<br/>"), dispositionClass(n.Disposition))
	}
	for _, e := range p.Edges {
		fmt.Fprintf(&b, "  %s %s %s\n", e.From, mermaidArrows[e.Kind], e.To)
	}
	if p.Omitted > 0 {
		fmt.Fprintf(&b, "  more[\"%s more\"]:::open\n", excerpt.Counted(p.Omitted, "session"))
	}
	b.WriteString(mermaidClasses)
	return b.String()
}

const mermaidClasses = `  classDef open stroke:#4c6ef5,stroke-width:2px
  classDef adopted stroke:#2b8a3e,stroke-width:2px
  classDef merged stroke:#0b7285,stroke-width:2px
  classDef rejected stroke:#c92a2a,stroke-width:2px,stroke-dasharray:5 3
  classDef cancelled stroke:#868e96,stroke-width:2px,stroke-dasharray:2 3
  classDef failed stroke:#d9480f,stroke-width:2px,stroke-dasharray:5 3
`

// mermaidText escapes the markup of Mermaid, and of the HTML in its labels, as entities,
// so that hostile text stays text.
func mermaidText(s string) string {
	var b strings.Builder
	for _, r := range line(s, 200) {
		if strings.ContainsRune("\"<>&#;`[]{}|\\*_%()", r) {
			fmt.Fprintf(&b, "#%d;", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// span returns the versions of a node: "1-4", or "4" for at most one.
func (n *Node) span() string {
	if n.To <= n.From+1 {
		return fmt.Sprint(n.To)
	}
	return fmt.Sprintf("%d-%d", n.From+1, n.To)
}

// hiddenAt returns the index of the line after the hidden ones.
func (n *Node) hiddenAt() int { return len(n.Lines) / 2 }

// dispositionClass returns a name that is safe in markup.
func dispositionClass(d string) string {
	switch d {
	case "adopted", "merged", "rejected", "cancelled", "failed":
		return d
	case ScratchEnd, LateEnd:
		return "cancelled"
	}
	return "open"
}
