package start

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/fleet"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
)

// Dev is the command "dev".
func Dev(a *app.App) *cobra.Command {
	var port, nodes int
	var c fleet.Config
	var web node.Options // of the pages, and of the server
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a node and a NATS server over this directory",
		Long: `Runs a node and a NATS server on 127.0.0.1 over the store of this directory,
until an interrupt, or a drain of node "dev". Programs in any language submit
tasks there without credentials; other rath commands in this directory use it
automatically.

--model echo repeats its input, without a key; --script answers from a file.
Runs in flight at the stop resume at the next start.

With --nodes it is a fleet: this process runs the NATS server, and the nodes are
separate processes. --node runs them from your program with node.Main. Kill one:
its runs resume on the others, and a new process replaces it. If the program
does not stay up, the fleet ends with the program's output.

Any other program with node.Main joins with the command printed at "join".`,
		Example: `  rath dev
  rath dev --port 4333 --script model.txtar
  rath dev --nodes 3
  rath dev --nodes 3 --node ./triage
  rath submit agent -m "say hello" --wait      in another terminal`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.OwnServer(cmd); err != nil {
				return err
			}
			if port < 1 || port > 65535 {
				return app.Usage(cmd, fmt.Errorf("--port %d: want a number from 1 to 65535", port))
			}
			if c.Program != "" && !cmd.Flags().Changed("nodes") {
				nodes = 1
			}
			if nodes < 0 || nodes > fleet.MaxNodes || nodes == 0 && cmd.Flags().Changed("nodes") {
				return app.Usage(cmd, fmt.Errorf("--nodes %d: want a number from 1 to %d", nodes, fleet.MaxNodes))
			}
			web.HTTP.User = person(a)
			if nodes > 0 {
				return devFleet(cmd.Context(), a, port, fleet.Names(nodes), c, &web)
			}
			o := &web
			o.Name, o.NATS.Port, o.Fleet.Gossip, o.Models.Default, o.Sandbox.Unsafe = "dev", port, node.DevGossip(), c.Model, c.Unsafe
			o.Sandbox.Docker.Warm = 1
			var err error
			if o.Models.Source, err = a.ScriptModels(c.Script); err != nil {
				return err
			}
			return dev(cmd.Context(), a, o)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVar(&port, "port", 4222, "port of the NATS server")
	fs.StringVar(&c.Model, "model", "", "default model")
	fs.StringVar(&c.Script, "script", "", "answer model calls from this txtar file")
	fs.IntVar(&nodes, "nodes", 0, "number of nodes, each in its own process")
	fs.StringVar(&c.Program, "node", "", "program of the nodes (one node without --nodes)")
	fs.BoolVar(&c.Unsafe, "unsafe", false, "let models run unconfined commands")
	fs.BoolVar(&web.NATS.Private, "private", false, "refuse clients without the login that the store has")
	fs.StringVar(&web.Targets, "targets", a.Getenv("RATH_TARGETS"), "file with targets of notifications (RATH_TARGETS)")
	fs.StringVar(&web.HTTP.Web, "http", "127.0.0.1:7280", "pages and API; \"\" is none")
	fs.StringVar(&web.HTTP.URL, "http-url", "", "URL of --http in browsers, as https://rath.example")
	fs.BoolVar(&web.HTTP.Insecure, "http-insecure", false, "accept an --http-url off this machine without https")
	return cmd
}

// person returns the name of the user who logs in with the codes of dev: the user of this
// machine, if that is a name for evidence.
func person(a *app.App) string {
	for _, name := range []string{a.Getenv("USER"), a.Getenv("LOGNAME"), a.Getenv("USERNAME")} {
		if access.CheckUser(name, a.Tenant()) == nil {
			return name
		}
	}
	return "dev"
}

