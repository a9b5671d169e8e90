package operate

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/node"
)

// Node is the command "node".
func Node(*app.App) *cobra.Command {
	return program(&cobra.Command{
		Use:   "node [-nats URL] [-dev DIR] [-store DIR] [flags of a node]",
		Short: "Run a node: on NATS servers, or with its own server",
		Long: `Runs a node with the built-in workflows: a daemon that takes tasks from NATS
servers (-nats), joins a "rath dev" of this machine (-dev), or starts its own
server over a directory. It logs to standard error, drains at SIGTERM, and exits
at once at the second.

"rath node -help" lists its flags and their environment variables; --store,
--server and the other flags of rath are not among them. A program with your own
workflows is a node too: it calls node.Main, and has the same flags.`,
		Example: `  rath node -nats nats://n1:4222 -replicas 3 -monitor http://n1:8222
  rath node -dev .rath                 one node more for a "rath dev"`,
	}, &node.Options{})
}

// Router is the command "router".
func Router(*app.App) *cobra.Command {
	return program(&cobra.Command{
		Use:   "router [-nats URL] [-dev DIR] [-store DIR] [flags of a router]",
		Short: "Run a router: it runs the workflows auto and fanout",
		Long: `Runs a router: it runs the workflow "auto", which chooses among the offered
workflows, and "fanout", which runs several in parallel, and offers no other.
Start nodes beside routers with -routers: they leave both to the routers.

"rath router -help" lists its flags and their environment variables.`,
		Example: "  rath router -nats nats://n1:4222 -store .rath-router -gossip 0.0.0.0:7947",
	}, &node.Options{Fleet: node.Fleet{Routing: node.RouteOnly}})
}

// program runs a node with the flags of programs of node.Main.
func program(cmd *cobra.Command, o *node.Options) *cobra.Command {
	cmd.DisableFlagParsing, cmd.DisableFlagsInUseLine = true, true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
			return cmd.Help()
		}
		return app.Silent(node.Execute(args, o))
	}
	return cmd
}
