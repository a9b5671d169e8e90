package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/cmd/rath/internal/selection"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Approve is the command "approve".
func Approve(a *app.App) *cobra.Command {
	var d messages.Control
	var edit string
	cmd := &cobra.Command{
		Use:   "approve RUN [STEP]",
		Short: "Say yes to what a run asks",
		Long: `Says yes to a question of a run, and returns once that is recorded. The step may
be left out when the run asks one question; "approvals ls" lists them. --edit
changes what was asked for, such as the arguments of a tool call.`,
		Example: `  rath approve @last
  rath approve 7f3a 2.0 --reason "seen with Ann"
  rath approve 7f3a --edit '{"to":"staging"}'`,
		Args: app.Between(1, 2, "a run and the step of its question"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return decide(a, cmd, args, d, edit, "--edit", (*client.Client).Approve, "approved")
		},
	}
	cmd.Flags().StringVar(&edit, "edit", "", "what to change, as JSON")
	decisionFlags(a, cmd, &d)
	return cmd
}

// Reject is the command "reject".
func Reject(a *app.App) *cobra.Command {
	var d messages.Control
	cmd := &cobra.Command{
		Use:   "reject RUN [STEP] --reason TEXT",
		Short: "Say no to what a run asks",
		Long: `Says no to a question of a run. The reason is kept as evidence, and the agent
whose tool call it is gets it as the call's result.`,
		Example: `  rath reject @last --reason "wrong branch"
  rath reject 7f3a 2.0 --reason "not on a Friday" --by ann`,
		Args: app.Between(1, 2, "a run and the step of its question"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if d.Reason == "" {
				return app.Usage(cmd, errors.New("--reason is needed: the agent and the evidence get it"))
			}
			return decide(a, cmd, args, d, "", "", (*client.Client).Reject, "rejected")
		},
	}
	decisionFlags(a, cmd, &d)
	return cmd
}

// Respond is the command "respond".
func Respond(a *app.App) *cobra.Command {
	var d messages.Control
	cmd := &cobra.Command{
		Use:   "respond RUN [STEP] JSON",
		Short: "Answer what a run asks with a value",
		Long: `Answers a question of a run with a value as JSON; a text is written with quotes.
The step may be left out when the run asks one question.`,
		Example: `  rath respond @last '"blue"'
  rath respond 7f3a 3 '{"amount":12}'`,
		Args: app.Between(2, 3, "a run, the step of its question if it asks several, and a value"),
		RunE: func(cmd *cobra.Command, args []string) error {
			value := args[len(args)-1]
			return decide(a, cmd, args[:len(args)-1], d, value, "the value", (*client.Client).Respond, "answered")
		},
	}
	decisionFlags(a, cmd, &d)
	return cmd
}

func decisionFlags(a *app.App, cmd *cobra.Command, d *messages.Control) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&d.Reason, "reason", "", "why, kept as evidence")
	a.ByFlag(fs, &d.By, "who decides")
}

// decide sends a decision about a question. value is JSON, "" for none.
func decide(a *app.App, cmd *cobra.Command, args []string, d messages.Control, value, flag string,
	send func(*client.Client, context.Context, run.ID, messages.Control) error, done string,
) error {
	if value != "" {
		if !json.Valid([]byte(value)) {
			return app.Usage(cmd, fmt.Errorf("%s is not JSON: %s; a text is written with quotes: '\"done\"'", flag, term.Line(value, 40)))
		}
		d.Value = json.RawMessage(value)
	}
	if len(args) > 1 {
		d.Step = run.Path(args[1])
	}
	ctx := cmd.Context()
	return a.With(ctx, func(s *app.System) error {
		r, err := reference.Run(ctx, s, args[0])
		if err != nil {
			return err
		}
		if err := send(s.Client, ctx, r.Run, d); err != nil {
			if errors.Is(err, run.ErrState) {
				return fmt.Errorf("%w; %q lists what is open", err, a.Hint("approvals", "ls"))
			}
			return err
		}
		follow.GoesOn(a, s, done, &r)
		return selection.Acted(a, &r, cmd.Name())
	})
}
