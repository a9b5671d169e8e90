package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// drainWait bounds how long "nodes drain --wait" waits.
const drainWait = 10 * time.Minute

func nodesDrain(a *app.App) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Hand a node's runs to others, and end it",
		Long: `Drains a node, as SIGTERM does: it accepts no work, lets running steps end,
hands its runs to other nodes, and ends. No work is lost: the runs resume
elsewhere at their next step.

This needs the rights of an operator: run it on the machine of the store, or
with an operator's credentials. A user with the role operate may drain the nodes
bound to its tenant, and shared nodes while no other tenant has sessions.`,
		Example: "  rath cluster nodes drain rath-2 --wait\n  rath cluster nodes drain n3XK2 --creds operator.creds",
		Args:    app.Exactly(1, "one node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.With(ctx, func(s *app.System) error { return drain(ctx, a, s, args[0], wait) })
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the node has ended")
	return cmd
}

func drain(ctx context.Context, a *app.App, s *app.System, name string, wait bool) error {
	if s.Own() {
		return noNode(a, app.ExitConflict)
	}
	n, err := s.Fleet.Node(ctx, name)
	if errors.Is(err, client.ErrDenied) {
		return fmt.Errorf("%w\n\ta drain takes the credentials of an operator, or of a user with the role operate; those of a node do not suffice", err)
	}
	if err != nil {
		return err
	}
	if n.Dead {
		return app.Fail(app.ExitConflict, "node %s is dead and cannot drain; its runs resume on other nodes", n.Name)
	}
	err = s.Fleet.Drain(ctx, n.Incarnation)
	switch {
	case errors.Is(err, run.ErrState):
		return drainOther(ctx, s, err)
	case err != nil:
		return err
	}
	a.Remark("node %s drains", n.Name)
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
			a.Remark("node %s has ended", n.Name)
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("node %s still drains after %s: %w", n.Name, drainWait, ctx.Err())
		}
	}
}

// drainOther adds to a node's refusal to drain the nodes that would.
func drainOther(ctx context.Context, s *app.System, refused error) error {
	all, err := s.Fleet.Nodes(ctx)
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
func drainEnded(ctx context.Context, s *app.System, incarnation string) (bool, error) {
	err := s.Fleet.Drain(ctx, incarnation)
	switch {
	case err == nil, errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return false, nil
	case errors.Is(err, client.ErrUnreachable): // its server has ended with it
		return true, nil
	case !errors.Is(err, client.ErrNoAnswer) && !errors.Is(err, session.ErrNotFound):
		return false, err
	}
	all, err := s.Fleet.Nodes(ctx)
	switch {
	case errors.Is(err, client.ErrUnreachable):
		return true, nil
	case errors.Is(err, client.ErrNoAnswer): // it was the last one; its server ends after it
		return s.Remote, nil
	case err != nil:
		return false, err
	}
	return !slices.ContainsFunc(all, func(o messages.Node) bool { return o.Incarnation == incarnation }), nil
}
