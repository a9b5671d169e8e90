package view

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// WayOn is a command with which the work of a run that ended without success continues.
type WayOn struct {
	Command string        `json:"command"`
	Step    run.Path      `json:"step,omitempty"` // of a resumption
	Kept    session.Usage `json:"kept,omitzero"`  // of the records that stand
	Again   session.Usage `json:"again,omitzero"` // if it takes as much as the run did
	Calls   string        `json:"calls,omitempty"`
	Next    run.ID        `json:"next,omitempty"` // the run that continues it already
	Refused string        `json:"refused,omitempty"`
}

// WaysOn returns the ways on of a run with a home session; none for a run that is open or
// succeeded, and for a branch. The graph has the tree of the session.
func (rs *Records) WaysOn(ctx context.Context, g *lineage.Graph, home session.ID, info *messages.RunInfo) []WayOn {
	if !info.State.Terminal() || info.State == run.Succeeded || info.BranchOf != nil {
		return nil
	}
	if next := g.Continuation(rs.Tenant, info.Run); next != "" {
		return []WayOn{{Command: "rath why " + string(next), Next: next}}
	}
	resume, rerun := WayOn{Command: "rath resume " + string(info.Run)}, WayOn{Command: "rath session rerun " + string(info.Run)}
	w, err := journal.NewValues(rs.Log).WaysOn(ctx, session.Key{Tenant: rs.Tenant, ID: home}, info.Run)
	if err == nil {
		err = w.Refused
		resume.Step, resume.Kept, resume.Again = w.Step, w.Kept, w.Again
		rerun.Again = w.Kept.Add(w.Again)
		if len(w.Done) > 0 {
			rerun.Command += " --repeat"
			rerun.Calls = journal.ListCalls(w.Done)
		}
	}
	if err != nil {
		resume.Refused = messages.Text(err)
	}
	if _, cleanup := run.CleanedBy(info.Run); cleanup {
		return []WayOn{resume}
	}
	return []WayOn{resume, rerun}
}

// writeWaysOn writes the ways on of a run, two lines for each.
func writeWaysOn(w *term.Writer, all []WayOn) {
	w.Println("\nways on:")
	indented := func(text string) {
		for _, l := range term.Wrap(term.Clean(text), w.Width()-4) {
			w.Println("    " + l)
		}
	}
	for _, one := range all {
		w.Println("  " + w.Paint(term.Bold, one.Command))
		switch {
		case one.Next != "":
			indented(fmt.Sprintf("run %s continues it already", one.Next))
		case one.Refused != "":
			indented("not possible: " + one.Refused)
		case one.Step != "":
			indented(fmt.Sprintf("from step %s: keeps %s, and makes about %s again", one.Step, priced(one.Kept), priced(one.Again)))
		default:
			indented(fmt.Sprintf("from the start: makes about %s", priced(one.Again)))
		}
		if one.Calls != "" {
			indented("repeats " + one.Calls)
		}
	}
}

// priced describes a usage with its price.
func priced(u session.Usage) string {
	if u.Calls == 0 {
		return "no model call"
	}
	text := UsageText(u)
	if u.MicroUSD > 0 {
		text += fmt.Sprintf(", %d.%06d USD", u.MicroUSD/1_000_000, u.MicroUSD%1_000_000)
	}
	return text
}
