package inspect

import (
	"context"
	"strings"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/evidence/lineage"
)

// showTree draws the tree of sessions that a session or run is part of.
func showTree(ctx context.Context, a *app.App, s *app.System, name string, o *lineage.TreeOptions) error {
	format := a.Config.Format.Value
	n, err := reference.Resolve(ctx, s, name)
	if err != nil {
		return err
	}
	g, root, err := reference.Graph(ctx, s, n.Session)
	if err != nil {
		return err
	}
	if format == "text" {
		o.Width = min(a.Out.Width(), 120)
		if o.Expand {
			o.MaxSessions = 10_000
		}
		text, err := g.Tree(root, o)
		if err == nil {
			a.Out.Printf("%s", text)
		}
		return err
	}
	p, err := g.Picture(root, nil)
	if err != nil {
		return err
	}
	switch format {
	case "mermaid":
		a.Out.Println(strings.TrimRight(p.Mermaid(), "\n"))
	case "svg":
		a.Out.Println(strings.TrimRight(p.SVG(), "\n"))
	case "jsonl":
		return a.WriteLine(p)
	default:
		data, err := p.JSON()
		if err != nil {
			return err
		}
		a.Out.Println(strings.TrimRight(string(data), "\n"))
	}
	return nil
}
