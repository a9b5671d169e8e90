// Command rath is the command line of Rath: it shows the system at work (demo), runs a
// node on this machine (dev), runs and submits tasks, follows them, finds the origin of
// each line of a file, and verifies the evidence of a run without a server.
//
// Data goes to standard output, everything else to standard error. On a terminal some
// commands redraw their last line; in a pipe all of them write plain lines. `rath help
// exit-codes` explains the exit codes.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/evidence"
	"github.com/rathcluster/rath/cmd/rath/internal/fleet"
	"github.com/rathcluster/rath/cmd/rath/internal/inspect"
	"github.com/rathcluster/rath/cmd/rath/internal/operate"
	"github.com/rathcluster/rath/cmd/rath/internal/start"
	"github.com/rathcluster/rath/cmd/rath/internal/work"
	"github.com/rathcluster/rath/sandbox/docker"
)

func main() {
	docker.Reexec() // before anything else: sandboxes start this binary again
	os.Exit(execute(os.Args, os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// execute runs one command line and returns the exit code. args[0] is the
// program's name.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	a := app.New(args[0], stdin, stdout, stderr, getenv)
	return a.Run(root(a), args[1:])
}

// root builds the command tree.
func root(a *app.App) *cobra.Command {
	root := &cobra.Command{
		Use:   "rath",
		Short: "Run fleets of LLM agents with durable, verifiable steps",
		Long: `rath runs agent workflows on durable sessions, shows what they did, and proves
it.

Without --server, NATS_URL or a context of the nats command line it uses the
store in ./.rath: through the node of "rath dev", or by opening the store.`,
		Example: `  rath demo                          see what it does: no key, no network
  rath run -m "say hello"            one agent, one answer
  rath run -C . -m "fix the tests"   on a copy of this directory; shows the diff
  rath why @last:slug.sh:7           who made this line, when and why`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		Args:              app.NoSubcommand,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.Prepare(cmd) },
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SuggestionsMinimumDistance = 2
	root.SetHelpTemplate(helpTemplate)
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return app.Usage(cmd, app.FlagError(err)) })
	a.Globals(root.PersistentFlags())
	for _, g := range []struct {
		id, title string
		cmds      []*cobra.Command
	}{
		{"start", "Start", []*cobra.Command{start.Demo(a), work.Run(a), start.Dev(a), start.Open(a), start.Models(a), start.MCP(a), start.Init(a)}},
		{"work", "Work", []*cobra.Command{
			work.Submit(a), work.Answer(a), work.Cancel(a), work.Resume(a), work.Apply(a),
			noun("session", "Fork, merge, rewind, rerun and inspect sessions", `  rath session fork 7f3a --at 4
  rath session message @last "and mind the tests"`,
				work.Fork(a), work.Merge(a), work.Rewind(a), work.Rerun(a), work.Message(a), inspect.Replay(a)),
			noun("workspace", "List, read and merge the files of sessions", `  rath workspace ls @last
  rath workspace merge 7f3a 91bc --on-conflict both`,
				work.Workspaces(a)...),
			noun("memory", "List, find, write and forget the notes of agents", `  rath memory add team "Slugs skip empty words."
  rath memory find team "slug"`,
				work.Memories(a)...),
			noun("event", "Publish events that runs wait for", `  rath event publish invoice.paid 4711 --value '{"amount":90}'`,
				work.Publish(a)),
		}},
		{"look", "Look", []*cobra.Command{inspect.Ps(a), inspect.Top(a), inspect.Show(a), inspect.Why(a), inspect.Diff(a), inspect.Workflows(a)}},
		{"evidence", "Evidence", []*cobra.Command{evidence.Export(a), evidence.Verify(a)}},
		{"fleet", "Fleet", []*cobra.Command{noun("cluster", "Manage a fleet and its storage", `  rath cluster nodes ls
  rath cluster tail -f`,
			operate.Provision(a), operate.Key(a), operate.Nodes(a), operate.Tools(a), operate.DeadLetters(a), inspect.Tail(a),
			operate.Quarantine(a), operate.Release(a), operate.Rebudget(a),
			evidence.Prune(a), evidence.Import(a), evidence.Audit(a), operate.Repair(a), operate.Bench(a), operate.Quota(a)), operate.Token(a), operate.Node(a), operate.Router(a)}},
		{"own", "This installation", []*cobra.Command{operate.Doctor(a), operate.Version(a)}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.cmds {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.AddCommand(fleet.Command(a))
	root.AddCommand(topics()...)
	complete(a, root)
	root.SetHelpCommand(helpCommand())
	root.SetHelpCommandGroupID("own")
	return root
}

// noun is a command that only groups the commands about one subject.
func noun(name, short, example string, cmds ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short, Example: example,
		Args: app.NoSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(cmds...)
	return cmd
}
