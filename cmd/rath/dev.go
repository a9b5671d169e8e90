package main

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

	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/node"
)

func (a *app) devCommand() *cobra.Command {
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

Without a key of a model it repeats what it is told; --script answers from a
file. Runs that are under way when it stops go on at the next start.

With --nodes it is a fleet: this process keeps the NATS server, and the nodes
are processes of their own, with a key that they share. Kill one: its runs go on
at the others. --restart starts another one in its place.`,
		Example: `  rath dev
  rath dev --port 4333 --script model.txtar
  rath dev --nodes 3
  rath submit agent -m "say hello" --wait      in another terminal`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.ownServer(cmd); err != nil {
				return err
			}
			if port < 1 || port > 65535 {
				return usage(cmd, fmt.Errorf("--port %d: want a number from 1 to 65535", port))
			}
			if nodes < 0 || nodes > maxNodes {
				return usage(cmd, fmt.Errorf("--nodes %d: want a number from 1 to %d", nodes, maxNodes))
			}
			if restart && nodes == 0 {
				return usage(cmd, fmt.Errorf("--restart needs --nodes"))
			}
			if nodes > 0 {
				return a.devFleet(cmd.Context(), port, nodeNames(nodes), restart, memberConfig{Model: model, Script: script, Unsafe: unsafe})
			}
			o := &node.Options{Name: "dev", Port: port, Model: model, Unsafe: unsafe}
			var err error
			if o.Models, err = a.scriptModels(script); err != nil {
				return err
			}
			return a.dev(cmd.Context(), o)
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

func (a *app) dev(ctx context.Context, o *node.Options) error {
	s, err := a.host(ctx, o)
	if err != nil {
		return err
	}
	a.out.Printf("rath dev    %s   store %s   log %s\n", s.node.URL(), a.config.Store.Value, s.level)
	var names []string
	for _, w := range s.node.Workflows() {
		names = append(names, w.Name)
	}
	a.out.Printf("workflows   %s\n", strings.Join(names, ", "))
	a.out.Printf("try         %s\n", a.hint("submit", "agent", "-m", "hello", "--wait"))
	quiet := a.notices(ctx, s.node)
	select {
	case <-ctx.Done():
		a.err.Println("stopping; what is under way goes on at the next start. Interrupt again to exit at once")
	case <-s.node.Drained():
		a.err.Println("asked to drain; what is under way goes on at the next start")
	case err = <-s.node.Failed():
	}
	quiet()
	return errors.Join(err, s.close())
}

// maxNodes bounds the fleet of one machine.
const maxNodes = 26

// nodeNames are "a", "b" and so on.
func nodeNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = string(rune('a' + i))
	}
	return names
}

// fleetHost opens the store in this process as the server of a fleet, which
// takes no work itself.
func (a *app) fleetHost(ctx context.Context, port int) (*system, memberConfig, error) {
	var base memberConfig
	ports, err := freePorts(2)
	if err != nil {
		return nil, base, err
	}
	monitor, gossip := ports[0], loopback(ports[1])
	base.Join = []string{gossip}
	key := cluster.NewKey()
	base.Key = key.Text()
	s, err := a.host(ctx, &node.Options{
		Name: "server", Idle: true, Port: port, MonitorPort: monitor,
		Gossip: &node.Gossip{Bind: gossip, Key: key, Label: fleetLabel},
	})
	return s, base, err
}

// devFleet runs a fleet until it is interrupted.
func (a *app) devFleet(ctx context.Context, port int, names []string, restart bool, o memberConfig) (err error) {
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	s, base, err := a.fleetHost(opening, port)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	base.Model, base.Script, base.Unsafe = cmp.Or(o.Model, a.config.Model.Value), o.Script, o.Unsafe
	base.Slots, _ = strconv.Atoi(a.config.Slots.Value) // checked when it was read
	if base.Script != "" {
		if base.Script, err = filepath.Abs(base.Script); err != nil {
			return err
		}
		if _, err := a.scriptModels(base.Script); err != nil { // once here, with a message of its own
			return err
		}
	}
	f, err := a.startFleet(opening, s, names, base)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	a.out.Printf("rath dev    %s   store %s   log %s   pid %d\n", s.node.URL(), a.config.Store.Value, s.level, os.Getpid())
	for _, m := range f.living() {
		a.out.Printf("node %s      pid %-8d %s   log %s\n", m.name, m.pid, m.incarnation, a.relative(m.log))
	}
	a.out.Printf("try         %s\n", a.hint("submit", "agent", "-m", "hello", "--wait"))
	a.out.Printf("            %s\n", a.hint("nodes", "ls"))
	defer a.notices(ctx, s.node)()
	for {
		select {
		case <-ctx.Done():
			a.err.Println("draining the nodes; what is under way goes on at the next start")
			return nil
		case err := <-s.node.Failed():
			return err
		case m := <-f.died:
			a.err.Println(fmt.Sprintf("node %s      pid %d %s", m.name, m.pid, m.ended()))
			if restart && m.err != nil {
				starting, cancel := context.WithTimeout(ctx, memberStart)
				err := f.start(starting, m.config)
				cancel()
				if err != nil {
					a.err.Println(err)
					continue
				}
				living := f.living()
				for _, n := range living {
					if n.name == m.name {
						a.err.Println(fmt.Sprintf("node %s      pid %d %s takes its place", n.name, n.pid, n.incarnation))
					}
				}
			} else if len(f.living()) == 0 {
				return fail(exitUnavailable, "no node is left; the runs go on at the next start")
			}
		}
	}
}

// relative returns a path as it is shorter to read.
func (a *app) relative(name string) string {
	dir, err := os.Getwd()
	if err != nil {
		return name
	}
	if rel, err := filepath.Rel(dir, name); err == nil && len(rel) < len(name) {
		return rel
	}
	return name
}
