package ladder

import (
	"context"
	"slices"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// treeWidth is the width of the tree of sessions, in columns.
const treeWidth = 80

// records reads the records of a session, the oldest first.
type records func(ctx context.Context, k session.Key) ([]messages.Record, error)

// recordsIn derives the records of a session from its log.
func recordsIn(ctx context.Context, log commitlog.Log, k session.Key) ([]messages.Record, error) {
	var all []messages.Record
	for e, err := range log.Read(ctx, k, commitlog.Position{}) {
		if err != nil {
			return nil, err
		}
		records, err := lineage.Derive(e)
		if err != nil {
			return nil, err
		}
		all = append(all, records...)
	}
	return all, nil
}

// graphOf returns the graph of sessions, built from their records only. Concurrent branches
// finish in a different order each time. graphOf places each one completely at its position
// in the session that opened it, so the same work gives the same graph.
func graphOf(ctx context.Context, read records, root session.Key) (*lineage.Graph, error) {
	w := walker{graph: lineage.NewGraph(), records: map[session.ID][]messages.Record{}}
	for open := []session.ID{root.ID}; len(open) > 0; open = open[1:] {
		id := open[0]
		if w.records[id] != nil {
			continue
		}
		own, err := read(ctx, session.Key{Tenant: root.Tenant, ID: id})
		if err != nil {
			return nil, err
		}
		w.records[id] = own
		// Its records name the sessions that were opened from it or merged into it.
		for _, r := range w.records[id] {
			for _, other := range slices.Concat(r.Branches, r.Parents) {
				open = append(open, other.Session)
			}
		}
	}
	w.walk(root.ID)
	return w.graph, nil
}

// walker adds records to a graph in an order that their contents determine.
type walker struct {
	graph   *lineage.Graph
	records map[session.ID][]messages.Record // of sessions that were not walked yet
	time    int64
}

func (w *walker) walk(id session.ID) {
	own := w.records[id]
	delete(w.records, id)
	for _, r := range own {
		w.time++
		r.Time = w.time
		w.graph.Add(r)
		for _, b := range r.Branches {
			if r.Kind == messages.KindBranched || r.Kind == messages.KindFannedOut {
				w.walk(b.Session)
			}
		}
		// A summary is a session of its own, which the step that made it does not name.
		var made []session.ID
		for kid, records := range w.records {
			if first := records[0]; r.Step != "" && first.Step == r.Step && slices.ContainsFunc(first.Parents, func(p messages.Ref) bool { return p.Session == id }) {
				made = append(made, kid)
			}
		}
		slices.Sort(made)
		for _, kid := range made {
			w.walk(kid)
		}
	}
}
