package inspect

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/lineage"
)

// Graph is the command "graph".
func Graph(a *app.App) *cobra.Command {
	var format string
	var all, expand bool
	cmd := &cobra.Command{
		Use:   "graph NAME",
		Short: "Draw where sessions come from: a tree, Mermaid, SVG or JSON",
		Long: `Draws the tree of sessions that a session or run is part of: forks, joins, what
was rejected and why. Nothing is drawn by hand: the picture follows from the
commits. Of many branches of one fan-out a tree shows a few; --expand shows all.`,
		Example: `  rath graph @last
  rath graph @last --expand
  rath graph @last --format mermaid
  rath graph @last --format svg > run.svg`,
		Args: app.Exactly(1, "one session or run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.AsJSON() && !cmd.Flags().Changed("format") {
				format = "json"
			}
			if err := app.OneOf("tree", "mermaid", "svg", "json")(format); err != nil {
				return app.Usage(cmd, fmt.Errorf("--format %w", err))
			}
			return a.With(cmd.Context(), func(s *app.System) error {
				return graph(cmd.Context(), a, s, args[0], format, &lineage.TreeOptions{All: all, Expand: expand})
			})
		},
	}
	cmd.Flags().StringVar(&format, "format", "tree", "tree, mermaid, svg or json")
	cmd.Flags().BoolVar(&all, "all", false, "of a tree: every record, not the story alone")
	cmd.Flags().BoolVar(&expand, "expand", false, "of a tree: every branch of large fan-outs")
	return cmd
}

func graph(ctx context.Context, a *app.App, s *app.System, name, format string, o *lineage.TreeOptions) error {
	n, err := reference.Resolve(ctx, s, name)
	if err != nil {
		return err
	}
	g, root, err := reference.Graph(ctx, s, n.Session)
	if err != nil {
		return err
	}
	if format == "tree" {
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
	default:
		if a.Config.Output.Value == "jsonl" {
			return a.WriteLine(p)
		}
		data, err := p.JSON()
		if err != nil {
			return err
		}
		a.Out.Println(strings.TrimRight(string(data), "\n"))
	}
	return nil
}
