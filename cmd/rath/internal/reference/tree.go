package reference

import (
	"context"
	"errors"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Labels names the sessions of a session's tree, by the id or name of the session, as
// pictures of the tree do. It returns none if the tree cannot be read yet.
func Labels(ctx context.Context, s *app.System, name string) *lineage.Labels {
	if g, root, err := Graph(ctx, s, session.ID(name)); err == nil {
		if l, err := g.Labels(root); err == nil {
			return l
		}
	}
	return &lineage.Labels{}
}

// Graph reads the lineage of a session's tree.
func Graph(ctx context.Context, s *app.System, id session.ID) (*lineage.Graph, session.Key, error) {
	g := lineage.NewGraph()
	root := session.Key{Tenant: s.Tenant()}
	err := Recorded(ctx, s, id, "", func(r *messages.LineageRecord) error {
		g.Add(r.Record)
		root.ID = r.Record.Root
		return nil
	})
	if err == nil && root.ID == "" {
		err = app.Fail(app.ExitNotFound, "session %s has no lineage yet", id)
	}
	if err != nil {
		return nil, session.Key{}, err
	}
	return g, root, nil
}

// mostTrees bounds the trees that are read in addition to a run's own.
const mostTrees = 256

// RunGraph reads the lineage of the tree of a run's session, and the trees of the
// sessions that the run opened beside it, for example to take notes by a model.
func RunGraph(ctx context.Context, s *app.System, r *messages.RunInfo) (*lineage.Graph, session.Key, error) {
	g, root, err := Graph(ctx, s, r.Session)
	if err != nil {
		return nil, root, err
	}
	tried := map[session.ID]bool{}
	for more := true; more; {
		more = false
		for _, id := range g.Beside(s.Tenant(), r.Run) {
			if tried[id] || len(tried) == mostTrees {
				continue
			}
			tried[id], more = true, true
			err := Recorded(ctx, s, id, "", func(r *messages.LineageRecord) error {
				g.Add(r.Record)
				return nil
			})
			if err != nil && !errors.Is(err, session.ErrNotFound) { // the step was cut off before it began
				return nil, root, err
			}
		}
	}
	return g, root, nil
}

// Recorded reads the lineage of a session's tree, or of all trees for "", from a cursor
// to its end.
func Recorded(ctx context.Context, s *app.System, id session.ID, after string, each func(*messages.LineageRecord) error) error {
	for {
		page, err := s.Lineage.Page(ctx, string(id), after, 0)
		if err != nil {
			return err
		}
		for i := range page.Records {
			if err := each(&page.Records[i]); err != nil {
				return err
			}
		}
		if !page.More {
			return nil
		}
		after = page.Next
	}
}
