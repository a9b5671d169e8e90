package inspect

import (
	"context"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/cmd/rath/internal/reference"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// recordPlace is the position of a record in the log of a session.
type recordPlace struct {
	session session.ID
	commit  uint64
	k       int
}

func placeOf(r *messages.Record) recordPlace { return recordPlace{r.Session, r.Commit, r.K} }

// followSteps lists single steps of a run and of its branches, and each that is added
// until the run ends.
func followSteps(ctx context.Context, a *app.App, s *app.System, name string, q *view.StepQuery) error {
	r, err := reference.Run(ctx, s, name)
	if err != nil {
		return err
	}
	after, err := follow.Newest(ctx, s) // before reading the steps, so that none is missed
	if err != nil {
		return err
	}
	g, feed, seen, labels := lineage.NewGraph(), lineage.NewStepFeed(r.Run), map[recordPlace]bool{}, &lineage.Labels{}
	told := false // the end was printed
	if r.Session != "" {
		err = reference.Recorded(ctx, s, r.Session, "", func(rec *messages.LineageRecord) error {
			g.Add(rec.Record)
			feed.Add(rec.Record)
			labels.Add(&rec.Record)
			seen[placeOf(&rec.Record)] = true
			told = told || rec.Record.Kind == messages.KindEnded && rec.Record.Run == r.Run && rec.Record.Home == ""
			return nil
		})
		if err != nil {
			return err
		}
	}
	write := func(step *view.Step) {
		if a.AsJSON() { // a stream is one object per line in either form
			_ = a.WriteLine(step) // the writer keeps its error
			return
		}
		a.Out.Println(view.StepLine(a.Out, step, labels.Of))
	}
	all := g.StepsOf(s.Tenant(), r.Run)
	count := len(all)
	for _, step := range q.Choose(all) {
		write(&step)
	}
	if told {
		return ended(ctx, a, s, r.Run)
	}
	w := follow.Writing(a.Out)
	record := w.Record
	w.Record = func(rec messages.Record) {
		record(rec)
		if seen[placeOf(&rec)] {
			return
		}
		labels.Add(&rec)
		did, ok := feed.Add(rec)
		if !ok {
			return
		}
		count++
		if step, ok := q.Takes(count, &did); ok {
			write(&step)
		}
	}
	w.Person = func(rec messages.Record) { follow.Person(a, rec) }
	out, err := follow.Watch(ctx, s, r.Run, r.Root, after, w)
	return ending(a, r.Run, out, err)
}
