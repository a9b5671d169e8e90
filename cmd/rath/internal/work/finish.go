package work

import (
	"context"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/evidence"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/cmd/rath/internal/inspect"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/workspace"
)

// finish prints the outcome of a run.
func finish(ctx context.Context, a *app.App, s *app.System, id run.ID, seen follow.Outcome, from blob.Digest, o *runOptions) error {
	if seen.Result == nil {
		return follow.Stopped(a, id, seen, &o.NodeFlags)
	}
	r := *seen.Result
	var diff string
	var to blob.Digest
	var err error
	if !from.IsZero() {
		if to, err = filesAfter(ctx, s, &r, from); err != nil {
			return err
		}
		if diff, err = inspect.Unified(ctx, s.Blobs(s.Tenant()), from, to); err != nil {
			return err
		}
	}
	if o.dossier != "" {
		if err := evidence.WriteDossier(ctx, a, s, id, o.dossier); err != nil {
			return err
		}
	}
	var plan *workspace.Plan
	told, apply := false, o.apply != "" && r.State == run.Succeeded && diff != ""
	if apply && !o.yes && !a.AsJSON() && a.Interactive() {
		told = true
		writeAnswer(a, &r, diff)
		where := o.dir
		if o.apply == applyBranch && o.branch != nil {
			where = o.branch.where(&r)
		}
		if apply, err = a.Confirm(ctx, "apply this to "+where+"?"); err != nil {
			return err
		}
	}
	where, commit := o.dir, ""
	if apply {
		po := &workspace.PlanOptions{Allow: o.allow}
		if plan, err = workspace.NewPlan(ctx, s.Blobs(s.Tenant()), from, to, po); err != nil {
			return err
		}
		switch {
		case o.apply == applyFiles:
			err = plan.Apply(ctx, o.dir)
		case o.branch == nil:
			err = writePatch(a, &r, diff)
		default:
			commit, err = o.branch.leave(ctx, s, &r, from, to, po)
			where = o.branch.where(&r)
		}
		if err != nil {
			return err
		}
	}
	out := struct {
		messages.Result
		Diff     string              `json:"diff,omitempty"`
		Applied  bool                `json:"applied,omitempty"`
		Commit   string              `json:"commit,omitempty"` // of --apply=branch
		Withheld []workspace.LeftOut `json:"withheld,omitempty"`
	}{Result: r, Diff: diff, Applied: plan != nil && len(plan.Paths) > 0, Commit: commit}
	if plan != nil {
		out.Withheld = plan.Withheld
	}
	done, err := app.EmitOne(a, out)
	if !done && !told {
		writeAnswer(a, &r, diff)
	}
	switch {
	case err != nil:
		return err
	case plan != nil:
		if o.apply == applyBranch && o.branch == nil {
			break
		}
		if err := applied(a, plan, where); err != nil {
			return err
		}
	case diff != "" && o.dir != "" && (o.apply == "" || told):
		a.Remark("no file in %s was changed; apply the diff with %q", o.dir, a.Hint("apply", string(id), "-C", o.dir))
	}
	if e := r.Err(); e != nil {
		code := app.StateCode(r.State)
		if r.Attempt == 0 { // never began: the task is at fault
			code = app.CodeOf(e)
		}
		return app.WithCode(code, e)
	}
	return nil
}

// writeAnswer prints the answer and the diff of a run.
func writeAnswer(a *app.App, r *messages.Result, diff string) {
	if r.State == run.Succeeded && r.Output != "" {
		a.Out.Println(strings.TrimRight(term.Clean(r.Output), "\n"))
	}
	if diff != "" {
		if r.Output != "" && a.Out.Terminal() {
			a.Out.Println()
		}
		view.WriteDiff(a.Out, diff)
	}
	if r.Attempt > 0 {
		a.Remark("%s, %s   run %s", view.EndText(r), view.UsageText(r.Usage), r.Run)
	}
}
