package operate

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/selection"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
)

// Rebudget is the command "rebudget".
func Rebudget(a *app.App) *cobra.Command {
	var o selection.Selection
	var b messages.Budget
	var limit time.Duration
	var unlimited bool
	var by, reason string
	cmd := &cobra.Command{
		Use:   "rebudget [RUN]",
		Short: "Change the budget of open runs",
		Long: `Gives an open run, or all open runs of --where, a new budget. The budget counts
from the run's start; limits without a flag are lifted. A run above its budget
ends with its next step. The time limit also applies to its branches; they keep
their other limits.`,
		Example: `  rath cluster rebudget 7f3a --budget-tokens 200000
  rath cluster rebudget --where 'state=running and name=slow' --budget-steps 40`,
		Args: o.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			b.TimeMS = limit.Milliseconds()
			switch {
			case b == messages.Budget{} && !unlimited:
				return app.Usage(cmd, errors.New("name a limit, or --unlimited"))
			case b != messages.Budget{} && unlimited:
				return app.Usage(cmd, errors.New("--unlimited goes with no limit"))
			case b.Tokens < 0 || b.Steps < 0 || b.MicroUSD < 0 || b.TimeMS < 0:
				return app.Usage(cmd, errors.New("a limit is negative"))
			}
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error {
				return selection.Each(ctx, a, s, &o, args, selection.Verb{
					Name: "rebudget", Past: "given another budget", Skip: selection.Ended, Several: true,
					Plan: func(*messages.RunInfo) string { return "to " + view.BudgetText(b) },
					Do: func(ctx context.Context, r *messages.RunInfo) (string, error) {
						return "may use " + view.BudgetText(b), s.Runs.Rebudget(ctx, r.Run, messages.Control{Budget: &b, By: by, Reason: reason})
					},
				})
			})
		},
	}
	o.Flags(cmd.Flags())
	cmd.Flags().Int64Var(&b.Tokens, "budget-tokens", 0, "tokens")
	cmd.Flags().Int64Var(&b.Steps, "budget-steps", 0, "steps")
	cmd.Flags().Int64Var(&b.MicroUSD, "budget-micro-usd", 0, "millionths of a US dollar")
	cmd.Flags().DurationVar(&limit, "budget-time", 0, "time from its first claim, such as 30m")
	cmd.Flags().BoolVar(&unlimited, "unlimited", false, "remove all limits")
	cmd.Flags().StringVar(&reason, "reason", "", "why, kept as evidence")
	a.ByFlag(cmd.Flags(), &by, "who decides")
	return cmd
}
