package dossier

import (
	"github.com/rathcluster/rath/internal/evidence/lineage"
)

// Limb is one session of the picture as a list, the replacement of a large drawing.
type Limb struct {
	lineage.Node // its first stretch, with the lines of all of them
	Limbs        []Limb
}

// limbs turns the picture into a tree of sessions. A session with several parents is
// below the first of them.
func limbs(p *lineage.Picture) []Limb {
	owner := map[string]int{} // index of a node's session
	var all []Limb
	for _, n := range p.Nodes {
		if k := len(all) - 1; k >= 0 && all[k].Session == n.Session {
			l := &all[k]
			l.Lines, l.Hidden = append(l.Lines, n.Lines...), l.Hidden+n.Hidden
			l.To, l.Disposition, l.Reason, l.Last = n.To, n.Disposition, n.Reason, n.Last
		} else {
			all = append(all, Limb{Node: n})
		}
		owner[n.ID] = len(all) - 1
	}
	parent := make([]int, len(all))
	for i := range parent {
		parent[i] = -1
	}
	for _, e := range p.Edges {
		from, to := owner[e.From], owner[e.To]
		if parent[to] < 0 && from < to { // parents come first
			parent[to] = from
		}
	}
	for i := len(all) - 1; i >= 0; i-- {
		if at := parent[i]; at >= 0 {
			all[at].Limbs = append([]Limb{all[i]}, all[at].Limbs...)
		}
	}
	var roots []Limb
	for i := range all {
		if parent[i] < 0 {
			roots = append(roots, all[i])
		}
	}
	return roots
}

// limbLines is the maximum number of lines per session in the list.
const limbLines = 6

// Shown returns the lines in the list: the first and the last ones.
func (l *Limb) Shown() []lineage.Line {
	if len(l.Lines) <= limbLines {
		return l.Lines
	}
	return append(append([]lineage.Line{}, l.Lines[:limbLines/2]...), l.Lines[len(l.Lines)-limbLines/2:]...)
}

// Left returns the number of omitted lines.
func (l *Limb) Left() int { return l.Hidden + max(len(l.Lines)-limbLines, 0) }
