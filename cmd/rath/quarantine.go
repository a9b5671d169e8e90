package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func (a *app) quarantineCommand() *cobra.Command {
	cmd := a.apartCommand(verb{name: "quarantine", past: "set apart"}, (*client.Client).Quarantine, func(r *messages.RunInfo) string {
		if r.Quarantine != "" {
			return "is set apart already: " + r.Quarantine
		}
		return ""
	})
	cmd.Use, cmd.Short = "quarantine [RUN] --reason TEXT", "Set the sessions of runs apart until they are released"
	cmd.Long = `Sets the session of a run apart, or those of all runs that --where chooses: the
step under way ends and is recorded, and none follows; nobody merges the session
or recalls what it wrote. A run that is open waits. "release" ends it. Runs that
have ended can be set apart too; branches are sessions of their own: choose them
with under.`
	cmd.Example = `  rath quarantine 7f3a --reason "it read the production key"
  rath quarantine --where 'under=7f3a' --reason "bad input" --dry-run`
	return cmd
}

func (a *app) releaseCommand() *cobra.Command {
	cmd := a.apartCommand(verb{name: "release", past: "released"}, (*client.Client).Release, func(r *messages.RunInfo) string {
		if r.Quarantine == "" {
			return "is not set apart"
		}
		return ""
	})
	cmd.Use, cmd.Short = "release [RUN] --reason TEXT", "Let sessions that were set apart go on"
	cmd.Long = `Lets the session of a run that was set apart by "quarantine" go on, or those of
all runs that --where chooses. Runs that wait there are offered to nodes again.`
	cmd.Example = `  rath release 7f3a --reason "the key was a fake"
  rath release --where 'quarantined=yes' --reason "checked"`
	return cmd
}

// apartCommand is a command about the sessions of runs: several runs may share
// one.
func (a *app) apartCommand(v verb, do func(*client.Client, context.Context, run.ID, string, string) error, skip func(*messages.RunInfo) string) *cobra.Command {
	var o selection
	var by, reason string
	cmd := &cobra.Command{
		Args: o.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return usage(cmd, errors.New("--reason is needed: it is kept as evidence"))
			}
			ctx := cmd.Context()
			return a.with(ctx, func(s *system) error {
				with := map[session.ID]run.ID{}
				v.skip = func(r *messages.RunInfo) string {
					if why := skip(r); why != "" {
						return why
					}
					if other := with[r.Session]; other != "" {
						return "has the session of run " + string(other)
					}
					with[r.Session] = r.Run
					return ""
				}
				v.plan = func(r *messages.RunInfo) string { return "session " + lineage.Short(r.Session) }
				v.do = func(ctx context.Context, r *messages.RunInfo) (string, error) {
					return "is " + v.past + ": session " + lineage.Short(r.Session), do(s.Client, ctx, r.Run, by, reason)
				}
				return a.each(ctx, s, &o, args, v)
			})
		},
	}
	o.flags(cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "", "why, kept as evidence")
	a.byFlag(cmd.Flags(), &by, "who decides")
	return cmd
}
