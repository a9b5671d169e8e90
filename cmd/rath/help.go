package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/internal/view"
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

const namesTopic = `How to name sessions, runs and versions:

  @last             the run that was submitted last, or its session
  7f3a              a run or session by the beginning of its id, if only one
                    begins so
  greetings         a session by the name that it was begun with
  7f3a:12           a session at a version
  7f3a#3            a row of a session, counted from 0
  RUN/2.0           a step of a run: here the first tool call of its third step
  slug.sh:7         a line of a file, as the last run left it
  @last:slug.sh:7   a line of a file, as a run or session left it
  7f3a:12:slug.sh:7 the same at a version
`

// topics are help texts that belong to no command.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "What the exit codes mean", Long: exitTopic},
		{Use: "where", Short: "How to choose runs with --where", Long: selectTopic()},
		{Use: "names", Short: "How to name sessions, runs and versions", Long: namesTopic},
		flagsTopic(),
	}
}

// helpCommand prints the help of a command or a topic, and refuses other words.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command or a topic",
		Args:  func(*cobra.Command, []string) error { return nil }, // the words are commands
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err == nil {
				err = noSubcommand(about, rest)
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

// invocation is how this program was started, as a person would type it again.
func (a *app) invocation() string {
	if strings.Contains(filepath.ToSlash(a.program), "/go-build") {
		if _, err := os.Stat(filepath.Join("cmd", "rath", "main.go")); err == nil {
			return "go run ./cmd/rath"
		}
		return "go run github.com/rathcluster/rath/cmd/rath"
	}
	if a.program == "" {
		return "rath"
	}
	return shellWord(a.program)
}

func (a *app) completionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:       "completion SHELL",
		Short:     "Write a completion script: bash, zsh, fish or powershell",
		Long:      "Writes a script that completes commands and flags in a shell.",
		Example:   "  rath completion bash > ~/.local/share/bash-completion/completions/rath\n  rath completion zsh > \"${fpath[1]}/_rath\"\n  rath completion fish > ~/.config/fish/completions/rath.fish",
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args: func(cmd *cobra.Command, args []string) error {
			if err := exactly(1, "a shell")(cmd, args); err != nil {
				return err
			}
			if !slices.Contains(cmd.ValidArgs, args[0]) {
				return usage(cmd, fmt.Errorf("completion %q: want %s", args[0], view.Names(cmd.ValidArgs)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			case "fish":
				return root.GenFishCompletion(a.out, true)
			}
			return root.GenPowerShellCompletionWithDesc(a.out)
		},
	}
	return cmd
}

// noArguments is for commands that are told everything by flags.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(cmd, fmt.Errorf("%s takes no arguments, got %q", cmd.Name(), args[0]))
	}
	return nil
}

// ownServer is for commands that bring a NATS server of their own.
func (a *app) ownServer(cmd *cobra.Command) error {
	for _, name := range []string{"server", "context", "creds"} {
		if a.set.Changed(name) {
			return usage(cmd, fmt.Errorf("--%s does not go with %s, which runs a NATS server of its own over the store: leave it out", name, cmd.Name()))
		}
	}
	return nil
}

// exactly wants n arguments and says which.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usage(cmd, fmt.Errorf("%s takes %s, got %s", cmd.Name(), what, view.Counted(int64(len(args)), "argument")))
		}
		return nil
	}
}

// atMost allows up to n arguments.
func atMost(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usage(cmd, fmt.Errorf("%s takes %s at most, got %s", cmd.Name(), what, view.Counted(int64(len(args)), "argument")))
		}
		return nil
	}
}