// opened prints how to reach dev's node: the workflows on offer, and how to start one,
// preferably a workflow of the user's own program.
func opened(a *app.App, s *app.System, offered []string, private bool) error {
	store, err := filepath.Abs(a.Config.Store.Value)
	if err != nil {
		return err
	}
	offered = slices.DeleteFunc(offered, func(name string) bool { return name == wire.WorkflowNotify }) // for nodes alone
	try := "agent"
	for _, name := range offered {
		if !slices.ContainsFunc(s.Instance.Workflows(), func(r flow.Registration) bool { return r.Name == name }) {
			try = name
			break
		}
	}
	a.Out.Printf("workflows   %s\n", strings.Join(offered, ", "))
	a.Out.Printf("try         %s\n", a.Hint("submit", try, "-m", "hello", "--wait"))
	if at, moved := node.WebURL(s.Instance); at != "" {
		a.Out.Printf("web         %s   for ten minutes and one login; %s makes another\n", node.LoginURL(s.Instance), a.Hint("open"))
		if moved {
			a.Out.Printf("            the port is another one: --http is in use\n")
		}
	}
	if private {
		a.Out.Printf("clients     have the login in %s; others are refused\n", filepath.Join(a.Config.Store.Value, "node.json"))
	} else {
		a.Out.Printf("clients     without credentials are %q: they submit, approve, operate\n", messages.UserAnonymous)
	}
	a.Out.Printf("join        ./PROGRAM -dev %s\n", app.ShellWord(store))
	return nil
}

func dev(ctx context.Context, a *app.App, o *node.Options) error {
	s, err := a.Host(ctx, o)
	if err != nil {
		return err
	}
	a.Out.Printf("rath dev    %s   store %s   log %s\n", s.Instance.URL(), a.Config.Store.Value, s.Level)
	var names []string
	for _, w := range s.Instance.Workflows() {
		names = append(names, w.Name)
	}
	if err := opened(a, s, names, o.NATS.Private); err != nil {
		return errors.Join(err, s.Close())
	}
	quiet := notices(ctx, a, s.Instance)
	select {
	case <-ctx.Done():
		a.Err.Println("stopping; open runs resume at the next start. Interrupt again to exit at once")
	case <-s.Instance.Drained():
		a.Err.Println("draining; open runs resume at the next start")
	case err = <-s.Instance.Failed():
	}
	quiet()
	return errors.Join(err, s.Close())
}

// devFleet runs a fleet until it is interrupted.
func devFleet(ctx context.Context, a *app.App, port int, names []string, c fleet.Config, web *node.Options) (err error) {
	if web.Targets != "" { // for the nodes: the server sends none
		file, err := filepath.Abs(web.Targets)
		if err != nil {
			return err
		}
		c.Env, web.Targets = append(c.Env, "RATH_TARGETS="+file), ""
	}
	if c.Program == "" || c.Script == "" { // otherwise the script is served as the default model
		c.Model = cmp.Or(c.Model, a.Config.Model.Value)
	}
	c.Slots, _ = strconv.Atoi(a.Config.Slots.Value) // checked when it was read
	models, err := prepare(a, &c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, models.close()) }()
	opening, cancel := context.WithTimeout(ctx, app.OpenTimeout)
	defer cancel()
	var started atomic.Pointer[fleet.Fleet]
	s, err := fleet.Host(opening, a, port, func(incarnation string) string {
		if f := started.Load(); f != nil {
			return f.LastWords(incarnation)
		}
		return ""
	}, web)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	f, err := fleet.Start(opening, a, names, c)
	if err != nil {
		return err
	}
	started.Store(f)
	defer func() { err = errors.Join(err, f.Stop()) }()
	a.Out.Printf("rath dev    %s   store %s   log %s   pid %d\n", s.Instance.URL(), a.Config.Store.Value, s.Level, os.Getpid())
	for _, m := range f.Living() {
		a.Out.Printf("node %s      pid %-8d %s   log %s\n", m.Name, m.PID, m.Incarnation, relative(a, m.Log))
	}
	all, err := s.Workflows(ctx)
	if err != nil {
		return err
	}
	var offered []string
	for _, w := range all {
		if !slices.Contains(offered, w.Name) {
			offered = append(offered, w.Name)
		}
	}
	if err := opened(a, s, offered, web.NATS.Private); err != nil {
		return err
	}
	a.Out.Printf("            %s\n", a.Hint("cluster", "nodes", "ls"))
	defer notices(ctx, a, s.Instance)()
	keeping, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { // ends with keeping
		select {
		case err := <-s.Instance.Failed():
			stop(err)
		case <-keeping.Done():
		}
	}()
	err = f.Keep(keeping, func(m *fleet.Member) bool { return died(ctx, a, s, m) }, func(m *fleet.Member) {
		a.Err.Println(fmt.Sprintf("node %s      pid %d %s takes its place", m.Name, m.PID, m.Incarnation))
	})
	switch {
	case ctx.Err() != nil:
		a.Err.Println("draining the nodes; open runs resume at the next start")
		return nil
	case errors.Is(err, fleet.ErrNoneLeft):
		return app.WithCode(app.ExitUnavailable, err)
	}
	return err
}

