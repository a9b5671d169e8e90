package work

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/cmd/rath/internal/selection"
	"github.com/rathcluster/rath/messages"
)

// Message is the command "message".
func Message(a *app.App) *cobra.Command {
	var m messages.Control
	cmd := &cobra.Command{
		Use:   "message RUN|SESSION TEXT",
		Short: "Send a message to a run or a session",
		Long: `Sends a message to a session. Its open run receives the message at its next
model call, or at the step that listens. --interrupt stops the running model
call, which is then repeated with the message. Without an open run the message
becomes the session's next user chunk.`,
		Example: `  rath session message @last "and mind the tests"
  rath session message 7f3a "stop, look at the issue first" --interrupt
  rath session message greetings "good morning"`,
		Args: app.Exactly(2, "a run or a session, and a text in quotes"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m.Text = args[1]
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error { return sendMessage(ctx, a, s, args[0], m) })
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&m.Interrupt, "interrupt", false, "interrupt the running model call")
	fs.StringVar(&m.ID, "id", "", "idempotency key of the message")
	a.ByFlag(fs, &m.By, "who says it")
	return cmd
}

func sendMessage(ctx context.Context, a *app.App, s *app.System, name string, m messages.Control) error {
	n, err := reference.Resolve(ctx, s, name)
	if err != nil {
		return err
	}
	if n.Version != 0 && n.Run == nil {
		return app.Fail(app.ExitUsage, "%s: a message goes to the newest version of a session; name it as %s", name, n.Session)
	}
	if n.Run != nil && !n.Run.State.Terminal() {
		if err := s.Runs.Message(ctx, n.Run.Run, m); err != nil {
			return err
		}
		a.Remark("sent to run %s (%s)", n.Run.Run, n.Run.State)
		return selection.Acted(a, n.Run, "message")
	}
	if err := s.Sessions.Message(ctx, string(n.Session), m); err != nil {
		return err
	}
	a.Remark("sent to session %s", n.Session)
	_, err = app.Emit(a, []selection.Outcome{{Session: n.Session, Action: "message", Done: true}})
	return err
}
