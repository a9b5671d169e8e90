package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/internal/view"
)

func (a *app) showCommand() *cobra.Command {
	var full bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show the transcript of a session, or of a run",
		Long: `Shows what was said in a session: each row with the version it made, who said
it, and the tools that were called. Long texts are cut; --full shows them whole.
"help names" tells how to name a session, a version or a run.`,
		Example: `  rath show @last
  rath show 7f3a:4 --full
  rath show 7f3a -o jsonl | jq .text`,
		Args: exactly(1, "one session or run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(s *system) error { return a.show(cmd.Context(), s, args[0], full) })
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "whole texts")
	return cmd
}

func (a *app) show(ctx context.Context, s *system, name string, full bool) error {
	n, err := s.lookUp(ctx, name)
	if err != nil {
		return err
	}
	if n.run != nil && n.session == "" { // ended before a log held it
		if done, err := emitOne(a, n.run); done {
			return err
		}
		view.RunLine(a.out, n.run)
		return nil
	}
	v, err := s.Session(ctx, n.String())
	if err != nil {
		return err
	}
	switch a.config.Output.Value {
	case "json":
		return a.writeJSON(v)
	case "jsonl":
		_, err := emit(a, v.Chunks)
		return err
	}
	if n.run != nil {
		view.RunLine(a.out, n.run)
	}
	view.WriteTranscript(a.out, &v, full)
	return nil
}
