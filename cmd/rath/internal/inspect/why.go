package inspect

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Why is the command "why".
func Why(a *app.App) *cobra.Command {
	var after, all bool
	cmd := &cobra.Command{
		Use:   "why WHAT",
		Short: "Show the origin of a version, a step, a session, a run or a line",
		Long: `Shows the origin of a row or version of a session, of a tool call or another
step, of a session, a run, a file or one line of it. For the work of agents it
shows the agent, the branch, the tool call, the attempt and the run; for a model
call also its prompt, its tools and the reason for the end of its answer. The
answer follows from the commits, which include the files before and after each
step.

--impact shows the opposite direction. For a call with changed files it lists
the later calls that used them: changed them again, read them, or named them in
a command, which may have read more. Then it lists everything later with access
to its result: later steps of its session, forks, copies and merges that include
it, their runs, the files and notes of those runs, and later searches of the
same memories elsewhere. A merge may omit rows of a branch, and a summary may
omit content: the list is an upper bound.

For an open run it starts with the current activity or wait, and its start: the
model or tool, the try and the previous failure, the text so far; the place in
the queue; the question and the command to answer it. The executing node reports
this, and it is recorded nowhere. For an unsuccessful run it starts with the
reason.`,
		Example: `  rath why @last               why the last run is stuck, or where it comes from
  rath why @last:slug.sh:7     line 7 of slug.sh, as the last run left it
  rath why slug.sh:7           the same
  rath why slug.sh             which steps changed the file
  rath why 7f3a:5              version 5 of a session
  rath why 7f3a#3              row 3 of a session, counted from 0
  rath why 7f3a/2.0            a step of a run, or a tool call by its id
  rath why 7f3a                where a run, or a session, comes from
  rath why --impact @last/2.0  what a tool call of the last run touched`,
		Args: app.Exactly(1, "one thing"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all && !after {
				return app.Usage(cmd, errors.New("--all belongs to --impact"))
			}
			return a.With(cmd.Context(), func(s *app.System) error {
				if after {
					return impact(cmd.Context(), a, s, args[0], all)
				}
				return why(cmd.Context(), a, s, args[0])
			})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&after, "impact", false, "show later uses, not the origin")
	fs.BoolVar(&all, "all", false, "of --impact: whole lists, not only the first rows")
	return cmd
}

func why(ctx context.Context, a *app.App, s *app.System, text string) error {
	t, err := parseTarget(text)
	if err != nil {
		return err
	}
	f, err := find(ctx, s, t, false)
	if waits, ok := errors.AsType[reference.WaitingError](err); ok { // no log holds it
		return whyUntaken(ctx, a, s, waits.Run)
	}
	if err != nil {
		return err
	}
	key := f.Ref(s.Tenant()).Key
	switch {
	case f.path != "":
		return whyFile(ctx, a, s, f)
	case f.row >= 0:
		r, err := chunkOf(ctx, s, f)
		if err != nil {
			return err
		}
		f.Reference.Session, f.Reference.Version = r.ID, r.Version
		return whyVersion(ctx, a, s, f, r)
	case f.call != nil:
		return whyStep(ctx, a, s, f, f.call.Run, f.call.Step)
	case f.step != "":
		return whyStep(ctx, a, s, f, f.run.Run, f.step)
	case t.version > 0:
		return whyVersion(ctx, a, s, f, session.Ref{Key: key, Version: t.version})
	case f.run != nil:
		return whyRun(ctx, a, s, f)
	}
	r, err := view.ReasonOfSession(f.graph, key)
	if err != nil {
		return err
	}
	return tellReason(a, s, f.graph, r)
}

// whyRun explains a run: its progress or its wait, if it has not ended, and its origin.
func whyRun(ctx context.Context, a *app.App, s *app.System, f *found) error {
	live, err := liveOf(ctx, a, s, f.run)
	if err != nil {
		return err
	}
	r, err := view.ReasonOfRun(f.graph, s.Tenant(), f.run.Run)
	if err != nil {
		return err
	}
	r.WaysOn = recordsOf(s).WaysOn(ctx, f.graph, r.Session, f.run)
	if live != nil {
		if r.Live = live.Live; !a.AsJSON() {
			header(a, live)
			if err := tellLive(ctx, a, s, live); err != nil {
				return err
			}
			a.Out.Println()
		}
	}
	return tellReason(a, s, f.graph, r)
}

// header writes the state of a run, without the parts that WriteLive prints.
func header(a *app.App, r *view.LiveRun) {
	of := ""
	if r.Info.Workflow != "" { // else no log holds it
		of = " of " + r.Info.Workflow
	}
	a.Out.Printf("run      %s%s, %s\n", r.Info.Run, of, r.Live.State)
}

// whyUntaken explains a run whose task waits to be taken.
func whyUntaken(ctx context.Context, a *app.App, s *app.System, id run.ID) error {
	live, err := liveOf(ctx, a, s, &messages.RunInfo{Run: id, State: run.Queued})
	if err != nil || live == nil {
		return err
	}
	if done, err := app.EmitOne(a, view.Reason{What: "run " + string(id), Run: id, Live: live.Live}); done {
		return err
	}
	header(a, live)
	return tellLive(ctx, a, s, live)
}

func whyVersion(ctx context.Context, a *app.App, s *app.System, f *found, r session.Ref) error {
	m, err := f.graph.Why(r.Key, r.Version)
	if err != nil {
		return err
	}
	return tellMaker(ctx, a, s, f, m)
}

func whyStep(ctx context.Context, a *app.App, s *app.System, f *found, id run.ID, step run.Path) error {
	m, err := f.graph.Step(s.Tenant(), id, step)
	if err != nil {
		return err
	}
	f.Reference.Session, f.Reference.Version = m.Session, m.Version
	return tellMaker(ctx, a, s, f, m)
}

// whyFile explains a file, or a line of it.
func whyFile(ctx context.Context, a *app.App, s *app.System, f *found) error {
	r, err := recordsOf(s).ReasonOfFile(ctx, f.graph, f.Ref(s.Tenant()), f.path, f.line)
	if err != nil {
		return err
	}
	return tellReason(a, s, f.graph, r)
}

// tellMaker explains a version, or the step that made a version.
func tellMaker(ctx context.Context, a *app.App, s *app.System, f *found, m lineage.Maker) error {
	r, err := recordsOf(s).ReasonOfMaker(ctx, &m)
	if err != nil {
		return err
	}
	r.What, r.Whole = cmp.Or(f.text, f.Reference.String()), f.whole
	return tellReason(a, s, f.graph, r)
}

// recordsOf returns the records of the tenant.
func recordsOf(s *app.System) *view.Records {
	return &view.Records{Tenant: s.Tenant(), Blobs: s.Blobs(s.Tenant()), Log: s.Log, Session: s.Sessions.Get}
}

// tellReason writes an answer.
func tellReason(a *app.App, s *app.System, g *lineage.Graph, r view.Reason) error {
	if err := r.Complete(g, s.Tenant()); err != nil {
		return err
	}
	if done, err := app.EmitOne(a, r); done {
		return err
	}
	view.WriteReason(a.Out, &r)
	return nil
}
