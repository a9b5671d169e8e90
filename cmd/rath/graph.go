package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/internal/lineage"
)

func (a *app) graphCommand() *cobra.Command {
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
		Args: exactly(1, "one session or run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.asJSON() && !cmd.Flags().Changed("format") {
				format = "json"
			}
			if err := oneOf("tree", "mermaid", "svg", "json")(format); err != nil {
				return usage(cmd, fmt.Errorf("--format %w", err))
			}
			return a.with(cmd.Context(), func(s *system) error {
				return a.graph(cmd.Context(), s, args[0], format, &lineage.TreeOptions{All: all, Expand: expand})
			})
		},
	}
	cmd.Flags().StringVar(&format, "format", "tree", "tree, mermaid, svg or json")
	cmd.Flags().BoolVar(&all, "all", false, "of a tree: every record, not the story alone")
	cmd.Flags().BoolVar(&expand, "expand", false, "of a tree: every branch of large fan-outs")
	return cmd
}

func (a *app) graph(ctx context.Context, s *system, name, format string, o *lineage.TreeOptions) error {
	n, err := s.resolve(ctx, name)
	if err != nil {
		return err
	}
	g, root, err := s.graph(ctx, n.session)
	if err != nil {
		return err
	}
	if format == "tree" {
		o.Width = min(a.out.Width(), 120)
		if o.Expand {
			o.MaxSessions = 10_000
		}
		text, err := g.Tree(root, o)
		if err == nil {
			a.out.Printf("%s", text)
		}
		return err
	}
	p, err := g.Picture(root, nil)
	if err != nil {
		return err
	}
	switch format {
	case "mermaid":
		a.out.Println(strings.TrimRight(p.Mermaid(), "\n"))
	case "svg":
		a.out.Println(strings.TrimRight(p.SVG(), "\n"))
	default:
		if a.config.Output.Value == "jsonl" {
			return a.writeLine(p)
		}
		data, err := p.JSON()
		if err != nil {
			return err
		}
		a.out.Println(strings.TrimRight(string(data), "\n"))
	}
	return nil
}
