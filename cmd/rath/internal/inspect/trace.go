package inspect

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Trace is the command "trace".
func Trace(a *app.App) *cobra.Command {
	var live bool
	cmd := &cobra.Command{
		Use:   "trace [NAME]",
		Short: "Tell the story of a run, and with -f what happens next",
		Long: `Tells what the sessions of a run's tree did: one line per turn of an agent, with
its tool calls folded into it, branches below the session they were forked from,
and what became of them. With -f it goes on until the run ends. Of many branches
of one fan-out it tells a few, and of the others what goes wrong or asks; with
-o json or jsonl it tells all, one object per line.`,
		Example: `  rath trace
  rath trace -f @last
  rath trace 7f3a -o jsonl`,
		Args: app.AtMost(1, "one run or session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := messages.Last
			if len(args) > 0 {
				name = args[0]
			}
			return a.With(cmd.Context(), func(s *app.System) error { return trace(cmd.Context(), a, s, name, live) })
		},
	}
	cmd.Flags().BoolVarP(&live, "follow", "f", false, "go on until the run ends")
	return cmd
}

func trace(ctx context.Context, a *app.App, s *app.System, name string, live bool) error {
	t := view.NewTimeline(func(l view.Line) {
		if a.AsJSON() {
			_ = a.WriteLine(l) // the writer keeps its error
			return
		}
		a.Out.Println(view.LineText(a.Out, l))
	})
	t.Details, t.Users, t.All = s.Details(), true, a.AsJSON()
	n, err := reference.Resolve(ctx, s, name)
	if err != nil {
		return err
	}
	t.Labels = reference.Labels(ctx, s, string(n.Session))
	if !live {
		err := recorded(ctx, s, n.Session, 0, func(r *messages.LineageRecord) error {
			t.Add(ctx, r.Record)
			return nil
		})
		t.Finish(ctx)
		if err == nil && n.Run != nil {
			standing(a, n.Run)
		}
		return err
	}
	r, err := reference.Run(ctx, s, name)
	if err != nil {
		return err
	}
	w := follow.Timeline(ctx, a.Out, t)
	w.Person = func(r lineage.Record) { follow.Person(a, r) }
	seen, err := follow.Watch(ctx, s, r.Run, cmp.Or(r.Root, r.Session), 0, w)
	t.Finish(ctx)
	a.Out.Note("")
	switch {
	case errors.Is(err, app.ErrInterrupted):
		return app.Silent(app.ExitInterrupted)
	case err != nil:
		return err
	case seen.Result == nil:
		return follow.Stopped(a, r.Run, seen, nil)
	}
	return outcome(a, r.Run, seen.Result)
}

// outcome turns the result of a run into the exit code of a command that
// followed it.
func outcome(a *app.App, id run.ID, r *messages.Result) error {
	if err := r.Err(); err != nil {
		return app.WithCode(app.StateCode(r.State), err)
	}
	succeeded(a, id, r.Usage)
	return nil
}

func succeeded(a *app.App, id run.ID, u session.Usage) {
	a.Remark("succeeded, %s   run %s", view.UsageText(u), id)
}

// standing says how a run stands whose story was told.
func standing(a *app.App, r *messages.RunInfo) {
	switch {
	case r.State == run.Succeeded:
		succeeded(a, r.Run, r.Usage)
	case r.Reason != "":
		a.Remark("%s: %s   run %s", r.State, r.Reason, r.Run)
	default:
		a.Remark("%s   run %s", r.State, r.Run)
	}
}
