package inspect

import (
	"context"
	"errors"
	"slices"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// liveOf requests the current state of a run. It returns nil if the run has ended, or,
// with a remark, if no node can answer now.
func liveOf(ctx context.Context, a *app.App, s *app.System, r *messages.RunInfo) (*view.LiveRun, error) {
	if r.State.Terminal() {
		return nil, nil
	}
	l, err := s.Runs.Live(ctx, r.Run)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil && (errors.Is(err, client.ErrNoAnswer) || app.CodeOf(err) == app.ExitUnavailable):
		a.Remark("the activity of run %s is not available at the moment: %v", r.Run, err)
		return nil, nil
	case err != nil:
		return nil, err
	case l.State.Terminal():
		return nil, nil
	}
	out := &view.LiveRun{Info: r, Live: &l}
	if names, err := nodeNames(ctx, s); err == nil { // otherwise its incarnation is shown
		out.Node = names[l.Node]
	}
	return out, nil
}

// tellLive writes the progress of a run, and its branches if it waits for them.
func tellLive(ctx context.Context, a *app.App, s *app.System, r *view.LiveRun) error {
	answers := follow.AnswerWith(a, r.Info.Run, r.Live.Waits)
	if r.Live.Review != nil {
		answers = follow.DecideWith(a, r.Info.Run, r.Live.Review.Step, r.Live.Review.Revision)
	}
	view.WriteLive(a.Out, r, answers...)
	branches, err := openBranches(ctx, s, r)
	if err != nil || len(branches) == 0 {
		return err
	}
	a.Out.Println()
	view.RunTable(a.Out, branches, nil, view.LiveNotes(ctx, s.Runs.Live, branches), a.Out.Terminal())
	return nil
}

// openBranches returns the branches that a run waits for and that have begun.
func openBranches(ctx context.Context, s *app.System, r *view.LiveRun) ([]messages.RunInfo, error) {
	if r.Live.State != run.Waiting || !slices.ContainsFunc(r.Live.Waits, func(w messages.Wait) bool { return w.Kind == run.WaitBranches }) {
		return nil, nil
	}
	all, err := s.Runs.List(ctx, &client.RunsOptions{
		States: []run.State{run.Queued, run.Running, run.Waiting, run.NeedsReview}, Where: "under=" + string(r.Live.Session), Limit: view.LiveRows,
	})
	return slices.DeleteFunc(all, func(b messages.RunInfo) bool { return b.BranchOf == nil || b.BranchOf.Run != r.Info.Run }), err
}
