package reference

import (
	"context"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/session"
)

// Labels names the sessions of the tree that a session, by id or name, is part
// of, as pictures of it do: none where nothing can be read of it yet.
func Labels(ctx context.Context, s *app.System, name string) *lineage.Labels {
	if g, root, err := Graph(ctx, s, session.ID(name)); err == nil {
		if l, err := g.Labels(root); err == nil {
			return l
		}
	}
	return &lineage.Labels{}
}

// Graph reads the lineage of the tree that a session is part of.
func Graph(ctx context.Context, s *app.System, id session.ID) (*lineage.Graph, session.Key, error) {
	g := lineage.NewGraph()
	var root session.ID
	for after := uint64(0); ; {
		page, err := s.Lineage(ctx, string(id), after, 0)
		if err != nil {
			return nil, session.Key{}, err
		}
		for i := range page.Records {
			g.Add(page.Records[i].Record)
			root = page.Records[i].Record.Root
		}
		if after = page.Next; after >= page.Last || after == 0 {
			break
		}
	}
	if root == "" {
		return nil, session.Key{}, app.Fail(app.ExitNotFound, "session %s has no lineage yet", id)
	}
	return g, session.Key{Tenant: s.Tenant(), ID: root}, nil
}
