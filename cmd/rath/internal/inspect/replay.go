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
		Short: "Run the code of a run against what it recorded, and compare",
		Long: `Runs the code of a run's workflow once more, on a node that offers it, against
what the run recorded: models and tools are switched off, recorded steps return
what they returned before, and nothing is written. It prints the steps as the
code comes to them, branches of fan-outs too, and says where code and record
differ; then the exit code is 1. With --verify it prints only what differs. Of a
run that waits or runs the record is compared as far as it goes.

  =  recorded, and the code asks for the same
  >  the code comes to this next, where the record ends: it is open
  !  the code asks for something else there
  +  the code asks for a step that is not recorded
  -  recorded, and the code does not come to it`,
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
	cmd.Flags().BoolVar(&verify, "verify", false, "print only what differs")
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
