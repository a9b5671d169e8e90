package selection

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Outcome is the result of the action on one run of a selection, or its preview.
type Outcome struct {
	Run      run.ID     `json:"run,omitempty"`
	Session  session.ID `json:"session,omitempty"` // the target of an action on a session
	Workflow string     `json:"workflow,omitempty"`
	State    run.State  `json:"state,omitempty"` // before the action
	// Action is the action: "cancel". Skipped is the reason for doing nothing.
	Action  string `json:"action,omitempty"`
	Skipped string `json:"skipped,omitempty"`
	Done    bool   `json:"done"`
	Note    string `json:"note,omitempty"` // details of the result
	Error   string `json:"error,omitempty"`
}

// Acted writes the result of the action on one run for programs. People get a remark
// instead.
func Acted(a *app.App, r *messages.RunInfo, action string) error {
	_, err := app.Emit(a, []Outcome{{Run: r.Run, Workflow: r.Workflow, State: r.State, Action: action, Done: true}})
	return err
}

// Verb is the action of a command on each run of a selection.
type Verb struct {
	Name string // "cancel"
	Past string // "asked to stop"
	// Skip returns the reason for skipping a run; "" to act on it.
	Skip func(r *messages.RunInfo) string
	// Plan returns details of the planned action, beyond the name.
	Plan func(r *messages.RunInfo) string
	Do   func(ctx context.Context, r *messages.RunInfo) (note string, err error)
	// Several is set if Do may be called for several runs at the same time.
	Several bool
}

// runsAtOnce bounds the concurrent actions on runs. Each waits for a node that syncs
// its records, several together.
const runsAtOnce = 16

// Each acts on each run of a selection. A single named run that must be skipped is an
// error; of many runs it is skipped.
func Each(ctx context.Context, a *app.App, s *app.System, o *Selection, args []string, v Verb) error {
	runs, err := chosen(ctx, a, s, o, args)
	if err != nil {
		return err
	}
	rows := make([]Outcome, len(runs))
	todo := 0
	for i := range runs {
		r := &runs[i]
		rows[i] = Outcome{Run: r.Run, Workflow: r.Workflow, State: r.State, Action: v.Name, Skipped: v.Skip(r)}
		switch {
		case rows[i].Skipped != "" && o.Where == "":
			return app.Fail(app.ExitConflict, "run %s %s", r.Run, rows[i].Skipped)
		case rows[i].Skipped == "":
			todo++
			if v.Plan != nil {
				rows[i].Note = v.Plan(r)
			}
		}
	}
	if o.DryRun {
		return Tell(a, o, rows, v, todo, true)
	}
	tell := a.Progress()
	d, err := carryOut(ctx, runs, rows, v, o.Where != "", func(done int) {
		tell(fmt.Sprintf("%s: %s of %s", v.Name, excerpt.Thousands(int64(done)), view.Counted(int64(todo), "run")))
	})
	tell("")
	if err != nil {
		return err
	}
	all := len(rows)
	if d.cut > 0 && !a.AsJSON() { // their rows show programs that they are not done
		rows = slices.DeleteFunc(rows[:d.begun], func(r Outcome) bool { return !r.Done && r.Error == "" && r.Skipped == "" })
		next := "the next one may"
		if d.cut > 1 {
			next = fmt.Sprintf("%d further ones may", d.cut)
		}
		a.Remark("ended after %d of %s: %s be %s too, and nothing was done about the others", len(rows), view.Counted(int64(all), "run"), next, v.Past)
	}
	if err := Tell(a, o, rows, v, todo, false); err != nil {
		return err
	}
	if d.cut > 0 {
		return ctx.Err()
	}
	if d.failed > 0 {
		return app.Fail(app.ExitPartial, "%d of %s not %s", d.failed, view.Counted(int64(todo), "run"), v.Past)
	}
	return nil
}

// carriedOut is the progress of an action on runs.
type carriedOut struct {
	begun  int // number of runs reached, in order
	failed int
	cut    int // in progress when the context ended: their outcome is unknown
}

// carryOut acts on the runs in their order, concurrently if the verb allows it, until
// ctx ends. It calls tell with the number of completed actions, by one goroutine at a
// time. With many runs, a failure goes into the row of its run.
func carryOut(ctx context.Context, runs []messages.RunInfo, rows []Outcome, v Verb, many bool, tell func(done int)) (carriedOut, error) {
	var (
		mu   sync.Mutex // guards the variables below
		d    carriedOut
		done int
		fail error
	)
	atOnce := 1
	if v.Several {
		atOnce = runsAtOnce
	}
	room := make(chan struct{}, atOnce)
	var work sync.WaitGroup
	for i := range rows {
		if rows[i].Skipped != "" {
			continue
		}
		room <- struct{}{}
		mu.Lock()
		ends := d.cut > 0 || fail != nil
		mu.Unlock()
		if ends {
			break
		}
		d.begun = i + 1
		work.Go(func() {
			defer func() { <-room }()
			note, err := v.Do(ctx, &runs[i])
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil && !many:
				fail = err
			case err != nil && ctx.Err() != nil:
				d.cut++
			case err != nil:
				rows[i].Error = messages.Text(err)
				d.failed++
			default:
				rows[i].Note, rows[i].Done = note, true
			}
			done++
			tell(done)
		})
	}
	work.Wait()
	return d, fail
}

// Tell prints the results, or the plan if dry is set.
func Tell(a *app.App, o *Selection, rows []Outcome, v Verb, todo int, dry bool) error {
	if ok, err := app.Emit(a, rows); ok {
		return err
	}
	if one := !dry && len(rows) == 1 && o.Where == ""; one {
		a.Remark("run %s %s", rows[0].Run, cmp.Or(rows[0].Note, "is "+v.Past))
		return nil
	}
	if len(rows) == 0 {
		a.Remark("no run is chosen")
		return nil
	}
	shortID := view.ShortIDs(view.IDsOf(rows, func(r *Outcome) run.ID { return r.Run }))
	table := make([][]string, len(rows))
	for i, r := range rows {
		what := r.Note
		switch {
		case r.Skipped != "":
			what = "nothing: it " + r.Skipped
		case r.Error != "":
			what = "FAILED: " + r.Error
		case dry:
			what = strings.TrimRight("would "+v.Name+" "+r.Note, " ")
		case what == "":
			what = v.Past
		}
		table[i] = []string{shortID(r.Run), string(r.State), r.Workflow, term.Line(what, 60)}
	}
	a.Out.Rows([]string{"RUN", "STATE", "WORKFLOW", ""}, table)
	if dry {
		a.Remark("%s would be %s; no change was made", view.Counted(int64(todo), "run"), v.Past)
	}
	return nil
}

// Ended returns why a command skips a run that has ended, and "" for an open one.
func Ended(r *messages.RunInfo) string {
	if r.State.Terminal() {
		return "has ended: " + string(r.State)
	}
	return ""
}
