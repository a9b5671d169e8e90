package view

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// impactRows is the maximum number of rows per list without --all.
const impactRows = 20

// WriteImpact writes the impact of the object that text names; without all it writes only
// the beginning of each list.
func WriteImpact(w *term.Writer, text string, o *Impact, all bool) {
	at := fmt.Sprintf("%s:%d", o.Session, o.Version)
	if o.Step != "" {
		at += ", step " + string(o.Step)
	}
	w.Println(w.Paint(term.Bold, term.Line(text, 60)))
	w.Println("  " + term.Line(o.What, w.Width()-2))
	w.Println(w.Dim("  " + at))
	w.Println()
	if len(o.Changed) > 0 {
		writeUses(w, o, all)
	}
	w.Printf("may have touched %s of %s in %s, %s and %s\n", Counted(int64(len(o.Steps)), "step"), Counted(int64(len(o.Runs)), "run"),
		Counted(int64(len(o.Sessions)), "session"), Counted(int64(len(o.Files)), "file"), Counted(int64(len(o.Written)), "note"))
	rows := make([][]string, 0, len(o.Sessions))
	for _, s := range o.Sessions {
		how := "made here"
		if s.Via != "" {
			how = string(s.Via) + " from " + lineage.Short(s.Parent)
			switch s.Via {
			case messages.KindAdopted, messages.KindMerged:
				how = string(s.Via) + " " + lineage.Short(s.Parent)
			case messages.KindTool:
				how = "called " + lineage.Short(s.Parent)
			}
		}
		if s.Name != "" {
			how += " (" + term.Line(s.Name, 30) + ")"
		}
		rows = append(rows, []string{lineage.Short(s.Session), fmt.Sprint(s.From), how, s.State})
	}
	impactTable(w, "session", all, "SESSION", []string{"FROM", "", "STATE"}, rows)
	rows = rows[:0]
	shortID := ShortIDs(IDsOf(o.Runs, func(r *lineage.Touched) run.ID { return r.Run }))
	for _, r := range o.Runs {
		rows = append(rows, []string{shortID(r.Run), string(r.State), r.Workflow, string(r.First), fmt.Sprint(r.Steps)})
	}
	impactTable(w, "run", all, "RUN", []string{"STATE", "WORKFLOW", "FROM", "STEPS"}, rows)
	rows = rows[:0]
	whole := all || len(o.Changed) == 0
	for _, f := range o.Files {
		if !whole {
			break // writeUses has written the changed files
		}
		name := f.Path
		if name == "" {
			name = fmt.Sprintf("%.12s -> %.12s", f.Before, f.After)
		}
		rows = append(rows, []string{term.Line(name, 40), fmt.Sprintf("+%d -%d", f.Added, f.Removed), pathsOf(f.Steps)})
	}
	impactTable(w, "file", all, "FILE", []string{"LINES", "STEPS"}, rows)
	rows = rows[:0]
	for _, r := range o.Written {
		rows = append(rows, []string{term.Line(cmp.Or(r.Name, "memory"), 20), string(r.Step), term.Line(r.Did, 50)})
	}
	for _, r := range o.Recalls {
		rows = append(rows, []string{term.Line(cmp.Or(r.Name, "memory"), 20), string(r.Step), term.Line("may have been found by "+lineage.Short(r.Session)+": "+r.Did, 50)})
	}
	impactTable(w, "note", all, "MEMORY", []string{"STEP", ""}, rows)
	rows = rows[:0]
	for _, s := range o.Steps {
		if !whole {
			break
		}
		rows = append(rows, []string{lineage.Short(s.Session), fmt.Sprint(s.Version), string(s.Step), term.Line(s.Did, max(w.Width()-28, 30))})
	}
	impactTable(w, "step", all, "SESSION", []string{"VERSION", "STEP", ""}, rows)
}

// writeUses writes the files that the step changed, and the later calls that used them.
func writeUses(w *term.Writer, o *Impact, all bool) {
	for _, f := range o.Changed[:min(len(o.Changed), impactRows)] {
		w.Printf("changed  %s +%d -%d\n", term.Line(f.Path, 60), f.Added, f.Removed)
	}
	if more := len(o.Changed) - impactRows; more > 0 {
		w.Printf("changed  %s\n", Counted(int64(more), "more file"))
	}
	if len(o.Uses) == 0 {
		w.Println("no later call is known to have used " + map[bool]string{true: "it", false: "them"}[len(o.Changed) == 1])
	}
	rows := make([][]string, 0, len(o.Uses))
	for i := range o.Uses {
		u := &o.Uses[i]
		rows = append(rows, []string{u.How, term.Line(u.Path, 30), string(u.Step), term.Line(u.Did, max(w.Width()-40, 30))})
	}
	impactTable(w, "use", all, "USE", []string{"FILE", "STEP", ""}, rows)
	rows = rows[:0]
	for i := range o.Commands {
		c := &o.Commands[i]
		rows = append(rows, []string{string(c.Step), term.Line(c.Did, max(w.Width()-20, 30))})
	}
	impactTable(w, "command", all, "MAY HAVE READ", []string{""}, rows)
	w.Println()
}

// impactTable writes a non-empty table after an empty line; without all it writes only the
// beginning.
func impactTable(w *term.Writer, noun string, all bool, first string, headers []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	more := len(rows) - impactRows
	if all || more < 2 {
		more = 0
	}
	w.Println()
	w.Rows(append([]string{first}, headers...), rows[:len(rows)-more])
	if more > 0 {
		w.Println(w.Dim("... " + Counted(int64(more), "more "+noun) + "; --all shows them"))
	}
}

func pathsOf(steps []run.Path) string {
	var out []string
	for _, s := range steps[:min(len(steps), 4)] {
		out = append(out, string(s))
	}
	if len(steps) > 4 {
		out = append(out, fmt.Sprintf("%d more", len(steps)-4))
	}
	return strings.Join(out, ", ")
}
