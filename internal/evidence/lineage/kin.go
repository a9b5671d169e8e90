package lineage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Sessions returns the sessions of a tree: the root and its descendants, each parent
// before its children and siblings by time. They include sessions with other roots that
// were opened from one of them.
func (g *Graph) Sessions(t session.Tenant, root session.ID) ([]Session, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	rows, err := g.index.rows(session.Key{Tenant: t, ID: root}, 0)
	if err != nil {
		return nil, err
	}
	out := make([]Session, len(rows))
	for i, r := range rows {
		out[i] = r.info
	}
	return out, nil
}

// row is a session with its position in a tree.
type row struct {
	info   Session
	depth  int
	folded string // a line about the omitted sessions opened from it
}

// rows walks a tree without recursion, because a chain of forks may have any length. If
// more than foldFrom sessions were opened from one, it returns only fold of them; zero
// returns all.
func (g *index) rows(root session.Key, fold int) ([]row, error) {
	if _, err := g.history(root); err != nil {
		return nil, err
	}
	var out []row
	seen := map[session.Key]bool{root: true}
	stack := []row{{depth: 0, info: Session{Key: root}}}
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		t := g.sessions[top.info.Key].tidy()
		top.info = g.info(t)
		kids := g.kids(t.key)
		if fold > 0 && len(kids) > foldFrom {
			kids, top.folded = g.fold(kids, fold)
		}
		out = append(out, top)
		for _, k := range slices.Backward(kids) {
			if !seen[k] {
				seen[k] = true
				stack = append(stack, row{depth: top.depth + 1, info: Session{Key: k}})
			}
		}
	}
	return out, nil
}

// foldOrder is the precedence of branches when folding: adopted branches and ones that may
// need attention first.
var foldOrder = []string{session.ClosedAdopted, Open, session.ClosedFailed, session.ClosedRejected, session.ClosedMerged, session.ClosedCancelled}

// fold keeps n of many sessions, in order, and summarizes the others in a line.
func (g *index) fold(kids []session.Key, n int) (kept []session.Key, rest string) {
	ends := make(map[session.Key]string, len(kids))
	for _, k := range kids {
		ends[k] = Open
		if d := g.decision(g.sessions[k]); d != nil {
			ends[k] = d.state
		}
	}
	chosen := slices.Clone(kids)
	slices.SortStableFunc(chosen, func(a, b session.Key) int {
		return cmp.Compare(slices.Index(foldOrder, ends[a]), slices.Index(foldOrder, ends[b]))
	})
	count := map[string]int{}
	for _, k := range chosen[n:] {
		count[ends[k]]++
	}
	var parts []string
	for _, state := range foldOrder {
		if count[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[state], state))
		}
	}
	chosen = chosen[:n]
	kept = slices.DeleteFunc(slices.Clone(kids), func(k session.Key) bool { return !slices.Contains(chosen, k) })
	return kept, "... " + excerpt.Counted(len(kids)-n, "session") + " more from here: " + strings.Join(parts, ", ")
}

// kids returns the sessions that were opened from a session, by time.
func (g *index) kids(k session.Key) []session.Key {
	var out []session.Key
	for kid := range g.children[k] {
		if t := g.sessions[kid].tidy(); t.opening != nil {
			out = append(out, kid)
		}
	}
	slices.SortFunc(out, func(a, b session.Key) int {
		x, y := g.sessions[a].opening, g.sessions[b].opening
		return cmp.Or(cmp.Compare(x.Time, y.Time), run.ComparePaths(x.Step, y.Step), cmp.Compare(a.ID, b.ID))
	})
	return out
}
