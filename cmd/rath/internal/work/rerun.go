package work

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/selection"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Rerun is the command "rerun".
func Rerun(a *app.App) *cobra.Command {
	var o selection.Selection
	var again messages.Control
	cmd := &cobra.Command{
		Use:   "rerun [RUN]",
		Short: "Run tasks again, from their start",
		Long: `Submits the task of a run again, or those of all runs of --where: as a new run,
RUN-r1, RUN-r2 and so on, on a fork of the session at the run's start. The
former run and its results stay unchanged. The run may be open or ended in any
state; for a branch the whole parent run is repeated. A run that resumed another
one is repeated from the step at which it resumed.

A run with calls that have taken effect and must not happen twice is refused,
with their list: "rath resume" keeps them, --repeat makes them again.`,
		Example: `  rath session rerun @last
  rath session rerun --where 'state=failed and code=rate_limit and not older=1d'`,
		Args: o.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error {
				var last run.ID
				err := selection.Each(ctx, a, s, &o, args, selection.Verb{
					Name: "rerun", Past: "submitted again",
					Skip: func(r *messages.RunInfo) string {
						if r.BranchOf != nil {
							return "is a branch of run " + string(r.BranchOf.Run) + "; rerun that one"
						}
						return ""
					},
					Do: func(ctx context.Context, r *messages.RunInfo) (string, error) {
						id, err := s.Runs.Rerun(ctx, r.Run, again)
						last = id
						return "runs again as " + string(id), err
					},
				})
				if err == nil && last != "" && s.Own() {
					a.Remark("no node runs here: it waits for %q or %q", a.Hint("dev"), a.Hint("resume", string(last)))
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&again.Repeat, "repeat", false, "make calls again that must not happen twice")
	o.Flags(cmd.Flags())
	return cmd
}
