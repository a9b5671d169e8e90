package inspect

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/view"
)

// Show is the command "show".
func Show(a *app.App) *cobra.Command {
	var full bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show the transcript of a session, or of a run",
		Long: `Shows what was said in a session: each row with the version it made, who said
it, and the tools that were called, and of a run in flight what it is at. Long
texts are cut; --full shows them whole.
"help names" tells how to name a session, a version or a run.`,
		Example: `  rath show @last
  rath show 7f3a:4 --full
  rath show 7f3a -o jsonl | jq .text`,
		Args: app.Exactly(1, "one session or run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.With(cmd.Context(), func(s *app.System) error { return show(cmd.Context(), a, s, args[0], full) })
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "whole texts")
	return cmd
}

func show(ctx context.Context, a *app.App, s *app.System, name string, full bool) error {
	n, err := reference.Lookup(ctx, s, name)
	if err != nil {
		return err
	}
	if n.Run != nil && n.Session == "" { // ended before a log held it
		if done, err := app.EmitOne(a, n.Run); done {
			return err
		}
		view.RunLine(a.Out, n.Run)
		return nil
	}
	v, err := s.Session(ctx, n.String())
	if err != nil {
		return err
	}
	switch a.Config.Output.Value {
	case "json":
		return a.WriteJSON(v)
	case "jsonl":
		_, err := app.Emit(a, v.Chunks)
		return err
	}
	if n.Run != nil {
		view.RunLine(a.Out, n.Run)
	}
	view.WriteTranscript(a.Out, &v, full)
	if n.Run == nil || n.Version != 0 {
		return nil
	}
	live, err := liveOf(ctx, a, s, n.Run)
	if err != nil || live == nil {
		return err
	}
	a.Out.Println()
	return tellLive(ctx, a, s, live)
}
