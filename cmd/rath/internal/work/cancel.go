package work

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/cmd/rath/internal/selection"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Cancel is the command "cancel".
func Cancel(a *app.App) *cobra.Command {
	var d messages.Control
	var o selection.Selection
	cmd := &cobra.Command{
		Use:   "cancel [RUN]",
		Short: "Cancel runs",
		Long: `Cancels a run, or all runs of --where, and returns once the request is recorded.
Running calls end first; a run without a node ends at once. The branches of a
run end with it. To cancel a task no node has taken yet, give its whole id.

Code that ignores the end of its context is given up after 30 seconds, or with
--force after one, also for a run that was cancelled before. If it was in a call
that must not happen twice, the run needs a review. Its effects in Go outside of
steps cannot be stopped.`,
		Example: `  rath cancel @last --reason "wrong branch"
  rath cancel --where 'workflow=fix and older=2h' --dry-run`,
		Args: o.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error {
				v := selection.Verb{
					Name: "cancel", Past: "asked to stop", Skip: selection.Ended, Several: true,
					Do: func(ctx context.Context, r *messages.RunInfo) (string, error) {
						return "", s.Runs.Cancel(ctx, r.Run, d)
					},
				}
				err := selection.Each(ctx, a, s, &o, args, v)
				if _, waits := errors.AsType[reference.WaitingError](err); o.Where == "" && (waits || app.CodeOf(err) == app.ExitNotFound) {
					return cancelTask(ctx, a, s, &o, args[0], d, v, err)
				}
				return err
			})
		},
	}
	o.Flags(cmd.Flags())
	cmd.Flags().BoolVar(&d.Force, "force", false, "give up code that does not return within a second")
	cmd.Flags().StringVar(&d.Reason, "reason", "", "why, kept as evidence")
	a.ByFlag(cmd.Flags(), &d.By, "who asks")
	return cmd
}

// cancelTask cancels a run that no log holds, if it is a waiting task; otherwise it
// returns unknown.
func cancelTask(ctx context.Context, a *app.App, s *app.System, o *selection.Selection, id string, d messages.Control, v selection.Verb, unknown error) error {
	if _, err := app.RunID(id); err != nil {
		return unknown
	}
	row := selection.Outcome{Run: run.ID(id), State: run.Queued, Action: v.Name}
	if _, waits := errors.AsType[reference.WaitingError](unknown); !waits {
		if _, n, err := s.Fleet.Tasks(ctx); err != nil || n == 0 {
			return errors.Join(unknown, err)
		}
		row.Note = "if a task of this id waits"
	}
	if !o.DryRun {
		switch err := s.Runs.Cancel(ctx, row.Run, d); {
		case errors.Is(err, run.ErrUnknownRun):
			return unknown
		case err != nil:
			return err
		}
		row.Done, row.Note = true, "waits to be taken: it ends when a node takes it"
	}
	return selection.Tell(a, o, []selection.Outcome{row}, v, 1, o.DryRun)
}
