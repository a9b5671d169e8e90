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
)

// Show is the command "show".
func Show(a *app.App) *cobra.Command {
	var full, goOn bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show the transcript of a session, or of a run",
		Long: `Shows what was said in a session: each row with the version it made, who said
it, and the tools that were called, and of a run in flight what it is at. Long
texts are cut; --full shows them whole. With --follow it goes on until the run
ends: on a terminal with what the model is writing, elsewhere with whole rows.
"help names" tells how to name a session, a version or a run.`,
		Example: `  rath show @last
  rath show @last --follow     and what comes, until the run ends
  rath show 7f3a:4 --full
  rath show 7f3a -o jsonl | jq .text`,
		Args: app.Exactly(1, "one session or run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.With(cmd.Context(), func(s *app.System) error { return show(cmd.Context(), a, s, args[0], full, goOn) })
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "whole texts")
	cmd.Flags().BoolVarP(&goOn, "follow", "f", false, "go on until the run ends")
	return cmd
}

func show(ctx context.Context, a *app.App, s *app.System, name string, full, goOn bool) error {
	n, err := reference.Lookup(ctx, s, name)
	if err != nil {
		return err
	}
	if n.Run != nil && n.Session == "" { // ended before a log held it
		if done, err := app.EmitOne(a, n.Run); done {
			return err
		}
		view.RunLine(a.Out, n.Run)
		return nil
	}
	if goOn {
		return showOn(ctx, a, s, name, full)
	}
	v, err := s.Session(ctx, n.String())
	if err != nil {
		return err
	}
	switch a.Config.Output.Value {
	case "json":
		return a.WriteJSON(v)
	case "jsonl":
		_, err := app.Emit(a, v.Chunks)
		return err
	}
	if n.Run != nil {
		view.RunLine(a.Out, n.Run)
	}
	view.WriteTranscript(a.Out, &v, full)
	if n.Run == nil || n.Version != 0 {
		return nil
	}
	live, err := liveOf(ctx, a, s, n.Run)
	if err != nil || live == nil {
		return err
	}
	a.Out.Println()
	return tellLive(ctx, a, s, live)
}

// showOn shows the session of a run, and each row that is added to it until the run
// ends.
func showOn(ctx context.Context, a *app.App, s *app.System, name string, full bool) error {
	r, err := reference.Run(ctx, s, name)
	if err != nil {
		return err
	}
	after, err := follow.Newest(ctx, s) // before the rows are read: none is missed
	if err != nil {
		return err
	}
	v, err := s.Session(ctx, string(r.Session))
	if err != nil {
		return err
	}
	rows := uint64(len(v.Chunks))
	write := func(page *messages.Session, first bool) error {
		switch {
		case a.AsJSON():
			for i := range page.Chunks {
				if err := a.WriteLine(page.Chunks[i]); err != nil {
					return err
				}
			}
		case first:
			view.RunLine(a.Out, &r)
			view.WriteTranscript(a.Out, page, full)
		default:
			view.WriteRows(a.Out, page, full)
		}
		return nil
	}
	if err := write(&v, true); err != nil {
		return err
	}
	more := func() error {
		v, err := s.SessionAfter(ctx, string(r.Session), rows)
		if err == nil && len(v.Chunks) > 0 {
			rows += uint64(len(v.Chunks))
			err = write(&v, false)
		}
		return err
	}
	var failed error
	w := follow.Writing(a.Out)
	record := w.Record
	w.Record = func(rec lineage.Record) {
		if record(rec); rec.Session == r.Session && rec.Rows > 0 || rec.Kind == lineage.Ended {
			failed = errors.Join(failed, more())
		}
	}
	w.Person = func(rec lineage.Record) { follow.Person(a, rec) }
	seen, err := follow.Watch(ctx, s, r.Run, cmp.Or(r.Root, r.Session), after, w)
	a.Out.Note("")
	switch {
	case errors.Is(err, app.ErrInterrupted):
		return app.Silent(app.ExitInterrupted)
	case err != nil:
		return err
	case seen.Result == nil:
		return errors.Join(failed, follow.Stopped(a, r.Run, seen, nil))
	}
	if err := errors.Join(failed, more()); err != nil {
		return err
	}
	return outcome(a, r.Run, seen.Result)
}
