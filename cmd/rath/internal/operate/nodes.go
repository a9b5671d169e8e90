package operate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
)

// Nodes is the command "nodes".
func Nodes(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "nodes",
		Short:   "List nodes, show one, or drain it",
		Example: "  rath cluster nodes ls\n  rath cluster nodes drain rath-2 --wait",
		Args:    app.NoSubcommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(nodesLs(a), nodesShow(a), nodesDrain(a))
	return cmd
}

func nodesLs(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the live nodes",
		Long: `Lists the live nodes and their pools. A dead node is listed for up to 30
seconds: as dead after the gossip has lost it, which takes a second or two;
without gossip as silent after a missing heartbeat. A frozen or disconnected
node looks the same until it returns.

FREE is the number of new runs the node could start now, and its maximum. An
eighth of the slots is reserved for runs already started, such as branches and
runs of dead nodes, and not counted. "leaked" counts functions of workflows that
ignore a cancel or a deadline: past 64 the node drains. A node that only
relays, such as the server of "dev --nodes", takes no runs.`,
		Example: "  rath cluster nodes ls\n  rath cluster nodes ls --format jsonl | jq -r .name",
		Args:    app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error {
				all, err := s.Fleet.Nodes(ctx)
				if err != nil {
					return err
				}
				if s.Own() { // this command is no node that anybody could use
					all = slices.DeleteFunc(all, func(n messages.Node) bool { return n.Incarnation == s.Instance.Incarnation() })
				}
				if done, err := app.Emit(a, all); done {
					return err
				}
				if len(all) == 0 {
					a.Remark("no node runs over %s: start one with %q", a.Config.Store.Value, a.Hint("dev"))
					return nil
				}
				rows := make([][]string, len(all))
				for i, n := range all {
					rows[i] = []string{n.Name, n.Incarnation, cmp.Or(strings.Join(n.Pools, ","), "-"), view.NodeState(n), view.FreeSlots(n), n.Version}
				}
				a.Out.Rows([]string{"NAME", "INCARNATION", "POOLS", "STATE", "FREE", "VERSION"}, rows)
				return nil
			})
		},
	}
}

func nodesShow(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:     "show NODE",
		Short:   "Show a node and its workflows",
		Long:    "Shows a node, by its name or the beginning of its incarnation, and the workflows\nof its pools.",
		Example: "  rath cluster nodes show rath-0",
		Args:    app.Exactly(1, "one node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error {
				if s.Own() {
					return noNode(a, app.ExitNotFound)
				}
				n, err := s.Fleet.Node(ctx, args[0])
				if err != nil {
					return err
				}
				ws, err := s.Workflows(ctx)
				if err != nil {
					return err
				}
				var offers []string
				for _, w := range ws {
					if slices.Contains(n.Pools, w.Pool) {
						offers = append(offers, w.Name)
					}
				}
				if done, err := app.EmitOne(a, struct {
					messages.Node
					Workflows []string `json:"workflows"`
				}{n, offers}); done {
					return err
				}
				rows := [][]string{
					{"name", n.Name},
					{"incarnation", n.Incarnation},
					{"state", view.NodeState(n)},
					{"slots", view.SlotsText(n)},
					{"sandboxes", view.SandboxText(n)},
					{"commands", view.ProgramsText(n)},
					{"model", view.ModelText(n)},
					{"pools", cmp.Or(strings.Join(n.Pools, ", "), "none")},
					{"offers", cmp.Or(strings.Join(offers, ", "), "nothing")},
					{"version", n.Version},
				}
				if n.Leaked > 0 {
					rows = append(rows, []string{"leaked", fmt.Sprintf("%s of workflows given up, still in progress", excerpt.Counted(n.Leaked, "function"))})
				}
				if n.Started > 0 {
					rows = append(rows, []string{"up since", view.Moment(time.UnixMilli(n.Started))})
				}
				for _, f := range n.Full {
					rows = append(rows, []string{f.Stream, view.CapacityText(f)})
				}
				a.Out.Rows(nil, rows)
				return nil
			})
		},
	}
}

// noNode is the error of a command that needs a node and had to open the store
// itself.
func noNode(a *app.App, code int) error {
	return app.Fail(code, "no node runs over %s: this command opened the store itself; start one with %q", a.Config.Store.Value, a.Hint("dev"))
}
