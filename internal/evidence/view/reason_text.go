package view

import (
	"cmp"
	"fmt"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/run"
)

// WriteReason writes the answer of why.
func WriteReason(w *term.Writer, r *Reason) {
	w.Println(w.Paint(term.Bold, term.Line(r.What, 60)))
	if r.Text != "" {
		writeText(w, r.Text, r.Whole, "")
	}
	w.Println()
	field := func(name, value string) {
		if value != "" {
			w.Println(w.Dim(term.Pad(name, 9)) + term.Clean(value))
		}
	}
	made := r.Agent
	switch {
	case r.Agent != "" && r.Tool != "":
		made += " with " + r.Tool
	case r.Tool != "":
		made = r.Tool
	case made == "":
		made = cmp.Or(r.Actor, "the workflow")
	}
	if r.Call != "" {
		made += ", call " + r.Call
	}
	field("made by", made)
	field("did", didLine(r.Did, w.Width()-10))
	if r.Run != "" {
		text := string(r.Run)
		if r.Workflow != "" {
			text += " of " + r.Workflow
		}
		if r.Step != "" {
			text += ", step " + string(r.Step)
		}
		if r.Attempt > 0 {
			text += fmt.Sprintf(", attempt %d", r.Attempt)
		}
		field("run", text)
	}
	field("model", r.Model)
	if end := journal.FinishText(r.Finish, r.Word); end != "" {
		if r.Code != "" {
			end += "; code " + string(r.Code)
		}
		field("answer", end)
	}
	field("branch", r.Branch)
	field("ended", term.Line(r.Ended, w.Width()-10))
	at := fmt.Sprintf("%s:%d", r.Session, r.Version)
	if r.Version == 0 {
		at = string(r.Session)
	}
	field("version", at)
	field("commit", fmt.Sprintf("%d, %.16s", r.Commit, r.Hash))
	switch {
	case r.Before != "" && r.Before != r.After:
		field("files", fmt.Sprintf("%.12s -> %.12s", r.Before, r.After))
	default:
		field("files", fmt.Sprintf("%.12s", r.After))
	}
	field("when", Moment(r.Time))
	if r.Archived != nil {
		field("archived", fmt.Sprintf("%s; bring it back with: rath cluster import %s", Moment(r.Archived.Time), r.Archived.File))
	}
	if r.Instructions != nil {
		r.Instructions.write(w, r.Whole)
	}
	if r.WaysOn != nil {
		writeWaysOn(w, r.WaysOn)
	}
	if len(r.Changes) > 1 {
		w.Println("\nall changes:")
		shortID := ShortIDs(IDsOf(r.Changes, func(c *FileStep) run.ID { return c.Run }))
		rows := make([][]string, len(r.Changes))
		for i, c := range r.Changes {
			rows[i] = []string{shortID(c.Run), string(c.Step), fmt.Sprintf("+%d -%d", c.Added, c.Removed), didLine(c.Did, 60)}
		}
		w.Rows([]string{"RUN", "STEP", "LINES", ""}, rows)
	}
}
