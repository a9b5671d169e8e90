package view

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// nodeColumns is the maximum width of a node's name in a table of runs, so that a row
// fits in 80 columns.
const nodeColumns = 8

// NodeOf returns the name of the node that a run is on, or ended on: waiting and queued
// runs have none. For a node without a known name it is the beginning of the incarnation.
// Long names lose their beginnings, which the pods of a fleet share.
func NodeOf(r *messages.RunInfo, names map[string]string) string {
	name, named := names[r.Node]
	switch {
	case r.Node == "", r.State != run.Running && !r.State.Terminal():
		return "-"
	case !named:
		return r.Node[:min(len(r.Node), nodeColumns)]
	case len(name) > nodeColumns: // an id, which is ASCII
		return "…" + name[len(name)-nodeColumns+1:]
	}
	return name
}

// noteColumns is the maximum width of a run's note in its row.
const noteColumns = 60

// RunTable writes runs; names are the names of the nodes, and live is the current status
// of some of the runs. With below, a note that the window would cut off has a line of its
// own.
func RunTable(w *term.Writer, runs []messages.RunInfo, names map[string]string, live map[run.ID]*messages.Live, below bool) {
	now := time.Now()
	shortID := ShortIDs(RunIDs(runs))
	rows := make([][]string, len(runs))
	notes := make([]string, len(runs))
	for i := range runs {
		r := &runs[i]
		rows[i] = []string{
			shortID(r.Run), string(r.State), r.Workflow, lineage.Short(r.Session), NodeOf(r, names), fmt.Sprint(r.Steps), excerpt.Thousands(r.Usage.Tokens()),
			Age(now, time.UnixMilli(r.Submitted)),
		}
		notes[i] = NoteNow(r, live[r.Run], shortID)
	}
	width := math.MaxInt
	if below {
		width = w.Width()
	}
	headers := []string{"RUN", "STATE", "WORKFLOW", "SESSION", "NODE", "STEPS", "TOKENS", "AGE", ""}
	w.Rows(headers, withNotes(headers, rows, notes, width))
}

// withNotes adds a note to each row, or all notes below their rows if the window is too
// narrow for one of them.
func withNotes(headers []string, rows [][]string, notes []string, width int) [][]string {
	taken := 0
	for column := range headers[:len(headers)-1] {
		widest := term.Width(headers[column])
		for _, r := range rows {
			widest = max(widest, term.Width(r[column]))
		}
		taken += widest + 2
	}
	below := slices.ContainsFunc(notes, func(n string) bool { return taken+term.Width(term.Line(n, noteColumns)) > width })
	var out [][]string
	for i, r := range rows {
		switch {
		case !below:
			out = append(out, append(slices.Clone(r), term.Line(notes[i], noteColumns)))
		case notes[i] == "":
			out = append(out, append(slices.Clone(r), ""))
		default:
			out = append(out, append(slices.Clone(r), ""), []string{"  " + term.Line(notes[i], width-2)})
		}
	}
	return out
}

// RunIDs returns the ids in a table of runs.
func RunIDs(runs []messages.RunInfo) []run.ID {
	var ids []run.ID
	for i := range runs {
		ids = append(ids, runs[i].Run)
		if runs[i].Behind != "" {
			ids = append(ids, runs[i].Behind)
		}
		if runs[i].BranchOf != nil {
			ids = append(ids, runs[i].BranchOf.Run)
		}
	}
	return ids
}

// NoteNow returns a run's current activity, else its note.
func NoteNow(r *messages.RunInfo, l *messages.Live, shortID func(run.ID) string) string {
	if l == nil || len(r.Status) > 0 || r.Quarantine != "" || r.Behind != "" || r.Cancelled {
		return RunNote(r, shortID)
	}
	text := LiveNote(l)
	switch {
	case text == "":
		return RunNote(r, shortID)
	case r.Branch != "":
		return "branch " + r.Branch + ": " + text
	}
	return text
}

// StatusText returns the progress that a run's workflow reported last, "" without one.
func StatusText(r *messages.RunInfo) string {
	var text string
	if json.Unmarshal(r.Status, &text) == nil {
		return text
	}
	return string(r.Status)
}

