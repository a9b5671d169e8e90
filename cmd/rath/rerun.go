package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

func (a *app) rerunCommand() *cobra.Command {
	var o selection
	cmd := &cobra.Command{
		Use:   "rerun [RUN]",
		Short: "Run tasks once more, from where they began",
		Long: `Submits the task of a run once more, or of all runs that --where chooses: as a
run of its own, RUN-r1, RUN-r2 and so on, on a fork of the session as it was
when the run began. The former run and what it made stay as they are. A run may
have ended in any way or go on; a branch is run again with the run that opened
it.`,
		Example: `  rath rerun @last
  rath rerun --where 'state=failed and code=rate_limit and not older=1d'`,
		Args: o.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.with(ctx, func(s *system) error {
				var last run.ID
				err := a.each(ctx, s, &o, args, verb{
					name: "rerun", past: "submitted again",
					skip: func(r *messages.RunInfo) string {
						if r.BranchOf != nil {
							return "is a branch of run " + string(r.BranchOf.Run) + "; rerun that one"
						}
						return ""
					},
					do: func(ctx context.Context, r *messages.RunInfo) (string, error) {
						id, err := s.Rerun(ctx, r.Run)
						last = id
						return "runs again as " + string(id), err
					},
				})
				if err == nil && last != "" && s.own() {
					a.remark("no node runs here: it waits for %q or %q", a.invocation()+" dev", a.hint("resume", string(last)))
				}
				return err
			})
		},
	}
	o.flags(cmd.Flags())
	return cmd
}
