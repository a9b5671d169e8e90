package inspect

import (
	"context"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
)

// Workflows is the command "workflows".
func Workflows(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "workflows",
		Short:   "List the offered workflows, or show the parts of one",
		Example: "  rath workflows ls\n  rath workflows show agent",
		Args:    app.NoSubcommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(workflowsLs(a), workflowsShow(a))
	return cmd
}

func workflowsLs(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the offered workflows",
		Long: `Lists the workflows offered to the tenant, by pool. NODES is the number of nodes
with the workflow now: an offer outlives its nodes, and at 0 a task waits.
AGENTS is the number of its agents; "-" if only a task or its code decides.`,
		Example: "  rath workflows ls\n  rath workflows ls --format jsonl | jq -r .name",
		Args:    app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error { return listWorkflows(ctx, a, s) })
		},
	}
}

func listWorkflows(ctx context.Context, a *app.App, s *app.System) error {
	all, err := s.Offers(ctx)
	if err != nil {
		return err
	}
	if done, err := app.Emit(a, all); done {
		return err
	}
	headers := []string{"NAME", "REVISION", "POOL", "NODES", "AGENTS"}
	room := 80
	for _, h := range headers {
		room -= len(h) + 2
	}
	rows := make([][]string, len(all))
	var names, pools int
	for i := range all {
		w := &all[i]
		rows[i] = []string{term.Line(w.Name, 24), term.Line(w.Revision, 8), term.Line(w.Pool, 16), strconv.Itoa(w.Nodes), view.AgentsOf(&w.Workflow)}
		names, pools = max(names, term.Width(rows[i][0])-4), max(pools, term.Width(rows[i][2])-4)
	}
	for i := range all {
		rows[i] = append(rows[i], term.Line(all[i].Description, room-names-pools))
	}
	a.Out.Rows(append(headers, "DOES"), rows)
	return nil
}

func workflowsShow(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show the parts of a workflow",
		Long: `Shows a workflow as offered by each pool: its input, and its agents and
workflows, each with the path of fields to it. They belong to the value made by
the workflow's constructor without a task: parts from a task, or created by the
code later, are not included. A part with the model "the task's" uses the model
of the task.`,
		Example: "  rath workflows show agent\n  rath workflows show review --format jsonl | jq .parts",
		Args:    app.Exactly(1, "one workflow"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error { return showWorkflow(ctx, a, s, args[0]) })
		},
	}
}

func showWorkflow(ctx context.Context, a *app.App, s *app.System, name string) error {
	if err := s.Offered(ctx, name); err != nil {
		return err
	}
	all, err := s.Workflows(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(w messages.Workflow) bool { return w.Name != name })
	if done, err := app.Emit(a, all); done {
		return err
	}
	for i := range all {
		if i > 0 {
			a.Out.Println()
		}
		view.WriteWorkflow(a.Out, &all[i])
	}
	return nil
}
