package follow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Await waits for a run to end, or to stop for a person. It calls person once for each
// run of the tree that waits for a person meanwhile, and held if the task waits for
// room.
func Await(ctx context.Context, s *app.System, f *client.Follower, id run.ID, person, held func(messages.Record)) (Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type end struct {
		result *messages.Result
		err    error
	}
	ended := make(chan end, 1)
	waits := make(chan messages.Record, 1)
	go func() {
		waiting := false
		for u, err := range f.All(ctx) {
			if u.Event != nil && u.Event.Kind == messages.KindHeld && !waiting {
				waiting = true
				waits <- *u.Event
			}
			if u.Result != nil || err != nil {
				ended <- end{u.Result, err}
				return
			}
		}
	}()
	told, quarantined := map[string]bool{}, false
	look := time.After(askedAfter)
	for {
		select {
		case e := <-ended:
			if errors.Is(e.err, context.Canceled) {
				e.err = app.ErrInterrupted
			}
			return Outcome{Result: e.result}, e.err
		case e := <-waits:
			held(e)
			continue
		case <-look:
		}
		look = time.After(askedAgain)
		all, err := questions(ctx, s, id)
		if err != nil {
			continue // asked again
		}
		open := map[string]bool{}
		for _, r := range all {
			if r.Run == id && r.Kind == messages.KindReview {
				cancel()
				<-ended
				return Outcome{Review: &r}, nil
			}
			if r.Kind == "" {
				if r.Reason != "" && !quarantined {
					quarantined = true
					held(r)
				}
				continue
			}
			parts := []string{string(r.Run), r.Asks(), string(r.Step)}
			for _, w := range r.Waits {
				parts = append(parts, string(w.Step))
			}
			key := strings.Join(parts, " ")
			if open[key] = true; !told[key] {
				person(r)
			}
		}
		told = open
	}
}

// questions returns a record for the run, and for each other run below its session that
// waits for a person: the state of the lineage before it was watched. The run's record
// has no kind if it waits for no person, and a reason if it waits for its session to be
// released.
func questions(ctx context.Context, s *app.System, id run.ID) ([]messages.Record, error) {
	r, err := s.Runs.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	below, err := s.Runs.List(ctx, &client.RunsOptions{States: []run.State{run.Waiting, run.NeedsReview}, Where: "under=" + string(r.Session)})
	if err != nil {
		return nil, err
	}
	first := question(&r)
	if r.State == run.Queued && r.Quarantine != "" {
		first.Reason = fmt.Sprintf("its session is quarantined (%s) until %q", term.Line(r.Quarantine, 200), s.Hint("cluster", "release", string(id), "--reason", "TEXT"))
	}
	all := []messages.Record{first}
	for i := range below {
		if rec := question(&below[i]); rec.Run != id && rec.Kind != "" {
			all = append(all, rec)
		}
	}
	return all, nil
}

// question returns the record of a run's wait for a person.
func question(r *messages.RunInfo) messages.Record {
	rec := messages.Record{Run: r.Run, Root: r.Root, Session: r.Session, Workflow: r.Workflow, Waits: r.Waits}
	switch {
	case r.State == run.NeedsReview && r.Review != nil:
		rec.Kind, rec.Step, rec.Code, rec.Reason, rec.Revision = messages.KindReview, r.Review.Step, r.Review.Code, r.Review.Reason, r.Review.Revision
	case r.State == run.Waiting && rec.Asks() != "":
		rec.Kind = messages.KindWaiting
	}
	return rec
}
