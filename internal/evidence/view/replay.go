package view

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
)

var replayMarks = map[string]string{"matches": "=", "differs": "!", "new": "+", "unreached": "-"}

// WriteReplay writes the steps of a replay, with verify only the steps that differ, and
// returns the verdict.
func WriteReplay(w *term.Writer, r *messages.Replay, verify bool) (verdict string) {
	matched, steps := 0, 0
	open, cut := false, false
	for _, one := range r.Runs {
		if !verify || one.Differs != "" {
			w.Println(w.Paint(term.Bold, replayTitle(&one)))
		}
		var rows [][]string
		matched, steps = matched+one.Omitted, steps+one.Omitted
		for _, s := range one.Steps {
			mark := replayMarks[s.Verdict]
			steps++
			switch {
			case s.Verdict == "matches":
				matched++
			case s.Verdict == "new" && one.Differs == "": // the end of the record
				steps--
				mark = ">"
				open, cut = open || !one.State.Terminal(), cut || one.State.Terminal()
			}
			if verify && s.Verdict == "matches" {
				continue
			}
			text := cmp.Or(s.Asked, s.Recorded)
			switch {
			case s.Input:
				text += ", with another input"
			case s.Verdict == "differs":
				text = s.Recorded + ", the code asks for " + s.Asked
			}
			rows = append(rows, []string{mark, string(s.Path), text, term.Line(s.Summary, 40)})
		}
		if !verify || one.Differs != "" {
			w.Rows(nil, rows)
		}
		if one.Differs != "" {
			w.Println(w.Paint(term.Red, "differs: ") + term.Line(one.Differs, 400))
		}
	}
	word, what, rest := "matches", "step", ""
	switch {
	case !r.Matches:
		word = "differs"
	case open:
		word, what, rest = "matches as far as it went", "recorded step", "; the rest is open"
	case cut:
		word, what, rest = "matches as far as it went", "recorded step", "; there it was cut off"
	}
	return fmt.Sprintf("%s: %s of %s in %s%s", word, excerpt.Thousands(int64(matched)), Counted(int64(steps), what), Counted(int64(len(r.Runs)), "run"), rest)
}

// replayTitle names the run and the revisions of its code.
func replayTitle(r *messages.ReplayedRun) string {
	text := "run " + string(r.Run)
	if r.Branch != "" {
		text = "branch " + r.Branch + " of run " + string(r.BranchOf)
	}
	text += fmt.Sprintf(", %s, %s", r.Workflow, strings.ReplaceAll(string(r.State), "_", " "))
	if recorded := strings.Join(r.Revisions, ", "); recorded != "" && recorded != r.Code {
		text += fmt.Sprintf(", recorded by revision %s, code %s", recorded, cmp.Or(r.Code, "without one"))
	}
	return text
}
