package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

func (a *app) nodesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "nodes",
		Short:   "List nodes, look at one, or drain it",
		Example: "  rath nodes ls\n  rath nodes drain rath-2 --wait",
		Args:    noSubcommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.nodesLsCommand(), a.nodesShowCommand(), a.nodesDrainCommand())
	return cmd
}

func (a *app) nodesLsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the nodes that live",
		Long: `Lists the nodes that live, and the pools whose work they take. A node that died
is listed for up to 30 seconds: as dead once the gossip of the others has lost
it, which takes a second or two; without gossip as silent once a sign of it is
missing. One that is frozen or cut off looks the same until it is heard of.

FREE is how many new runs a node could begin now, of how many it takes at once.
It keeps an eighth of its slots for runs that have begun already, such as
branches and runs that it takes over; these slots are not counted. A node that
only relays, such as the server of "dev --nodes", takes no runs.`,
		Example: "  rath nodes ls\n  rath nodes ls -o jsonl | jq -r .name",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			return a.with(ctx, func(s *system) error {
				all, err := s.Nodes(ctx)
				if err != nil {
					return err
				}
				if s.own() { // this command is no node that anybody could use
					all = slices.DeleteFunc(all, func(n messages.Node) bool { return n.Incarnation == s.node.Incarnation() })
				}
				if done, err := emit(a, all); done {
					return err
				}
				if len(all) == 0 {
					a.remark("no node runs over %s: start one with %q", a.config.Store.Value, a.invocation()+" dev")
					return nil
				}
				rows := make([][]string, len(all))
				for i, n := range all {
					rows[i] = []string{n.Name, n.Incarnation, cmp.Or(strings.Join(n.Pools, ","), "-"), view.NodeState(n), view.FreeSlots(n), n.Version}
				}
				a.out.Rows([]string{"NAME", "INCARNATION", "POOLS", "STATE", "FREE", "VERSION"}, rows)
				return nil
			})
		},
	}
}

func (a *app) nodesShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show NODE",
		Short:   "Show a node and what it offers",
		Long:    "Shows a node, by its name or the beginning of its incarnation, and the workflows\nof its pools.",
		Example: "  rath nodes show rath-0",
		Args:    exactly(1, "one node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.with(ctx, func(s *system) error {
				if s.own() {
					return a.noNode(exitNotFound)
				}
				n, err := s.Node(ctx, args[0])
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
				if done, err := emitOne(a, struct {
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
					{"pools", cmp.Or(strings.Join(n.Pools, ", "), "none")},
					{"offers", cmp.Or(strings.Join(offers, ", "), "nothing")},
					{"version", n.Version},
				}
				if n.Started > 0 {
					rows = append(rows, []string{"up since", view.Moment(time.UnixMilli(n.Started))})
				}
				for _, f := range n.Full {
					rows = append(rows, []string{f.Stream, view.CapacityText(f)})
				}
				a.out.Rows(nil, rows)
				return nil
			})
		},
	}
}

// noNode is the error of a command that needs a node and had to open the store
// itself.
func (a *app) noNode(code int) error {
	return fail(code, "no node runs over %s: this command opened the store itself; start one with %q", a.config.Store.Value, a.invocation()+" dev")
}

// drainWait bounds how long "nodes drain --wait" waits.
const drainWait = 10 * time.Minute

func (a *app) nodesDrainCommand() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Let a node give its runs to others and end",
		Long: `Asks a node to take no more work, to let the steps under way end, to give its
runs to others and to end, as at SIGTERM. Nothing is lost: the runs go on
elsewhere at their next step. It takes the rights of a node: run it where the
store is, or with the credentials of one.`,
		Example: "  rath nodes drain rath-2 --wait\n  rath nodes drain n3XK2 --creds node.creds",
		Args:    exactly(1, "one node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.with(ctx, func(s *system) error { return a.drain(ctx, s, args[0], wait) })
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the node has ended")
	return cmd
}

func (a *app) drain(ctx context.Context, s *system, name string, wait bool) error {
	if s.own() {
		return a.noNode(exitConflict)
	}
	n, err := s.Node(ctx, name)
	if err != nil {
		return err
	}
	if n.Dead {
		return fail(exitConflict, "node %s is dead: there is nothing to drain, its runs go on at others", n.Name)
	}
	err = s.DrainNode(ctx, n.Incarnation)
	switch {
	case errors.Is(err, client.ErrNoAnswer):
		return fmt.Errorf("%w; these credentials may lack the rights of a node", err)
	case errors.Is(err, run.ErrState):
		return drainOther(ctx, s, err)
	case err != nil:
		return err
	}
	a.remark("node %s drains", n.Name)
	if !wait {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, drainWait)
	defer cancel()
	for {
		ended, err := drainEnded(ctx, s, n.Incarnation)
		if err != nil {
			return err
		}
		if ended {
			a.remark("node %s has ended", n.Name)
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("node %s still drains after %s: %w", n.Name, drainWait, ctx.Err())
		}
	}
}

// drainOther adds to a node's refusal to drain which ones would.
func drainOther(ctx context.Context, s *system, refused error) error {
	all, err := s.Nodes(ctx)
	if err != nil {
		return errors.Join(refused, err)
	}
	var names []string
	for _, n := range all {
		if !view.RelaysOnly(n) && !n.Draining && !n.Dead && !slices.Contains(names, n.Name) {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("%w; no node that lives can be drained", refused)
	}
	return fmt.Errorf("%w; these can be drained: %s", refused, strings.Join(names, ", "))
}

// drainEnded reports whether a node that was asked to drain has ended. It
// answers until its runs are given away, and is listed until its last service
// has ended.
func drainEnded(ctx context.Context, s *system, incarnation string) (bool, error) {
	err := s.DrainNode(ctx, incarnation)
	switch {
	case err == nil, errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return false, nil
	case errors.Is(err, client.ErrUnreachable): // its server has ended with it
		return true, nil
	case !errors.Is(err, client.ErrNoAnswer):
		return false, err
	}
	all, err := s.Nodes(ctx)
	switch {
	case errors.Is(err, client.ErrUnreachable):
		return true, nil
	case errors.Is(err, client.ErrNoAnswer): // it was the last one; a server that it keeps ends after it
		return s.log == nil, nil
	case err != nil:
		return false, err
	}
	return !slices.ContainsFunc(all, func(o messages.Node) bool { return o.Incarnation == incarnation }), nil
}

func (a *app) keyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Print a new key for the gossip of a fleet",
		Long: `Prints a new random key. The nodes of a fleet share one: it keeps others out and
encrypts what the nodes tell each other.`,
		Example: "  rath key > gossip.key && chmod 600 gossip.key",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			key := cluster.NewKey().Text()
			if done, err := emitOne(a, struct {
				Key string `json:"key"`
			}{key}); done {
				return err
			}
			a.out.Println(key)
			return nil
		},
	}
}