const (
	// executedTimeout bounds the request for the runs that a node executed.
	executedTimeout = 5 * time.Second
	// executedNamed bounds the runs that are named.
	executedNamed = 8
)

// died prints how a node ended, its last output and the runs that it executed. It
// returns whether there were any.
func died(ctx context.Context, a *app.App, s *app.System, m *fleet.Member) (executed bool) {
	var text strings.Builder
	fmt.Fprintf(&text, "node %s      pid %d %s", m.Name, m.PID, m.Ended())
	if m.Err != nil {
		for _, line := range m.Lines() {
			text.WriteString("\n            " + term.Line(line, 68))
		}
		runs := executedBy(ctx, s, m.Incarnation)
		if executed = len(runs) > 0; executed {
			more := ""
			if n := len(runs) - executedNamed; n > 0 {
				runs, more = runs[:executedNamed], fmt.Sprintf(" and %d more", n)
			}
			text.WriteString("\n            it executed " + strings.Join(runs, ", ") + more)
		}
	}
	a.Err.Println(text.String())
	return executed
}

// executedBy returns the runs whose last attempt was an incarnation's and has not
// ended.
func executedBy(ctx context.Context, s *app.System, incarnation string) (ids []string) {
	if incarnation == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, executedTimeout)
	defer cancel()
	runs, err := s.Runs.List(ctx, &client.RunsOptions{States: []run.State{run.Running}})
	if err != nil {
		return nil // the node's end is reported without them
	}
	for _, r := range runs {
		if r.Node == incarnation {
			ids = append(ids, string(r.Run))
		}
	}
	return ids
}

// prepare checks the configuration of the nodes. A program of the user's own asks its
// model over HTTP, so prepare serves the script to it.
func prepare(a *app.App, c *fleet.Config) (*modelServer, error) {
	var err error
	if c.Script != "" {
		if c.Script, err = filepath.Abs(c.Script); err != nil {
			return nil, err
		}
		if _, err := a.ScriptModels(c.Script); err != nil { // once here, with a message of its own
			return nil, err
		}
	}
	if c.Program == "" {
		return nil, nil
	}
	if at, err := os.Stat(c.Program); err == nil && at.IsDir() {
		return nil, app.Fail(app.ExitUsage, "dev: --node %s is a directory: name a program, such as one that \"go build -o triage ./triage\" makes", c.Program)
	}
	path, err := exec.LookPath(c.Program)
	if err == nil {
		c.Program, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, app.Fail(app.ExitNotFound, "dev: --node: %w; build the program first, and name it with its path", err)
	}
	if c.Script == "" {
		return nil, nil
	}
	s, err := serveModel(c.Script, "127.0.0.1:0", nil)
	if err != nil {
		return nil, err
	}
	c.Env = append(c.Env, s.env()...)
	return s, nil
}

// relative returns the shorter form of a path.
func relative(a *app.App, name string) string {
	dir, err := os.Getwd()
	if err != nil {
		return name
	}
	if rel, err := filepath.Rel(dir, name); err == nil && len(rel) < len(name) {
		return rel
	}
	return name
}
