package work

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/cmd/rath/internal/selection"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Resolve is the command "resolve".
func Resolve(a *app.App) *cobra.Command {
	var happened, again, pin, failed bool
	var reason, value, by string
	cmd := &cobra.Command{
		Use:   "resolve RUN (--happened | --again | --pin | --fail) --reason TEXT",
		Short: "Decide about a run that needs review",
		Long: `Decides about a call that was cut off and must not happen twice: it did happen
(and --value is what it returned), it did not and is to run again, or the run is
to fail. "show" and "ps" tell which call it is; look at its target first.

A run that stopped because the code does not match what it recorded is tried
with the code that is on offer now (--again), or waits for a node that offers
the revision that it was recorded under (--pin).`,
		Example: `  rath resolve 7f3a --happened --value '"rel-1"' --reason "seen in the forge"
  rath resolve 7f3a --again --reason "the mail is not in the outbox"
  rath resolve 7f3a --pin --reason "finish it as it began"
  rath resolve 7f3a --fail --reason "too late"`,
		Args: app.Exactly(1, "one run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := messages.Control{Reason: reason, By: by}
			n := 0
			for decision, on := range map[string]bool{run.Happened: happened, run.Again: again, run.Pin: pin, run.Fail: failed} {
				if on {
					c.Decision = decision
					n++
				}
			}
			switch {
			case n != 1:
				return app.Usage(cmd, errors.New("give one of --happened, --again, --pin and --fail"))
			case reason == "":
				return app.Usage(cmd, errors.New("--reason is needed: it is kept as evidence"))
			case value != "" && !happened:
				return app.Usage(cmd, errors.New("--value belongs to --happened"))
			case value != "" && !json.Valid([]byte(value)):
				return app.Usage(cmd, errors.New("--value is not JSON; a text is written with quotes: '\"done\"'"))
			}
			if value != "" {
				c.Value = json.RawMessage(value)
			}
			return resolveRun(cmd.Context(), a, args[0], c)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&happened, "happened", false, "the call did take place")
	fs.BoolVar(&again, "again", false, "it did not: run it again")
	fs.BoolVar(&pin, "pin", false, "wait for a node that offers the recorded revision")
	fs.BoolVar(&failed, "fail", false, "end the run as failed")
	fs.StringVar(&value, "value", "", "what the call returned, as JSON")
	fs.StringVar(&reason, "reason", "", "why, kept as evidence")
	a.ByFlag(fs, &by, "who decides")
	return cmd
}

func resolveRun(ctx context.Context, a *app.App, name string, c messages.Control) error {
	return a.With(ctx, func(s *app.System) error {
		r, err := reference.Run(ctx, s, name)
		if err != nil {
			return err
		}
		if r.State != run.NeedsReview {
			return app.Fail(app.ExitConflict, "run %s needs no review: it is %s", r.Run, r.State)
		}
		if err := s.Resolve(ctx, r.Run, c); err != nil {
			return err
		}
		revision := ""
		if r.Review != nil {
			revision = r.Review.Revision
		}
		switch {
		case c.Decision == run.Fail:
			a.Remark("decided; the run ends as failed")
		case c.Decision == run.Pin:
			a.Remark("pinned; the run goes on when a node offers revision %s of %s", revision, r.Workflow)
		default:
			follow.GoesOn(a, s, "decided", &r)
		}
		return selection.Acted(a, &r, "resolve")
	})
}
