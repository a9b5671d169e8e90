package work

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/cmd/rath/internal/selection"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Resume is the command "resume".
func Resume(a *app.App) *cobra.Command {
	var o runOptions
	var of selection.Selection
	var budget budgetFlags
	var d messages.Control
	cmd := &cobra.Command{
		Use:   "resume [RUN]",
		Short: "Continue a run that was parked, or that failed",
		Long: `Continues a run where it stopped, and follows it to its end. Recorded steps do
not run again, and are not paid again.

A parked or interrupted run continues itself, in a node of this process unless
one already runs on the store. A run that failed, was cancelled or ran out of
time stays as it is: a new run, RUN-r1, RUN-r2 and so on, continues it at the
step that failed, or at --from, on a fork of its session with the files of that
moment, and with a budget of its own. A call that was cut off, and must not
happen twice, first asks for a decision. For a run that succeeded the command
prints the result. With --where it continues all matching runs that ended
without success, and follows none.`,
		Example: `  rath resume            the last run
  rath resume 7f3a --from 4 --model large
  rath resume --where 'state=failed and code=model_unavailable'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if of.Where != "" || of.DryRun {
				return of.Args(cmd, args)
			}
			return app.AtMost(1, "one run")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := budget.budget(cmd)
			if err != nil {
				return err
			}
			if b != (messages.Budget{}) {
				d.Budget = &b
			}
			if d.Step != "" && !d.Step.Resumable() {
				return app.Usage(cmd, fmt.Errorf("--from %s: want a step of the workflow itself, such as 4, or an iteration of a loop, such as 4.17", d.Step))
			}
			if of.Where != "" || of.DryRun {
				return resumeAll(cmd.Context(), a, &of, args, d)
			}
			name := messages.Last
			if len(args) > 0 {
				name = args[0]
			}
			return resume(cmd.Context(), a, name, d, &o)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar((*string)(&d.Step), "from", "", "step at which the new run continues (default the one that failed)")
	fs.StringVar(&d.Model, "model", "", "model of the new run")
	budget.add(fs)
	of.Flags(fs)
	o.NodeFlags.Add(fs)
	return cmd
}

// resumeAll continues all runs of a selection that ended without success.
func resumeAll(ctx context.Context, a *app.App, o *selection.Selection, args []string, d messages.Control) error {
	return a.With(ctx, func(s *app.System) error {
		return selection.Each(ctx, a, s, o, args, selection.Verb{
			Name: "resume", Past: "continued",
			Skip: func(r *messages.RunInfo) string {
				switch {
				case r.BranchOf != nil:
					return "is a branch of run " + string(r.BranchOf.Run) + "; resume that one"
				case !r.State.Terminal():
					return "has not ended"
				case r.State == run.Succeeded:
					return "succeeded"
				}
				return ""
			},
			Do: func(ctx context.Context, r *messages.RunInfo) (string, error) {
				id, err := s.Runs.Resume(ctx, r.Run, d)
				return "continues as " + string(id), err
			},
		})
	})
}

func resume(ctx context.Context, a *app.App, name string, d messages.Control, o *runOptions) (err error) {
	work := &node.Options{Sandbox: node.Sandbox{Unsafe: o.Unsafe}}
	if work.Models.Source, err = a.ScriptModels(o.Script); err != nil {
		return err
	}
	s, err := a.OpenThere(ctx, work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	before, err := follow.Newest(ctx, s)
	if err != nil {
		return err
	}
	after := before
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
	given := d.Step != "" || d.Model != "" || d.Budget != nil // for a new run
	if given && !r.State.Terminal() {
		return app.Fail(app.ExitConflict, "run %s has not ended: --from, --model and budgets are for a new run that continues it", r.Run)
	}
	if r.State.Terminal() && (given || r.State != run.Succeeded) {
		id, err := s.Runs.Resume(ctx, r.Run, d)
		if err != nil {
			return err
		}
		a.Remark("run %s %s, and continues as %s", r.Run, r.State.Past(), id)
		r = messages.RunInfo{Run: id, State: run.Queued}
		after = before
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
