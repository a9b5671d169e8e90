package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/llm"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show or write the configuration",
		Long: `Shows every setting with its value and where it comes from. Flags win over the
environment, the environment over the file, the file over the defaults.

Keys of models are never settings: they are environment variables, such as
OPENAI_API_KEY, which OpenAI-compatible servers without a key do not need.`,
		Example: `  rath config                  every setting and its origin
  rath config init             write a file with the defaults as comments
  rath config -o json`,
		Args: noSubcommand,
		RunE: func(*cobra.Command, []string) error { return a.showConfig() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "init [FILE]",
		Short:   "Write a configuration file with every setting as a comment",
		Example: `  rath config init`,
		Args:    atMost(1, "one file"),
		RunE: func(_ *cobra.Command, args []string) error {
			name := a.defaultConfig()
			if len(args) > 0 {
				name = args[0]
			}
			return a.writeConfig(name)
		},
	})
	return cmd
}

func (a *app) showConfig() error {
	type row struct {
		Key    string `json:"key"`
		Value  string `json:"value"`
		Origin string `json:"origin"`
		Doc    string `json:"doc"`
	}
	rows := make([]row, len(options))
	cells := make([][]string, len(options))
	for i, o := range options {
		s := *o.field(&a.config)
		rows[i] = row{o.key, llm.Redact(s.Value), s.Origin, o.doc}
		cells[i] = []string{o.key, cmp.Or(llm.Redact(s.Value), "-"), s.Origin, o.doc}
	}
	if done, err := emit(a, rows); done {
		return err
	}
	a.out.Rows([]string{"KEY", "VALUE", "FROM", "WHAT"}, cells)
	return nil
}

func (a *app) writeConfig(name string) error {
	if name == "" {
		return fail(exitUsage, "config init: there is no home directory; name a file")
	}
	var b strings.Builder
	b.WriteString("# Settings of rath. Flags and environment variables win over this file.\n")
	for _, o := range options {
		fmt.Fprintf(&b, "\n# %s (%s)\n#%s: %s\n", o.doc, strings.Join(o.env, ", "), o.key, o.value)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("config init: %w", err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("config init: %w; remove it first or name another file", err)
	}
	if _, err = f.WriteString(b.String()); err != nil {
		_ = f.Close()
		return fmt.Errorf("config init: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("config init: %w", err)
	}
	a.out.Println(name)
	return nil
}
