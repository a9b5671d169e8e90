package operate

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/llm"
)

// showConfiguration is the command "doctor config".
func showConfiguration(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show or write the configuration",
		Long: `Shows every setting with its value and its source. Flags override the
environment, the environment the file, the file the defaults.

Keys of models are never settings: they are environment variables, such as
OPENAI_API_KEY. OpenAI-compatible servers without keys need none.`,
		Example: `  rath doctor config                  every setting and its origin
  rath doctor config init             write a file with the defaults as comments
  rath doctor config --format json`,
		Args: app.NoSubcommand,
		RunE: func(*cobra.Command, []string) error { return showConfig(a) },
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "init [FILE]",
		Short:   "Write a configuration file with every setting as a comment",
		Example: `  rath doctor config init`,
		Args:    app.AtMost(1, "one file"),
		RunE: func(_ *cobra.Command, args []string) error {
			name := a.ConfigFile()
			if len(args) > 0 {
				name = args[0]
			}
			return writeConfig(a, name)
		},
	})
	return cmd
}

func showConfig(a *app.App) error {
	type row struct {
		Key    string `json:"key"`
		Value  string `json:"value"`
		Origin string `json:"origin"`
		Doc    string `json:"doc"`
	}
	rows := make([]row, len(app.Options))
	cells := make([][]string, len(app.Options))
	for i, o := range app.Options {
		s := *o.Field(&a.Config)
		rows[i] = row{o.Key, llm.Redact(s.Value), s.Origin, o.Doc}
		cells[i] = []string{o.Key, cmp.Or(llm.Redact(s.Value), "-"), s.Origin, o.Doc}
	}
	if done, err := app.Emit(a, rows); done {
		return err
	}
	a.Out.Rows([]string{"KEY", "VALUE", "FROM", "WHAT"}, cells)
	return nil
}

func writeConfig(a *app.App, name string) error {
	if name == "" {
		return app.Fail(app.ExitUsage, "doctor config init: there is no home directory; name a file")
	}
	var b strings.Builder
	b.WriteString("# Settings of rath. Flags and environment variables win over this file.\n")
	for _, o := range app.Options {
		fmt.Fprintf(&b, "\n# %s (%s)\n#%s: %s\n", o.Doc, strings.Join(o.Env, ", "), o.Key, o.Default)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("doctor config init: %w", err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("doctor config init: %w; remove it first or name another file", err)
	}
	if _, err = f.WriteString(b.String()); err != nil {
		_ = f.Close()
		return fmt.Errorf("doctor config init: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("doctor config init: %w", err)
	}
	a.Out.Println(name)
	return nil
}
