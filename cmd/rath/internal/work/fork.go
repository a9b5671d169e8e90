package work

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
)

// Fork is the command "fork".
func Fork(a *app.App) *cobra.Command {
	var at uint64
	cmd := &cobra.Command{
		Use:   "fork NAME",
		Short: "Fork a session at a version",
		Long: `Creates a new session from a version of another one, with its files, and prints
its id. It is a task of the workflow "fork", which makes no step, with fork_of:
the new session is recorded like any other. Continue it with "run --session ID".
Without a running node this command is one meanwhile: other waiting runs of the
store continue too.`,
		Example: `  rath session fork @last
  rath session fork 7f3a --at 4
  rath run --session "$(rath session fork 7f3a:4)" -m "try the other way"`,
		Args: app.Exactly(1, "one session or run"),
		RunE: func(cmd *cobra.Command, args []string) error { return fork(cmd.Context(), a, args[0], at) },
	}
	cmd.Flags().Uint64Var(&at, "at", 0, "version to fork at (default the newest)")
	return cmd
}

func fork(ctx context.Context, a *app.App, name string, at uint64) (err error) {
	s, err := a.OpenThere(ctx, &node.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	n, err := reference.Resolve(ctx, s, name)
	if err != nil {
		return err
	}
	if at > 0 && strings.Contains(name, ":") {
		return app.Fail(app.ExitUsage, "fork %s --at %d: give the version once, with the name or with --at", name, at)
	}
	if at > 0 {
		n.Version = session.Version(at)
	}
	v, err := s.Sessions.Get(ctx, n.String())
	if err != nil {
		return err
	}
	n.Session, n.Version = v.Session, v.Version
	r, err := s.Do(ctx, "fork", messages.Task{ID: client.NewID(), ForkOf: n.String()}, nil)
	if err != nil {
		return err
	}
	if err := r.Err(); err != nil {
		return app.WithCode(app.StateCode(r.State), fmt.Errorf("fork %s: %w", n, err))
	}
	if done, err := app.EmitOne(a, made{r.Session, r.Version, []string{n.String()}}); done {
		return err
	}
	a.Out.Println(r.Session)
	return nil
}

// made is the output of commands that make a session.
type made struct {
	Session session.ID      `json:"session"`
	Version session.Version `json:"version"`
	From    []string        `json:"from"`
}
