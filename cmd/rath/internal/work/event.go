package work

import (
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/messages"
)

// Publish is the command "event publish".
func Publish(a *app.App) *cobra.Command {
	var d messages.Control
	value := ""
	cmd := &cobra.Command{
		Use:   "publish NAME KEY",
		Short: "Publish an event for the runs that wait for it",
		Long: `Publishes an event of a name and a key. All runs that wait for it continue,
and so does a run that waits for it within 7 days. An id makes the command
idempotent: the same id with the same value is harmless, and with another value
it is rejected.`,
		Example: `  rath event publish invoice.paid 4711 --value '{"amount":90}'
  rath event publish invoice.paid 4711 --id bank-88231`,
		Args: app.Exactly(2, "the name and the key of an event"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if value != "" {
				if d.Value = json.RawMessage(value); !json.Valid(d.Value) {
					return app.Usage(cmd, errors.New(`--value is not JSON; a text is written with quotes: '"done"'`))
				}
			}
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error {
				if err := s.Publish(ctx, args[0], args[1], d); err != nil {
					return err
				}
				a.Remark("published event %s with key %s", args[0], args[1])
				_, err := app.Emit(a, []published{{Name: args[0], Key: args[1], ID: d.ID, Published: true}})
				return err
			})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&value, "value", "", "the value of the event, as JSON")
	fs.StringVar(&d.ID, "id", "", "idempotency key of the event")
	a.ByFlag(fs, &d.By, "who publishes it")
	return cmd
}

// published is a published event as programs read it.
type published struct {
	Name      string `json:"name"`
	Key       string `json:"key"`
	ID        string `json:"id,omitempty"`
	Published bool   `json:"published"`
}
