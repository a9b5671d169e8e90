package work

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
)

// Rewind is the command "rewind".
func Rewind(a *app.App) *cobra.Command {
	var f taskFlags
	var workflow string
	cmd := &cobra.Command{
		Use:   "rewind SESSION:VERSION",
		Short: "Continue from an earlier version of a session",
		Long: `Creates a new session from an earlier version of another one, with its files,
and prints its id. With an input or --workflow it also runs a task on the new
session, and follows it; for a run the default is the run's workflow. The later
versions stay unchanged, as evidence.

A session with an open run is rejected: cancel the run first. Without a running
node this command is one meanwhile: other waiting runs of the store continue
too.`,
		Example: `  rath session rewind 7f3a:4
  rath session rewind @last:4 -m "try the other way"`,
		Args: app.Exactly(1, "one session with a version, such as 7f3a:4"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := task(a, cmd, &f)
			if err != nil {
				return err
			}
			goOn := workflow != "" || f.message != "" || f.file != "" || f.model != "" || len(f.tools) > 0
			return rewind(cmd.Context(), a, args[0], workflow, goOn, t)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&workflow, "workflow", "", "run a task of this workflow (default that of the run)")
	fs.StringVarP(&f.message, "message", "m", "", "its input: JSON, or text")
	fs.StringVarP(&f.file, "file", "f", "", "read the input from a file; - is standard input")
	fs.StringVar(&f.model, "model", "", "model")
	fs.StringSliceVar(&f.tools, "tools", nil, "tools of the agent, separated by commas")
	fs.StringVar(&f.id, "id", "", "id of the run, its idempotency key (default drawn)")
	return cmd
}

// rewind rewinds a session, and with goOn continues from there: with a task of the
// workflow, "" for the workflow of the named run.
func rewind(ctx context.Context, a *app.App, name, workflow string, goOn bool, t messages.Task) (err error) {
	if !strings.Contains(name, ":") {
		return app.Fail(app.ExitUsage, "rewind %s: to which version? name it as %s:3", name, name)
	}
	s, err := a.OpenThere(ctx, &node.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	n, err := reference.Resolve(ctx, s, name)
	if err != nil {
		return err
	}
	after, err := follow.Newest(ctx, s)
	if err != nil {
		return err
	}
	switch {
	case !goOn:
		workflow = node.WorkflowFork
	case workflow == "" && n.Run == nil:
		return app.Fail(app.ExitUsage, "rewind %s: name a workflow with --workflow: %s is a session, not a run", name, n.Session)
	case workflow == "":
		workflow = n.Run.Workflow
	}
	id, err := s.Sessions.Rewind(ctx, n.String(), workflow, t)
	if err != nil {
		return err
	}
	if !goOn {
		r, err := s.Wait(ctx, id)
		if err == nil {
			err = r.Err()
		}
		if err != nil {
			return err
		}
		if done, err := app.EmitOne(a, made{r.Session, r.Version, []string{n.String()}}); done {
			return err
		}
		a.Out.Println(r.Session)
		return nil
	}
	seen, err := follow.Watch(ctx, s, id, "", after, handlers(ctx, a, s, string(n.Session)))
	a.Err.Note("")
	if errors.Is(err, app.ErrInterrupted) {
		return parked(a, s, id, &follow.NodeFlags{})
	}
	if err != nil {
		return err
	}
	return finish(ctx, a, s, id, seen, blob.Digest{}, &runOptions{})
}
