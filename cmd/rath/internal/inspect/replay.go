package inspect

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
)

// Replay is the command "replay".
func Replay(a *app.App) *cobra.Command {
	var verify bool
	cmd := &cobra.Command{
		Use:   "replay RUN",
		Short: "Compare the code of a run with its record",
		Long: `Runs the code of a run's workflow again, on a node with this workflow, against
the run's record: models and tools are off, recorded steps return their recorded
results, and nothing is written. It prints the steps in the order of the code,
branches of fan-outs too, and marks differences between code and record; then
the exit code is 1. With --verify it prints only differences. The record of an
open run is compared up to its end.

  =  recorded, and requested by the code
  >  the code's next step after the end of the record: it is open
  !  the code requests another step there
  +  requested by the code, not recorded
  -  recorded, not reached by the code`,
		Example: `  rath session replay @last
  rath session replay 7f3a --verify       before new code goes to open runs`,
		Args: app.Exactly(1, "one run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error {
				r, err := reference.Run(ctx, s, args[0])
				if err != nil {
					return err
				}
				out, err := s.Runs.Replay(ctx, r.Run)
				if err != nil {
					return err
				}
				return replayed(a, &out, verify)
			})
		},
	}
	cmd.Flags().BoolVar(&verify, "verify", false, "print only differences")
	return cmd
}

func replayed(a *app.App, r *messages.Replay, verify bool) error {
	var err error
	if !r.Matches {
		err = app.Silent(app.ExitFailed)
	}
	if done, failed := app.EmitOne(a, r); done {
		return errors.Join(failed, err)
	}
	verdict := view.WriteReplay(a.Out, r, verify)
	if r.Truncated {
		a.Remark("not all steps that match are shown")
	}
	a.Out.Println(verdict)
	return err
}
