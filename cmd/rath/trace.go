package main

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func (a *app) traceCommand() *cobra.Command {
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
		Args: atMost(1, "one run or session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := messages.Last
			if len(args) > 0 {
				name = args[0]
			}
			return a.with(cmd.Context(), func(s *system) error { return a.trace(cmd.Context(), s, name, live) })
		},
	}
	cmd.Flags().BoolVarP(&live, "follow", "f", false, "go on until the run ends")
	return cmd
}

func (a *app) trace(ctx context.Context, s *system, name string, live bool) error {
	t := view.NewTimeline(func(l view.Line) {
		if a.asJSON() {
			_ = a.writeLine(l) // the writer keeps its error
			return
		}
		a.out.Println(view.LineText(a.out, l))
	})
	t.Details, t.Users, t.All = s.look(), true, a.asJSON()
	n, err := s.resolve(ctx, name)
	if err != nil {
		return err
	}
	t.Labels = s.labels(ctx, string(n.session))
	if !live {
		err := s.recorded(ctx, n.session, 0, func(r *messages.LineageRecord) error {
			t.Add(ctx, r.Record)
			return nil
		})
		t.Finish(ctx)
		if err == nil && n.run != nil {
			a.standing(n.run)
		}
		return err
	}
	r, err := s.runOf(ctx, name)
	if err != nil {
		return err
	}
	w := a.storyOf(ctx, t, a.out.Note)
	w.person = func(r lineage.Record) { a.person(r) }
	seen, err := s.watch(ctx, r.Run, cmp.Or(r.Root, r.Session), 0, w)
	t.Finish(ctx)
	a.out.Note("")
	switch {
	case errors.Is(err, errInterrupted):
		return silent(exitInterrupted)
	case err != nil:
		return err
	case seen.result == nil:
		return a.stopped(r.Run, seen, nil)
	}
	return a.outcome(r.Run, seen.result)
}

// outcome turns the result of a run into the exit code of a command that
// followed it.
func (a *app) outcome(id run.ID, r *messages.Result) error {
	if err := r.Err(); err != nil {
		return &exitError{stateCode(r.State), err}
	}
	a.succeeded(id, r.Usage)
	return nil
}

func (a *app) succeeded(id run.ID, u session.Usage) {
	a.remark("succeeded, %s   run %s", view.UsageText(u), id)
}

// standing says how a run stands whose story was told.
func (a *app) standing(r *messages.RunInfo) {
	switch {
	case r.State == run.Succeeded:
		a.succeeded(r.Run, r.Usage)
	case r.Reason != "":
		a.remark("%s: %s   run %s", r.State, r.Reason, r.Run)
	default:
		a.remark("%s   run %s", r.State, r.Run)
	}
}
