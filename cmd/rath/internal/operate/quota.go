package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Quota is the command "quota".
func Quota(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Set, show and open the quota of a tenant for each UTC day",
		Example: `  rath cluster quota set acme --runs 1000 --usd 50
  rath cluster quota show acme
  rath cluster quota open acme --usd 20`,
		Args: app.NoSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(quotaShow(a), quotaSet(a), quotaOpen(a), quotaRemove(a))
	return cmd
}

// quotaOf is a command about the quota of a tenant.
func quotaOf(a *app.App, use, short string, do func(ctx context.Context, s *app.System, cmd *cobra.Command) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " [TENANT]", Short: short, Args: app.AtMost(1, "one tenant"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if err := session.ValidID("tenant", args[0]); err != nil {
					return app.Usage(cmd, err)
				}
				a.Config.Tenant.Value = args[0]
			}
			return a.With(cmd.Context(), func(s *app.System) error { return do(cmd.Context(), s, cmd) })
		},
	}
}

func quotaShow(a *app.App) *cobra.Command {
	cmd := quotaOf(a, "show", "Show the quota of a tenant and its usage today", func(ctx context.Context, s *app.System, _ *cobra.Command) error {
		return showQuota(ctx, a, s)
	})
	cmd.Example = `  rath cluster quota show acme
  rath cluster quota show acme --format json`
	return cmd
}

func showQuota(ctx context.Context, a *app.App, s *app.System) error {
	q, err := s.Fleet.Quota(ctx)
	if err != nil {
		return err
	}
	if done, err := app.EmitOne(a, q); done {
		return err
	}
	view.WriteQuota(a.Out, string(s.Tenant()), &q)
	return nil
}

// quotaFlags are the amounts that a command takes.
type quotaFlags struct {
	amounts messages.QuotaAmounts
	usd     float64
}

func (f *quotaFlags) add(fs *pflag.FlagSet) {
	fs.Int64Var(&f.amounts.Runs, "runs", 0, "runs that begin on a day")
	fs.Int64Var(&f.amounts.Tokens, "tokens", 0, "tokens of model calls on a day")
	fs.Float64Var(&f.usd, "usd", 0, "US dollars of model calls on a day")
}

// read returns the amounts of the flags that were set.
func (f *quotaFlags) read(cmd *cobra.Command) (*messages.QuotaAmounts, error) {
	for _, name := range []string{"runs", "tokens", "usd", "concurrency"} {
		flag := cmd.Flags().Lookup(name)
		if flag == nil || !flag.Changed {
			continue
		}
		n := map[string]float64{
			"runs": float64(f.amounts.Runs), "tokens": float64(f.amounts.Tokens), "usd": f.usd * 1e6, "concurrency": float64(f.amounts.Concurrency),
		}[name]
		if !(n >= 1 && n <= messages.MaxQuota) {
			return nil, fmt.Errorf("--%s %s: want a positive amount, of at most %d (micro-USD for --usd); \"rath cluster quota remove\" lifts the quota", name, flag.Value, int64(messages.MaxQuota))
		}
	}
	f.amounts.MicroUSD = int64(f.usd*1e6 + 0.5)
	return &f.amounts, nil
}

func quotaSet(a *app.App) *cobra.Command {
	var f quotaFlags
	var by, reason string
	cmd := quotaOf(a, "set", "Set amounts of the quota of a tenant", func(ctx context.Context, s *app.System, cmd *cobra.Command) error {
		amounts, err := f.read(cmd)
		if err != nil {
			return app.Usage(cmd, err)
		}
		if *amounts == (messages.QuotaAmounts{}) {
			return app.Usage(cmd, errors.New("name an amount, such as --runs 1000"))
		}
		if err := s.Fleet.ChangeQuota(ctx, messages.VerbQuotaSet, messages.Control{By: by, Quota: amounts, Reason: reason}); err != nil {
			return err
		}
		return showQuota(ctx, a, s)
	})
	cmd.Long = `Sets amounts of the quota of a tenant; amounts without a flag stay as they are.
--runs, --tokens and --usd are for each UTC day, and --concurrency is the
maximum number of runs that have begun and not ended. Branches do not count as
runs.

A run above the quota waits in its session until the day, the end of a run or
the operator lets it begin. Once the tokens or the money of the day are used, a
run waits with its next model call, without a slot. Calls in flight end: a
tenant exceeds its quota by at most one call of each branch. Runs that have
begun stay.

The first quota of a tenant takes effect within five seconds, and does not count
earlier runs. Later settings take effect at once. It takes the operator's
credentials on a server.`
	cmd.Example = `  rath cluster quota set acme --runs 1000 --concurrency 20
  rath cluster quota set acme --tokens 5000000 --usd 50 --reason "May"`
	f.add(cmd.Flags())
	cmd.Flags().Int64Var(&f.amounts.Concurrency, "concurrency", 0, "runs at one time")
	cmd.Flags().StringVar(&reason, "reason", "", "why, kept as evidence")
	a.ByFlag(cmd.Flags(), &by, "who decides")
	return cmd
}

func quotaOpen(a *app.App) *cobra.Command {
	var f quotaFlags
	var by, reason string
	cmd := quotaOf(a, "open", "Add to the quota of a tenant for the rest of the UTC day", func(ctx context.Context, s *app.System, cmd *cobra.Command) error {
		amounts, err := f.read(cmd)
		if err != nil {
			return app.Usage(cmd, err)
		}
		if *amounts == (messages.QuotaAmounts{}) {
			amounts = nil
		}
		if err := s.Fleet.ChangeQuota(ctx, messages.VerbQuotaOpen, messages.Control{By: by, Quota: amounts, Reason: reason}); err != nil {
			return err
		}
		return showQuota(ctx, a, s)
	})
	cmd.Long = `Adds amounts to the quota of a tenant on the current UTC day, and wakes the runs
that wait for it. Without an amount, the tenant has no limit on runs, tokens and
money until the end of the day. The concurrency stays.`
	cmd.Example = `  rath cluster quota open acme
  rath cluster quota open acme --usd 20 --reason "release day"`
	f.add(cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "", "why, kept as evidence")
	a.ByFlag(cmd.Flags(), &by, "who decides")
	return cmd
}

func quotaRemove(a *app.App) *cobra.Command {
	var by, reason string
	cmd := quotaOf(a, "remove", "Lift the quota of a tenant", func(ctx context.Context, s *app.System, _ *cobra.Command) error {
		if err := s.Fleet.ChangeQuota(ctx, messages.VerbQuotaRemove, messages.Control{By: by, Reason: reason}); err != nil {
			return err
		}
		return showQuota(ctx, a, s)
	})
	cmd.Long = `Lifts the quota of a tenant. The runs that wait for it begin.`
	cmd.Example = `  rath cluster quota remove acme`
	cmd.Flags().StringVar(&reason, "reason", "", "why, kept as evidence")
	a.ByFlag(cmd.Flags(), &by, "who decides")
	return cmd
}
