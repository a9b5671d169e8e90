package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// selectTopic documents the language of --where.
func selectTopic() string {
	var b strings.Builder
	b.WriteString(`--where takes conditions about runs, joined with and, or, not and parentheses:

  state=failed and tool=run_shell_command
  under=7f3a and not agent=critic
  state in (queued, waiting) and older=2h

A condition asks something of a whole run, and one that could have several
answers holds if one of them fits: tool=grep means that some step called grep,
tool!=grep that none did. A star stands for any text; values with other signs
than letters, digits and _ - . : / @ * + stand between quotes. Runs and sessions
may be abbreviated, or named as everywhere: "@last". The fields:

`)
	longest := 0
	for _, f := range lineage.SelectorFields() {
		longest = max(longest, len(f.Name))
	}
	for _, f := range lineage.SelectorFields() {
		doc := f.Doc
		if f.Name == "state" {
			doc += "; or status"
		}
		for i, l := range term.Wrap(doc, 76-longest) {
			name := ""
			if i == 0 {
				name = f.Name
			}
			b.WriteString("  " + term.Pad(name, longest+2) + l + "\n")
		}
	}
	return b.String()
}

// selection is the choice of the runs that a command is for: one by its name,
// or all that a selector chooses.
type selection struct {
	where string
	dry   bool
}

func (o *selection) flags(fs *pflag.FlagSet) {
	fs.StringVar(&o.where, "where", "", `the runs that this chooses, such as 'tool=grep and state=failed'; see "help where"`)
	fs.BoolVar(&o.dry, "dry-run", false, "say what would be done, and do nothing")
}

// args takes one name, or none with --where.
func (o *selection) args(cmd *cobra.Command, args []string) error {
	switch {
	case o.where != "" && len(args) > 0:
		return usage(cmd, errors.New("give a run or --where, not both"))
	case o.where == "" && len(args) != 1:
		return usage(cmd, errors.New("give one run, or --where"))
	}
	return nil
}

// selector reads --where, with whole ids for those that it abbreviates.
func (a *app) selector(ctx context.Context, s *system, where string) (*lineage.Selector, error) {
	sel, err := lineage.ParseSelector(where)
	if e, ok := errors.AsType[*lineage.SelectorError](err); ok {
		found := "the end"
		if e.Found != "" {
			found = fmt.Sprintf("%q", term.Line(e.Found, 40))
		}
		return nil, fail(exitUsage, "--where: want %s, found %s:\n  %s", e.Want, found, strings.ReplaceAll(e.Caret(a.err.Width()-2), "\n", "\n  "))
	}
	if err != nil {
		return nil, err
	}
	return sel.Bind(func(field, value string) (string, error) {
		n, err := s.resolve(ctx, value)
		switch {
		case err != nil:
			return "", fmt.Errorf("--where: %s=%s: %w", field, value, err)
		case n.version != 0 && n.run == nil:
			return "", fail(exitUsage, "--where: %s=%s: a selector chooses by sessions, not by versions", field, value)
		case (field == "run" || field == "parent") && n.run == nil:
			return "", fail(exitNotFound, "--where: %s=%s: that is a session, not a run", field, value)
		case field == "run" || field == "parent":
			return string(n.run.Run), nil
		case n.run != nil:
			return string(n.run.Session), nil
		}
		return string(n.session), nil
	})
}

// chosen returns the runs of a selection, the newest first.
func (a *app) chosen(ctx context.Context, s *system, o *selection, args []string) ([]messages.RunInfo, error) {
	if o.where == "" {
		r, err := s.runOf(ctx, args[0])
		return []messages.RunInfo{r}, err
	}
	sel, err := a.selector(ctx, s, o.where)
	if err != nil {
		return nil, err
	}
	return s.Runs(ctx, &client.RunsOptions{Where: sel.String()})
}

