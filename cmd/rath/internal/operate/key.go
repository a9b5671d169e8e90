package operate

import (
	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
)

// Key is the command "key".
func Key(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Print a new key for the gossip of a fleet",
		Long: `Prints a new random key. The nodes of a fleet share it: it excludes other nodes
and encrypts the gossip.`,
		Example: "  rath cluster key > gossip.key && chmod 600 gossip.key",
		Args:    app.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			key := cluster.NewKey().Text()
			if done, err := app.EmitOne(a, struct {
				Key string `json:"key"`
			}{key}); done {
				return err
			}
			a.Out.Println(key)
			return nil
		},
	}
}
