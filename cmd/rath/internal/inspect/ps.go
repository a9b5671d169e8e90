package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/cmd/rath/internal/selection"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/run"
)

// Ps is the command "ps".
func Ps(a *app.App) *cobra.Command {
	var states []string
	var workflow, where, by string
	var limit int
	var watch, branches bool
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List runs, the newest first",
		Long: `Lists runs. NODE is the current or last node of a run, "-" for none; "cluster
nodes ls" lists the nodes. --where filters runs by their steps and their state,
see "help where". --watch continues: on a terminal it redraws the list after
each change; otherwise it prints a line for each new or changed run. Branches of
fan-outs are runs too: --branches, or any --where, lists them.`,
		Example: `  rath ps
  rath ps --state running,needs_review
  rath ps --where 'tool=run_shell_command and state=failed and not older=1d'
  rath ps --where under=@last --watch
  rath ps --by ana
  rath ps --workflow review --limit 100 --format jsonl`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return app.Usage(cmd, fmt.Errorf("--limit %d: want the most rows to list, or 0 for all", limit))
			}
			o := &client.RunsOptions{Workflow: workflow, By: by, Where: where, Limit: limit}
			for _, name := range states {
				st := run.State(strings.TrimSpace(name))
				if !known(st) {
					return app.Usage(cmd, fmt.Errorf("%q is no state; the states are %s", name, view.Names(stateNames())))
				}
				o.States = append(o.States, st)
			}
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error {
				if o.Where != "" {
					sel, err := selection.Selector(ctx, a, s, o.Where)
					if err != nil {
						return err
					}
					o.Where = sel.String()
				}
				if where == "" && !branches {
					o.Where = "branch=no"
				}
				if watch {
					return watchRuns(ctx, a, s, o)
				}
				return ps(ctx, a, s, o)
			})
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only runs in these states, separated by commas")
	cmd.Flags().StringVar(&workflow, "workflow", "", "only runs of this workflow")
	cmd.Flags().StringVar(&by, "by", "", "only runs submitted by this user, also again")
	cmd.Flags().StringVar(&where, "where", "", `only matching runs, such as 'tool=grep and state=failed'; see "help where"`)
	cmd.Flags().BoolVar(&branches, "branches", false, "also branches of fan-outs")
	cmd.Flags().IntVar(&limit, "limit", 20, "maximum number of rows; 0 for all")
	cmd.Flags().BoolVar(&watch, "watch", false, "continue, and show changes")
	return cmd
}

var AllStates = []run.State{run.Queued, run.Running, run.Waiting, run.NeedsReview, run.Succeeded, run.Failed, run.Cancelled, run.TimedOut}

func known(s run.State) bool {
	return slices.Contains(AllStates, s)
}

func stateNames() []string {
	names := make([]string, len(AllStates))
	for i, s := range AllStates {
		names[i] = string(s)
	}
	return names
}

func ps(ctx context.Context, a *app.App, s *app.System, o *client.RunsOptions) error {
	behind := uint64(0)
	o.Behind = func(n uint64) { behind = n }
	runs, err := s.ListRuns(ctx, *o)
	if err != nil {
		return err
	}
	if behind > 0 {
		a.Remark("the node's index of runs is %s behind, so the whole history was read; it catches up with each list", view.Counted(int64(behind), "record")) //nolint:gosec // messages of a stream
	}
	if done, err := app.Emit(a, runs); done {
		return err
	}
	if len(runs) == 0 {
		if o.Where != "" && o.Where != "branch=no" || o.Workflow != "" || len(o.States) > 0 {
			a.Remark("no such runs in tenant %s", s.Tenant())
		} else {
			a.Remark("no runs in tenant %s", s.Tenant())
		}
	} else {
		names, err := nodeNames(ctx, s)
		if err != nil {
			return err
		}
		view.RunTable(a.Out, runs, names, view.LiveNotes(ctx, s.Runs.Live, runs), a.Out.Terminal())
	}
	submitted, waiting, err := s.Fleet.Tasks(ctx)
	if err != nil {
		return err
	}
	narrow := o.Where != "" && o.Where != "branch=no" || o.Workflow != ""
	switch cut := o.Limit > 0 && len(runs) == o.Limit; {
	case cut && (narrow || len(o.States) > 0):
		a.Remark("the newest %s of those; there may be more: --limit 0 lists all", view.Counted(int64(len(runs)), "run"))
	case cut && submitted > uint64(len(runs)):
		a.Remark("%d of %s that were submitted; --limit 0 lists all", len(runs), view.Counted(int64(submitted), "run"))
	}
	if waiting > 0 && !narrow && (len(o.States) == 0 || slices.Contains(o.States, run.Queued)) {
		a.Remark("%s", reference.WaitingTasks(waiting))
	}
	if !narrow && (len(o.States) == 0 || slices.Contains(o.States, run.Failed)) {
		remarkRefused(ctx, a, s)
	}
	return nil
}

// remarkRefused prints a remark if tasks were rejected: they are no runs. It reads one
// of them, and ignores errors: credentials that list runs need not grant that.
func remarkRefused(ctx context.Context, a *app.App, s *app.System) {
	if refused, err := s.Fleet.DeadLetters(ctx, 1); err == nil && len(refused) > 0 {
		a.Remark("some tasks were rejected and have no runs: see %q", a.Hint("cluster", "dlq", "ls"))
	}
}

// nodeNames returns the names of the nodes that live, by incarnation.
func nodeNames(ctx context.Context, s *app.System) (map[string]string, error) {
	all, err := s.Fleet.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(all))
	for _, n := range all {
		if n.Name != n.Incarnation {
			names[n.Incarnation] = n.Name
		}
	}
	return names, nil
}