// done is what was done about one run of a selection, or would be.
type done struct {
	Run      run.ID     `json:"run,omitempty"`
	Session  session.ID `json:"session,omitempty"` // where it was done about a session
	Workflow string     `json:"workflow,omitempty"`
	State    run.State  `json:"state,omitempty"` // before
	// Action is what is done: "cancel". Skipped says why nothing is.
	Action  string `json:"action,omitempty"`
	Skipped string `json:"skipped,omitempty"`
	Done    bool   `json:"done"`
	Note    string `json:"note,omitempty"` // what came of it
	Error   string `json:"error,omitempty"`
}

// acted writes for programs what was done about one run. People are told of it by
// a remark.
func (a *app) acted(r *messages.RunInfo, action string) error {
	_, err := emit(a, []done{{Run: r.Run, Workflow: r.Workflow, State: r.State, Action: action, Done: true}})
	return err
}

// verb is what a command does about each run of a selection.
type verb struct {
	name string // "cancel"
	past string // "asked to stop"
	// skip says why there is nothing to do about a run; "" if there is.
	skip func(r *messages.RunInfo) string
	// plan says what would be done, beyond the name.
	plan func(r *messages.RunInfo) string
	do   func(ctx context.Context, r *messages.RunInfo) (note string, err error)
}

// each does something about each run of a selection. One run that was named,
// and about which nothing can be done, is an error; of many it is skipped.
func (a *app) each(ctx context.Context, s *system, o *selection, args []string, v verb) error {
	runs, err := a.chosen(ctx, s, o, args)
	if err != nil {
		return err
	}
	rows := make([]done, len(runs))
	todo := 0
	for i := range runs {
		r := &runs[i]
		rows[i] = done{Run: r.Run, Workflow: r.Workflow, State: r.State, Action: v.name, Skipped: v.skip(r)}
		switch {
		case rows[i].Skipped != "" && o.where == "":
			return fail(exitConflict, "run %s %s", r.Run, rows[i].Skipped)
		case rows[i].Skipped == "":
			todo++
			if v.plan != nil {
				rows[i].Note = v.plan(r)
			}
		}
	}
	if o.dry {
		return a.tellDone(o, rows, v, todo, true)
	}
	failed := 0
	for i := range rows {
		if rows[i].Skipped != "" {
			continue
		}
		note, err := v.do(ctx, &runs[i])
		switch {
		case err != nil && o.where == "":
			return err
		case err != nil:
			rows[i].Error = messages.Text(err)
			failed++
		default:
			rows[i].Note, rows[i].Done = note, true
		}
	}
	if err := a.tellDone(o, rows, v, todo, false); err != nil {
		return err
	}
	if failed > 0 {
		return fail(exitPartial, "%d of %s not %s", failed, view.Counted(int64(todo), "run"), v.past)
	}
	return nil
}

// tellDone tells what was done, or would be.
func (a *app) tellDone(o *selection, rows []done, v verb, todo int, dry bool) error {
	if ok, err := emit(a, rows); ok {
		return err
	}
	if one := !dry && len(rows) == 1 && o.where == ""; one {
		a.remark("run %s %s", rows[0].Run, cmp.Or(rows[0].Note, "is "+v.past))
		return nil
	}
	if len(rows) == 0 {
		a.remark("no run is chosen")
		return nil
	}
	shortID := view.ShortIDs(view.IDsOf(rows, func(r *done) run.ID { return r.Run }))
	table := make([][]string, len(rows))
	for i, r := range rows {
		what := r.Note
		switch {
		case r.Skipped != "":
			what = "nothing: it " + r.Skipped
		case r.Error != "":
			what = "FAILED: " + r.Error
		case dry:
			what = strings.TrimRight("would "+v.name+" "+r.Note, " ")
		case what == "":
			what = v.past
		}
		table[i] = []string{shortID(r.Run), string(r.State), r.Workflow, term.Line(what, 60)}
	}
	a.out.Rows([]string{"RUN", "STATE", "WORKFLOW", ""}, table)
	if dry {
		a.remark("%s would be %s; nothing was done", view.Counted(int64(todo), "run"), v.past)
	}
	return nil
}
