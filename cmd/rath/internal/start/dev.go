package start

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/fleet"
	"github.com/rathcluster/rath/node"
)

// Dev is the command "dev".
func Dev(a *app.App) *cobra.Command {
	var port, nodes int
	var model, script string
	var unsafe, restart bool
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a node with a NATS server of its own over this directory",
		Long: `Runs a node with a NATS server on 127.0.0.1 over the store of this directory,
until it is interrupted, or drained as node "dev". Programs in any language
submit tasks there and need no credentials; other rath commands of this
directory find it by themselves.

--model echo repeats what it is told, without a key; --script answers from a
file. Runs that are under way when it stops go on at the next start.

With --nodes it is a fleet: this process keeps the NATS server, and the nodes
are processes of their own, with a key that they share. Kill one: its runs go on
at the others. --restart starts another one in its place.`,
		Example: `  rath dev
  rath dev --port 4333 --script model.txtar
  rath dev --nodes 3
  rath submit agent -m "say hello" --wait      in another terminal`,
		Args: app.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.OwnServer(cmd); err != nil {
				return err
			}
			if port < 1 || port > 65535 {
				return app.Usage(cmd, fmt.Errorf("--port %d: want a number from 1 to 65535", port))
			}
			if nodes < 0 || nodes > fleet.MaxNodes {
				return app.Usage(cmd, fmt.Errorf("--nodes %d: want a number from 1 to %d", nodes, fleet.MaxNodes))
			}
			if restart && nodes == 0 {
				return app.Usage(cmd, fmt.Errorf("--restart needs --nodes"))
			}
			if nodes > 0 {
				return devFleet(cmd.Context(), a, port, fleet.Names(nodes), restart, fleet.Config{Model: model, Script: script, Unsafe: unsafe})
			}
			o := &node.Options{Name: "dev", Port: port, Model: model, Unsafe: unsafe}
			var err error
			if o.Models, err = a.ScriptModels(script); err != nil {
				return err
			}
			return dev(cmd.Context(), a, o)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVar(&port, "port", 4222, "port of the NATS server")
	fs.StringVar(&model, "model", "", "default model")
	fs.StringVar(&script, "script", "", "answer model calls from this txtar file")
	fs.IntVar(&nodes, "nodes", 0, "start so many nodes as processes of their own")
	fs.BoolVar(&restart, "restart", false, "start another node in the place of one that died")
	fs.BoolVar(&unsafe, "unsafe", false, "let models run commands where nothing confines them")
	return cmd
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
	a.Out.Printf("workflows   %s\n", strings.Join(names, ", "))
	a.Out.Printf("try         %s\n", a.Hint("submit", "agent", "-m", "hello", "--wait"))
	quiet := notices(ctx, a, s.Instance)
	select {
	case <-ctx.Done():
		a.Err.Println("stopping; what is under way goes on at the next start. Interrupt again to exit at once")
	case <-s.Instance.Drained():
		a.Err.Println("asked to drain; what is under way goes on at the next start")
	case err = <-s.Instance.Failed():
	}
	quiet()
	return errors.Join(err, s.Close())
}

// devFleet runs a fleet until it is interrupted.
func devFleet(ctx context.Context, a *app.App, port int, names []string, restart bool, o fleet.Config) (err error) {
	opening, cancel := context.WithTimeout(ctx, app.OpenTimeout)
	defer cancel()
	s, base, err := fleet.Host(opening, a, port)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	base.Model, base.Script, base.Unsafe = cmp.Or(o.Model, a.Config.Model.Value), o.Script, o.Unsafe
	base.Slots, _ = strconv.Atoi(a.Config.Slots.Value) // checked when it was read
	if base.Script != "" {
		if base.Script, err = filepath.Abs(base.Script); err != nil {
			return err
		}
		if _, err := a.ScriptModels(base.Script); err != nil { // once here, with a message of its own
			return err
		}
	}
	f, err := fleet.Start(opening, a, s, names, base)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	a.Out.Printf("rath dev    %s   store %s   log %s   pid %d\n", s.Instance.URL(), a.Config.Store.Value, s.Level, os.Getpid())
	for _, m := range f.Living() {
		a.Out.Printf("node %s      pid %-8d %s   log %s\n", m.Name, m.PID, m.Incarnation, relative(a, m.Log))
	}
	a.Out.Printf("try         %s\n", a.Hint("submit", "agent", "-m", "hello", "--wait"))
	a.Out.Printf("            %s\n", a.Hint("nodes", "ls"))
	defer notices(ctx, a, s.Instance)()
	for {
		select {
		case <-ctx.Done():
			a.Err.Println("draining the nodes; what is under way goes on at the next start")
			return nil
		case err := <-s.Instance.Failed():
			return err
		case m := <-f.Died:
			a.Err.Println(fmt.Sprintf("node %s      pid %d %s", m.Name, m.PID, m.Ended()))
			if restart && m.Err != nil {
				starting, cancel := context.WithTimeout(ctx, fleet.MemberStart)
				err := f.Start(starting, m.Config)
				cancel()
				if err != nil {
					a.Err.Println(err)
					continue
				}
				living := f.Living()
				for _, n := range living {
					if n.Name == m.Name {
						a.Err.Println(fmt.Sprintf("node %s      pid %d %s takes its place", n.Name, n.PID, n.Incarnation))
					}
				}
			} else if len(f.Living()) == 0 {
				return app.Fail(app.ExitUnavailable, "no node is left; the runs go on at the next start")
			}
		}
	}
}

// relative returns a path as it is shorter to read.
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
