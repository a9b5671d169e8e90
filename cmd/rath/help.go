package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/cmd/rath/internal/selection"
)

const usageTemplate = `Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} COMMAND{{else}}{{.UseLine}}{{end}}
{{- if .HasExample}}

Examples:
{{.Example}}
{{- end}}
{{- if .HasAvailableSubCommands}}
{{- $cmds := .Commands}}
{{- if eq (len .Groups) 0}}

Commands:
{{- range $cmds}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{- else}}
{{- range $group := .Groups}}

{{.Title}}:
{{- range $cmds}}{{if and (eq .GroupID $group.ID) .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}
{{- end}}
{{- end}}
{{- if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsagesWrapped 80 | trimTrailingWhitespaces}}
{{- end}}
{{- if and .HasParent .HasAvailableInheritedFlags}}

Flags of every command: {{.Root.CommandPath}} help flags
{{- end}}
{{- if not .HasParent}}

More: {{.CommandPath}} help COMMAND, exit-codes, names, where or flags
{{- end}}
`

const helpTemplate = `{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}{{end}}
{{if or .Runnable .HasSubCommands}}
{{.UsageString}}{{end}}`

// topics are help texts that belong to no command.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "The meaning of exit codes", Long: app.ExitTopic},
		{Use: "where", Short: "Conditions of --where", Long: selection.Topic()},
		{Use: "names", Short: "Names of sessions, runs and versions", Long: reference.Topic},
		flagsTopic(),
	}
}

// helpCommand prints the help of a command or a topic, and rejects other words.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command or a topic",
		Args:  func(*cobra.Command, []string) error { return nil }, // the words are commands
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err == nil {
				err = app.NoSubcommand(about, rest)
			}
			if topic := topicOf(cmd.Root(), args); err != nil && topic != nil {
				about, err = topic, nil
			}
			if err != nil {
				return err
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// topicOf returns the only topic that begins with a word, nil if there is none.
func topicOf(root *cobra.Command, args []string) *cobra.Command {
	var found *cobra.Command
	for _, c := range root.Commands() {
		if len(args) != 1 || !c.IsAdditionalHelpTopicCommand() || !strings.HasPrefix(c.Name(), args[0]) {
			continue
		}
		if found != nil {
			return nil
		}
		found = c
	}
	return found
}

// flagsTopic lists the global flags, which each command would repeat.
func flagsTopic() *cobra.Command {
	cmd := &cobra.Command{Use: "flags", Short: "Flags of every command"}
	cmd.SetHelpFunc(func(c *cobra.Command, _ []string) {
		c.Println("Flags of every command:\n\n" + strings.TrimRight(c.Root().PersistentFlags().FlagUsagesWrapped(80), "\n"))
	})
	return cmd
}
