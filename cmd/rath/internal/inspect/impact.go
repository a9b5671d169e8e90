package inspect

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/session"
)

// Impact is the command "impact".
func Impact(a *app.App) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "impact WHAT",
		Short: "Say what a chunk, a tool result or another step touched afterwards",
		Long: `Says what came after something and could see it: the later steps of its session,
the forks, copies and merges that include it, the runs on those, the files that
they changed, the notes that they wrote, and later searches of the same memories
elsewhere. A merge may leave out rows of a branch and a summary what it sums up:
this is what may have been touched. "why" asks the other way round.`,
		Example: `  rath impact 7f3a:5       version 5 of a session
  rath impact 7f3a#3       row 3 of a session, counted from 0
  rath impact @last/2.0    a tool call of the last run
  rath impact 7f3a:5 --format json | jq .files`,
		Args: app.Exactly(1, "one thing"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.With(cmd.Context(), func(s *app.System) error { return impact(cmd.Context(), a, s, args[0], all) })
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all of each list, not only the first rows")
	return cmd
}

func impact(ctx context.Context, a *app.App, s *app.System, text string, all bool) error {
	t, err := parseTarget(text)
	if err != nil {
		return err
	}
	f, err := find(ctx, s, t, true)
	if err != nil {
		return err
	}
	var i lineage.Impact
	switch {
	case f.path != "":
		return app.Fail(app.ExitUsage, "%q is a file: ask for the step that changed it, as \"why %s\" tells it", text, text)
	case f.row >= 0:
		var r session.Ref
		if r, err = chunkOf(ctx, s, f); err == nil {
			i, err = f.graph.Impact(r.Key, r.Version)
		}
	case f.call != nil:
		i, err = f.graph.ImpactOfStep(s.Tenant(), f.call.Run, f.call.Step)
	case f.step != "":
		i, err = f.graph.ImpactOfStep(s.Tenant(), f.run.Run, f.step)
	case t.version > 0:
		i, err = f.graph.Impact(f.Ref(s.Tenant()).Key, t.version)
	default:
		return app.Fail(app.ExitUsage, "%q is all of a session or run: name a version, a row or a step, such as %s:3, %s#0 or %s/0", text, text, text, text)
	}
	if err != nil {
		return err
	}
	out := view.ImpactOf(i)
	if err := out.NameFiles(ctx, s.Blobs(s.Tenant()), i.Files); err != nil {
		return err
	}
	if done, err := app.EmitOne(a, out); done {
		return err
	}
	view.WriteImpact(a.Out, text, out, all)
	return nil
}
