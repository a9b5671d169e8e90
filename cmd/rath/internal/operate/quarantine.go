package operate

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/selection"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Quarantine is the command "quarantine".
func Quarantine(a *app.App) *cobra.Command {
	cmd := quarantining(a, selection.Verb{Name: "quarantine", Past: "quarantined", Several: true}, (*client.Runs).Quarantine, func(r *messages.RunInfo) string {
		if r.Quarantine != "" {
			return "is quarantined already: " + r.Quarantine
		}
		return ""
	})
	cmd.Use, cmd.Short = "quarantine [RUN] --reason TEXT", "Quarantine the sessions of runs until they are released"
	cmd.Long = `Quarantines the session of a run, or the sessions of all runs of --where: the
running step ends and is recorded, and no further step starts; no session merges
it or recalls its notes. An open run waits. "cluster release" ends the
quarantine. Ended runs can be quarantined too. Branches are separate sessions:
choose them with under.`
	cmd.Example = `  rath cluster quarantine 7f3a --reason "it read the production key"
  rath cluster quarantine --where 'under=7f3a' --reason "bad input" --dry-run`
	return cmd
}

// Release is the command "release".
func Release(a *app.App) *cobra.Command {
	cmd := quarantining(a, selection.Verb{Name: "release", Past: "released", Several: true}, (*client.Runs).Release, func(r *messages.RunInfo) string {
		if r.Quarantine == "" {
			return "is not quarantined"
		}
		return ""
	})
	cmd.Use, cmd.Short = "release [RUN] --reason TEXT", "Release the sessions of runs from quarantine"
	cmd.Long = `Releases the session of a run from quarantine, or the sessions of all runs of
--where. Nodes can then resume waiting runs.`
	cmd.Example = `  rath cluster release 7f3a --reason "the key was a fake"
  rath cluster release --where 'quarantined=yes' --reason "checked"`
	return cmd
}

// quarantining is a command about the sessions of runs: several runs may share
// one.
func quarantining(a *app.App, v selection.Verb, do func(*client.Runs, context.Context, run.ID, messages.Control) error, skip func(*messages.RunInfo) string) *cobra.Command {
	var o selection.Selection
	var by, reason string
	cmd := &cobra.Command{
		Args: o.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return app.Usage(cmd, errors.New("--reason is needed: it is kept as evidence"))
			}
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error {
				with := map[session.ID]run.ID{}
				v.Skip = func(r *messages.RunInfo) string {
					if why := skip(r); why != "" {
						return why
					}
					if other := with[r.Session]; other != "" {
						return "has the session of run " + string(other)
					}
					with[r.Session] = r.Run
					return ""
				}
				v.Plan = func(r *messages.RunInfo) string { return "session " + lineage.Short(r.Session) }
				v.Do = func(ctx context.Context, r *messages.RunInfo) (string, error) {
					return "is " + v.Past + ": session " + lineage.Short(r.Session), do(s.Runs, ctx, r.Run, messages.Control{By: by, Reason: reason})
				}
				return selection.Each(ctx, a, s, &o, args, v)
			})
		},
	}
	o.Flags(cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "", "why, kept as evidence")
	a.ByFlag(cmd.Flags(), &by, "who decides")
	return cmd
}
