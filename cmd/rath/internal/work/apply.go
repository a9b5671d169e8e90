package work

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// applyOptions select the changes that "apply" carries, and their destination.
type applyOptions struct {
	dir         string
	only, allow []string
	branch      bool
}

// Apply is the command "apply".
func Apply(a *app.App) *cobra.Command {
	var o applyOptions
	cmd := &cobra.Command{
		Use:   "apply RUN",
		Short: "Apply the changes of a run to a directory",
		Long: `Applies the changes of a run, as shown by "diff", to a directory. The command
changes all files or none: if a path of the directory has neither its old nor
its new content, it stops and names the paths. Changes already applied are
skipped.

With --branch the files, the index and HEAD stay unchanged: the changes become
commits after the checked-out revision, on the branch rath/RUN. Files excluded
on import are never exported. Changes to git hooks, CI, editor, shell and agent
configuration need --allow with the path.`,
		Example: `  rath apply @last
  rath apply 7f3a -C ~/project --only src
  rath apply 7f3a --allow .github/workflows/test.yml`,
		Args: app.Exactly(1, "one run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.With(cmd.Context(), func(s *app.System) error { return applyRun(cmd.Context(), a, s, args[0], &o) })
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.dir, "chdir", "C", ".", "directory to change")
	fs.StringArrayVar(&o.only, "only", nil, "apply this path and everything below it; can be given again")
	fs.StringArrayVar(&o.allow, "allow", nil, "apply this protected path; can be given again")
	fs.BoolVar(&o.branch, "branch", false, "commit to the branch rath/RUN of the git repository there")
	return cmd
}

// applyRun carries the changes of a run that has ended.
func applyRun(ctx context.Context, a *app.App, s *app.System, name string, o *applyOptions) error {
	r, err := reference.Run(ctx, s, name)
	if err != nil {
		return err
	}
	if !r.State.Terminal() {
		return app.Fail(app.ExitConflict, "run %s is %s: apply its changes after it has ended", r.Run, r.State)
	}
	from, err := filesOf(ctx, s, &r)
	if err != nil {
		return err
	}
	if from.IsZero() {
		return app.Fail(app.ExitNotFound, "run %s has no initial files to compare with: start one with -C DIR", r.Run)
	}
	result, err := s.Runs.Result(ctx, r.Run)
	if err != nil {
		return err
	}
	to, err := filesAfter(ctx, s, &result, from)
	if err != nil {
		return err
	}
	po := &workspace.PlanOptions{Only: o.only, Allow: o.allow}
	plan, err := workspace.NewPlan(ctx, s.Blobs(s.Tenant()), from, to, po)
	if err != nil {
		return err
	}
	where, commit := o.dir, ""
	if o.branch {
		where, commit, err = leaveBranch(ctx, a, s, &result, from, to, o.dir, po)
	} else {
		err = plan.Apply(ctx, o.dir)
	}
	if err != nil {
		return err
	}
	if done, err := app.EmitOne(a, struct {
		Run      run.ID              `json:"run"`
		Applied  []string            `json:"applied"`
		Withheld []workspace.LeftOut `json:"withheld,omitempty"`
		Commit   string              `json:"commit,omitempty"` // of --branch
	}{r.Run, append([]string{}, plan.Paths...), plan.Withheld, commit}); err != nil {
		return err
	} else if !done {
		for _, p := range plan.Paths {
			a.Out.Println(term.Line(p, 400))
		}
	}
	return applied(a, plan, where)
}

// leaveBranch leaves a run on a branch of the repository that contains a directory.
func leaveBranch(ctx context.Context, a *app.App, s *app.System, r *messages.Result, from, to blob.Digest, dir string, o *workspace.PlanOptions) (where, commit string, err error) {
	b, err := openBranch(ctx, dir)
	if err != nil {
		return "", "", err
	}
	if b == nil {
		return "", "", app.Fail(app.ExitUnavailable, "there is no git program to make a branch with; %q prints a patch", a.Hint("diff", string(r.Run)))
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	b.later = true
	commit, err = b.leave(ctx, s, r, from, to, o)
	return b.where(r), commit, err
}

// filesAfter returns the files of a run that has ended: the run's initial files if no
// tool has opened its sandbox.
func filesAfter(ctx context.Context, s *app.System, r *messages.Result, from blob.Digest) (blob.Digest, error) {
	if r.Session == "" {
		return from, nil
	}
	v, err := s.At(ctx, session.Ref{Key: session.Key{Tenant: s.Tenant(), ID: r.Session}, Version: r.Version})
	if err != nil {
		return blob.Digest{}, err
	}
	if to := v.Placement().Head; !to.IsZero() {
		return to, nil
	}
	return from, nil
}
