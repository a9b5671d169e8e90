package lineage

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Labels are the short names of the sessions of one tree: s1 for the first, s2 and so on
// in the order of opening, or the name that a user gave a session. The branches of a
// fan-out are counted when it begins, in its order. A reader of the record stream
// therefore counts as [Graph.Labels] does, unless concurrent branches open sessions at the
// same time. The zero value is ready to use; it is not safe for concurrent use.
type Labels struct {
	names map[session.ID]string
	used  map[string]bool
}

// Add counts the session of a record, and the branches that the record opens.
func (l *Labels) Add(r *messages.Record) {
	l.Of(r.Session)
	if r.Kind == messages.KindFannedOut {
		for _, b := range r.Branches {
			l.Of(b.Session)
		}
	}
}

// Of returns the label of a session and counts a new one.
func (l *Labels) Of(id session.ID) string {
	if name, ok := l.names[id]; ok {
		return name
	}
	if l.names == nil {
		l.names, l.used = map[session.ID]string{}, map[string]bool{}
	}
	name := fmt.Sprintf("s%d", len(l.names)+1)
	if _, _, minted := id.Locate(); !minted && len(id) <= 10 {
		name = string(id)
	}
	for l.used[name] {
		name += "'"
	}
	l.names[id], l.used[name] = name, true
	return name
}

// Labels returns the labels of a tree, as [Graph.Tree] and [Graph.Picture] use
// them.
func (g *Graph) Labels(root session.Key) (*Labels, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	rows, err := g.index.rows(root, 0)
	if err != nil {
		return nil, err
	}
	return g.index.labels(rows), nil
}

// labels counts the sessions of a whole tree.
func (g *index) labels(rows []row) *Labels {
	var count []*messages.Record
	for _, r := range rows {
		t := g.sessions[r.info.Key]
		for i, rec := range t.records {
			if i == 0 || rec.Kind == messages.KindFannedOut {
				count = append(count, rec)
			}
		}
	}
	root := count[0] // the first row; the clocks of nodes may differ
	slices.SortStableFunc(count[1:], func(a, b *messages.Record) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Session, b.Session), cmp.Compare(a.Commit, b.Commit))
	})
	l := &Labels{}
	l.Of(root.Session)
	for _, r := range count {
		l.Add(r)
	}
	return l
}
