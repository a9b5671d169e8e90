package operate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/tool"
)

// Tools is the command "tools".
func Tools(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "tools",
		Short:   "List the announced tools, or withdraw one",
		Example: "  rath cluster tools ls\n  rath cluster tools withdraw weather",
		Args:    app.NoSubcommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(toolsLs(a), toolsWithdraw(a))
	return cmd
}

func toolsLs(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the announced tools",
		Long: `Lists the tools announced to the tenant by programs in any language: the effect
of a call, the subject of its requests, its timeout, and the description for
models. A task names the tools of its agent: "run --tools". Built-in tools are
not listed.

A tool stays announced after its program ends; its calls then fail. "tools
withdraw" removes it.`,
		Example: "  rath cluster tools ls\n  rath cluster tools ls --format jsonl | jq .input",
		Args:    app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error { return listTools(ctx, a, s) })
		},
	}
}

// toolRow is a tool as programs read it.
type toolRow struct {
	messages.Tool
	Subject string `json:"subject"`
}

func listTools(ctx context.Context, a *app.App, s *app.System) error {
	all, err := s.Tools.List(ctx)
	if err != nil {
		return err
	}
	list := make([]toolRow, len(all))
	for i, t := range all {
		t.Effect = cmp.Or(t.Effect, tool.NonIdempotent.String())
		if t.TimeoutMS == 0 {
			t.TimeoutMS = messages.ToolTimeoutMS
		}
		list[i] = toolRow{t, messages.ToolSubject(s.Tenant(), t.Name)}
	}
	if done, err := app.Emit(a, list); done {
		return err
	}
	if len(list) == 0 {
		a.Remark("no program has announced a tool to tenant %s", s.Tenant())
		return nil
	}
	rows := make([][]string, len(list))
	for i, t := range list {
		rows[i] = []string{t.Name, t.Effect, (time.Duration(t.TimeoutMS) * time.Millisecond).String(), t.Subject, term.Line(t.Description, 60)}
	}
	a.Out.Rows([]string{"NAME", "EFFECT", "LIMIT", "WHERE", "DESCRIPTION"}, rows)
	return nil
}

func toolsWithdraw(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "withdraw NAME",
		Short: "Withdraw a tool",
		Long: `Withdraws an announced tool: later runs cannot name it. Runs already started
with it can still call it. Its program announces it again on its next start.`,
		Example: "  rath cluster tools withdraw weather\n  rath cluster tools withdraw weather --creds weather.creds",
		Args:    app.Exactly(1, "one tool"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error { return withdrawTool(ctx, a, s, args[0]) })
		},
	}
}

func withdrawTool(ctx context.Context, a *app.App, s *app.System, name string) error {
	all, err := s.Tools.List(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, t := range all {
		names = append(names, t.Name)
	}
	switch {
	case slices.Contains(names, name):
	case slices.ContainsFunc(tool.Builtins(), func(t tool.Tool) bool { return t.Spec().Name == name }):
		return app.Fail(app.ExitConflict, "tool %s is one that every node has; a task uses it only if it names it", name)
	default:
		return app.Fail(app.ExitNotFound, "no program has announced a tool %q to tenant %s; announced: %s", name, s.Tenant(), view.Names(names))
	}
	if err := s.Tools.Withdraw(ctx, name); err != nil {
		return err
	}
	a.Remark("tool %s is withdrawn", name)
	return nil
}
