package operate

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/view"
)

// completion is the command "doctor completion".
func completion(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:       "completion SHELL",
		Short:     "Write a completion script: bash, zsh, fish or powershell",
		Long:      "Writes a script that completes commands, flags and their values in a shell: ids\nof the newest runs, workflows, nodes, states and kinds, if the node or the\nserver answers at once.",
		Example:   "  rath doctor completion bash > ~/.local/share/bash-completion/completions/rath\n  rath doctor completion zsh > \"${fpath[1]}/_rath\"\n  rath doctor completion fish > ~/.config/fish/completions/rath.fish",
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args: func(cmd *cobra.Command, args []string) error {
			if err := app.Exactly(1, "a shell")(cmd, args); err != nil {
				return err
			}
			if !slices.Contains(cmd.ValidArgs, args[0]) {
				return app.Usage(cmd, fmt.Errorf("completion %q: want %s", args[0], view.Names(cmd.ValidArgs)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Out, true)
			case "zsh":
				return root.GenZshCompletion(a.Out)
			case "fish":
				return root.GenFishCompletion(a.Out, true)
			}
			return root.GenPowerShellCompletionWithDesc(a.Out)
		},
	}
	return cmd
}
