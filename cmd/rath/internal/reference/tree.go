package reference

import (
	"context"
	"errors"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
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
	return noLineage(view.LineagePage(s.Lineage.Page).Graph(ctx, s.Tenant(), id))
}

// RunGraph reads the lineage of the tree of a run's session, and the trees of the
// sessions that the run opened beside it.
func RunGraph(ctx context.Context, s *app.System, r *messages.RunInfo) (*lineage.Graph, session.Key, error) {
	return noLineage(view.LineagePage(s.Lineage.Page).RunGraph(ctx, s.Tenant(), r))
}

// noLineage gives the error of a session without lineage its exit code.
func noLineage(g *lineage.Graph, root session.Key, err error) (*lineage.Graph, session.Key, error) {
	if errors.Is(err, view.ErrNoLineage) {
		err = app.Fail(app.ExitNotFound, "%w", err)
	}
	return g, root, err
}

// Recorded reads the lineage of a session's tree, or of all trees for "", from a cursor
// to its end.
func Recorded(ctx context.Context, s *app.System, id session.ID, after string, each func(*messages.LineageRecord) error) error {
	return view.LineagePage(s.Lineage.Page).Each(ctx, id, after, each)
}
