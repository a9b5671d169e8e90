package inspect

import (
	"context"
	"errors"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// showSteps prints the steps of the tree of a run or session: one line per turn of an
// agent. With live it continues until the run ends.
func showSteps(ctx context.Context, a *app.App, s *app.System, name string, live bool) error {
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
	if !live {
		err := tellRecorded(ctx, s, n.Session, t)
		if err == nil && n.Run != nil {
			standing(a, n.Run)
		}
		return err
	}
	t.Labels = reference.Labels(ctx, s, string(n.Session))
	r, err := reference.Run(ctx, s, name)
	if err != nil {
		return err
	}
	w := follow.Timeline(ctx, a.Out, t)
	w.Person = func(r messages.Record) { follow.Person(a, r) }
	seen, err := follow.Watch(ctx, s, r.Run, r.Root, "", w)
	t.Finish(ctx)
	return ending(a, r.Run, seen, err)
}

// ending prints the state of a run that was followed, and returns the command's error.
func ending(a *app.App, id run.ID, seen follow.Outcome, err error) error {
	a.Out.Note("")
	switch {
	case errors.Is(err, app.ErrInterrupted):
		return app.Silent(app.ExitInterrupted)
	case err != nil:
		return err
	case seen.Result == nil:
		return follow.Stopped(a, id, seen, nil)
	}
	return outcome(a, id, seen.Result)
}

// ended prints the outcome of a run that has ended.
func ended(ctx context.Context, a *app.App, s *app.System, id run.ID) error {
	r, err := s.Runs.Result(ctx, id)
	if err != nil {
		return err
	}
	return outcome(a, id, &r)
}

// tellRecorded adds the recorded history of a session's tree to t. It reads the whole
// tree first, so that the sessions have the same names as in pictures of the tree.
func tellRecorded(ctx context.Context, s *app.System, id session.ID, t *view.Timeline) error {
	g := lineage.NewGraph()
	var all []messages.Record
	err := reference.Recorded(ctx, s, id, "", func(r *messages.LineageRecord) error {
		g.Add(r.Record)
		all = append(all, r.Record)
		return nil
	})
	if err != nil {
		return err
	}
	if len(all) > 0 {
		if t.Labels, err = g.Labels(session.Key{Tenant: s.Tenant(), ID: all[0].Root}); err != nil {
			return err
		}
	}
	for i := range all {
		t.Add(ctx, all[i])
	}
	t.Finish(ctx)
	return nil
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

// standing prints the state of a run after its history.
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
