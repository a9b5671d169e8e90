package fleet

import (
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/internal/workflows/demo"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/node"
)

// Config is the common configuration of the nodes of a fleet on one machine.
type Config struct {
	// Program is the path of a program of node.Main; "" is this program, with the
	// built-in workflows.
	Program string
	// Env is added to the environment of the nodes.
	Env    []string
	Slots  int
	Models string // the file of the list of models
	MCP    string // the file of the list of MCP servers
	Rules  string // the file of the rules for calls, or "default"
	Checks string // the file of the checks after edits
	Agents string // the directory of the agents in files
	Model  string
	Unsafe bool
	// Script is a file that answers model calls. Demo is a directory over which the
	// workflow of "demo --nodes" is offered, whose model answers Pace times slower than
	// written. Other programs ignore both.
	Script, Demo string
	Pace         int
}

// args returns the arguments of a node.
func (c *Config) args(dev, name, store string) []string {
	var args []string
	if c.Program == "" {
		args = append(args, "member", "--script", c.Script, "--demo", c.Demo, "--pace", strconv.Itoa(c.Pace), "--")
	}
	args = append(args, "-dev", dev, "-name", name, "-pool", "default", "-store", store,
		"-slots", strconv.Itoa(c.Slots), "-model", c.Model, "-unsafe="+strconv.FormatBool(c.Unsafe))
	if c.Models != "" {
		args = append(args, "-models", c.Models)
	}
	if c.MCP != "" {
		args = append(args, "-mcp", c.MCP)
	}
	if c.Rules != "" {
		args = append(args, "-rules", c.Rules)
	}
	if c.Checks != "" {
		args = append(args, "-checks", c.Checks)
	}
	if c.Agents != "" {
		args = append(args, "-agents", c.Agents)
	}
	return args
}

// env returns the environment of a node, without the settings that several nodes cannot
// share, such as a port.
func (c *Config) env() []string {
	return append(append(os.Environ(), "RATH_HEALTH=", "RATH_ROUTERS=", supervise.Env+"=true"), c.Env...)
}

// Command is the hidden command with which a fleet starts its nodes.
func Command(a *app.App) *cobra.Command {
	var c Config
	cmd := &cobra.Command{
		Use:   "member",
		Short: "Run one node of \"dev --nodes\"",
		Long: `Runs one node of a local fleet: "rath node" with a script as its model, or with
the workflow of the demo. "dev --nodes" starts it.`,
		Example: "  rath dev --nodes 3",
		Hidden:  true,
		Args:    cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			o := &node.Options{}
			var err error
			if c.Demo != "" {
				o.Workflows = append(o.Workflows, demo.FleetRegistration(c.Demo))
				o.Models.Source, err = demoModels(c.Pace)
			} else {
				o.Models.Source, err = a.ScriptModels(c.Script)
			}
			if err != nil {
				return err
			}
			return app.Silent(node.Execute(args, o))
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&c.Script, "script", "", "answer model calls from this txtar file")
	fs.StringVar(&c.Demo, "demo", "", "offer the workflow of \"demo --nodes\" over this directory")
	fs.IntVar(&c.Pace, "pace", 1, "factor for the latency of the demo's model")
	return cmd
}

// demoModels answers the demo's model calls from its script.
func demoModels(pace int) (llm.Models, error) {
	model, err := demo.Model(pace)
	if err != nil {
		return nil, err
	}
	return app.AnyKind(model), nil
}
