package inspect

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/cmd/rath/internal/follow"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

const (
	// redrawRest is the shortest time between two drawings of a list: a busy fleet
	// changes it many times in a second.
	redrawRest = 250 * time.Millisecond
	// redrawAll is the time after which the list is drawn even without changes: ages
	// grow.
	redrawAll = 10 * time.Second
)

// watchRuns shows a list of runs, and its changes, until it is interrupted.
func watchRuns(ctx context.Context, a *app.App, s *app.System, o *client.RunsOptions) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel(nil)
	at, err := follow.Newest(ctx, s)
	if err != nil {
		return err
	}
	changed := make(chan struct{}, 1)
	group.Go(func() {
		for _, err := range s.Lineage.Tail(ctx, "", at) {
			if err != nil {
				cancel(err)
				return
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})
	shown := map[run.ID]messages.RunInfo{}
	for {
		runs, err := s.Runs.List(ctx, o)
		var names map[string]string
		if err == nil {
			names, err = nodeNames(ctx, s)
		}
		if err == nil {
			var live map[run.ID]*messages.Live // of a list on a terminal
			if a.Out.Terminal() && !a.AsJSON() {
				live = view.LiveNotes(ctx, s.Runs.Live, runs)
			}
			err = redraw(a, runs, names, live, shown)
		}
		if err == nil {
			err = a.Out.Err()
		}
		if err == nil {
			err = rest(ctx, redrawRest)
		}
		if err == nil {
			wait, cancelWait := context.WithTimeout(ctx, redrawAll)
			select {
			case <-changed:
			case <-wait.Done():
			}
			cancelWait()
			err = ctx.Err()
		}
		if err == nil {
			continue
		}
		if cause := context.Cause(ctx); errors.Is(cause, app.ErrInterrupted) || errors.Is(cause, context.Canceled) {
			return app.Silent(app.ExitInterrupted)
		} else if ctx.Err() != nil {
			return cause
		}
		return err
	}
}

// rest waits for d, or less if ctx ends.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// redraw shows runs: all of them on a terminal, else those that changed since shown.
// names are the names of the nodes, and live is the progress of the runs.
func redraw(a *app.App, runs []messages.RunInfo, names map[string]string, live map[run.ID]*messages.Live, shown map[run.ID]messages.RunInfo) error {
	if a.Out.Terminal() && !a.AsJSON() {
		a.Out.Clear()
		a.Out.Println(a.Out.Dim(view.Clock(time.Now()) + "  " + view.Counted(int64(len(runs)), "run")))
		if len(runs) > 0 {
			view.RunTable(a.Out, runs, names, live, false)
		}
		return nil
	}
	shortID := view.ShortIDs(view.RunIDs(runs))
	for i := len(runs) - 1; i >= 0; i-- { // the oldest first, as they came
		r := &runs[i]
		if old, ok := shown[r.Run]; ok && reflect.DeepEqual(old, *r) {
			continue
		}
		shown[r.Run] = *r
		if a.AsJSON() { // a stream is one object per line in either form
			if err := a.WriteLine(r); err != nil {
				return err
			}
			continue
		}
		a.Out.Println(view.ChangedRun(r, names, shortID, time.Now()))
	}
	return nil
}
