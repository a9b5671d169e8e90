package work

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Resume is the command "resume".
func Resume(a *app.App) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "resume [RUN]",
		Short: "Resume a parked run in this process, and follow it",
		Long: `Starts a node in this process and follows a parked or interrupted run to its
end. Recorded steps do not run again. Other open runs of the store also continue
meanwhile. If a node already runs on this store, the run resumes there, and this
command follows it. For an ended run it prints the result.`,
		Example: `  rath resume            the last run
  rath resume 7f3a`,
		Args: app.AtMost(1, "one run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := messages.Last
			if len(args) > 0 {
				name = args[0]
			}
			return resume(cmd.Context(), a, name, &o)
		},
	}
	o.NodeFlags.Add(cmd.Flags())
	return cmd
}

func resume(ctx context.Context, a *app.App, name string, o *runOptions) (err error) {
	work := &node.Options{Sandbox: node.Sandbox{Unsafe: o.Unsafe}}
	if work.Models.Source, err = a.ScriptModels(o.Script); err != nil {
		return err
	}
	s, err := a.OpenThere(ctx, work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	after, err := follow.Newest(ctx, s)
	if err != nil {
		return err
	}
	r, err := reference.Run(ctx, s, name)
	if w, waits := errors.AsType[reference.WaitingError](err); waits { // until the node of this process takes it
		r, err = messages.RunInfo{Run: w.Run, State: run.Queued}, nil
	} else if r.Root != "" {
		after = "" // its records are already in the lineage
	}
	if err != nil {
		return err
	}
	from, err := filesOf(ctx, s, &r)
	if err != nil {
		return err
	}
	if r.State.Terminal() {
		result, err := s.Runs.Result(ctx, r.Run)
		if err != nil {
			return err
		}
		return finish(ctx, a, s, r.Run, follow.Outcome{Result: &result}, from, o)
	}
	if r.State == run.NeedsReview && r.Review != nil {
		a.Err.Println("run " + string(r.Run) + " needs review: " + r.Review.Reason)
		follow.Decisions(a, r.Run, r.Review.Step, r.Review.Revision)
		return app.Silent(app.ExitRefused)
	}
	seen, err := follow.Watch(ctx, s, r.Run, r.Root, after, handlers(ctx, a, s, string(r.Root)))
	a.Err.Note("")
	if errors.Is(err, app.ErrInterrupted) {
		return parked(a, s, r.Run, &o.NodeFlags)
	}
	if err != nil {
		return err
	}
	return finish(ctx, a, s, r.Run, seen, from, o)
}

// filesOf returns the files of a run's task, zero for none.
func filesOf(ctx context.Context, s *app.System, r *messages.RunInfo) (blob.Digest, error) {
	if r.Session == "" {
		return blob.Digest{}, nil
	}
	w, err := journal.LoadStateMachine(ctx, s.Log, s.Values, session.Key{Tenant: s.Tenant(), ID: r.Session}, "")
	if err != nil {
		return blob.Digest{}, err
	}
	if rec := w.RunState().Run(r.Run); rec != nil {
		return rec.Task.Workspace, nil
	}
	return blob.Digest{}, nil
}