// RunNote returns the exceptional property of a run.
func RunNote(r *messages.RunInfo, shortID func(run.ID) string) string {
	switch {
	case r.Quarantine != "":
		return "quarantined: " + r.Quarantine
	case r.Behind != "":
		return "waits for " + shortID(r.Behind)
	case r.Review != nil:
		return r.Review.Reason
	case r.State == run.Waiting && len(r.Waits) > 0:
		return r.Waits[0].String()
	case len(r.Waits) > 0 && r.State == run.Queued:
		text := "waits " + r.Waits[0].String()
		if n := len(r.Waits) - 1; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		return text
	case r.State.Terminal():
		return cleanupNote(r, reasonOf(r), shortID)
	case r.Cancelled:
		return "is asked to stop"
	case len(r.Status) > 0:
		return StatusText(r)
	case r.Attempt > 1 && r.BranchOf == nil:
		return fmt.Sprintf("attempt %d", r.Attempt)
	case r.Branch != "":
		return "branch " + r.Branch + " of " + shortID(r.BranchOf.Run)
	}
	return r.Reason
}

// cleanupNote adds the state of a run's compensations to the reason of its end, and the
// remedy after a failure.
func cleanupNote(r *messages.RunInfo, reason string, shortID func(run.ID) string) string {
	of, cleans := run.CleanedBy(r.Run)
	switch {
	case cleans && r.State != run.Succeeded:
		reason += "; compensations of run " + shortID(of) + " are left, continue with: rath resume " + string(r.Run)
	case r.Cleanup == "":
	case r.CleanupState.Terminal() && r.CleanupState != run.Succeeded:
		reason += "; its cleanup run " + string(r.Cleanup) + " " + r.CleanupState.Past() + ", continue it with: rath resume " + string(r.Cleanup)
	default:
		reason += "; its cleanup run " + string(r.Cleanup) + " " + strings.ReplaceAll(string(r.CleanupState), "_", " ")
	}
	return strings.TrimPrefix(reason, "; ")
}

// reasonOf returns the reason of a run's end, worded like other errors.
func reasonOf(r *messages.RunInfo) string {
	if r.Reason == "" {
		return ""
	}
	return messages.Text(errors.New(r.Reason))
}

// ChangedRun returns the line of a new or changed run.
func ChangedRun(r *messages.RunInfo, names map[string]string, shortID func(run.ID) string, now time.Time) string {
	line := fmt.Sprintf("%s  %s %s %s %s %s", Clock(now), term.Pad(shortID(r.Run), 12), term.Pad(string(r.State), 12),
		term.Pad(term.Line(r.Workflow, 12), 12), term.Pad(lineage.Short(r.Session), 9), term.Pad(NodeOf(r, names), nodeColumns))
	return strings.TrimRight(term.Clip(fmt.Sprintf("%s %s", line, term.Line(RunNote(r, shortID), 60)), 120), " ")
}

// RunLine writes the status of a run.
func RunLine(w *term.Writer, r *messages.RunInfo) {
	w.Printf("run      %s of %s, %s", r.Run, cmp.Or(r.Workflow, "no workflow"), r.State)
	if r.State == run.NeedsReview && r.Due > 0 {
		w.Printf(" until %s", Moment(time.UnixMilli(r.Due)))
	}
	if more := RunNote(r, func(id run.ID) string { return string(id) }); more != "" {
		if !strings.HasPrefix(more, "for ") { // not a wait
			w.Printf(":")
		}
		w.Printf(" %s", term.Line(more, 200))
	}
	w.Println()
	switch {
	case r.StartedBy != nil:
		w.Printf("by       step %s of run %s, which started it; see: rath show %s\n", r.StartedBy.Step, r.StartedBy.Run, r.StartedBy.Run)
	case r.By == "" || r.By == messages.UserAnonymous && r.Via == "" || r.BranchOf != nil:
	default:
		w.Println("by       " + term.Line(journal.Submitter(r.By, r.Via, r.Says), 200))
	}
	if n := len(r.Starts); n > 0 {
		names := r.Starts[:min(n, 4)]
		text := fmt.Sprint(names)
		if n > len(names) {
			text = fmt.Sprintf("%s and %d more", text, n-len(names))
		}
		w.Println("starts   " + term.Line(strings.Trim(text, "[]"), 200))
	}
	if len(r.Status) > 0 {
		w.Println("status   " + term.Line(StatusText(r), 200))
	}
	if len(r.Tags) > 0 {
		w.Println("tags     " + r.Tags.String())
	}
	for _, text := range r.Warnings {
		w.Println("warning  " + term.Line(text, 200))
	}
}
