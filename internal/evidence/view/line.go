package view

import (
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/session"
)

// Line is one line of a timeline.
type Line struct {
	Depth   int             `json:"depth"`
	Label   string          `json:"label,omitempty"` // of the session, where it changes
	Session session.ID      `json:"session"`
	Version session.Version `json:"version,omitempty"`
	Actor   string          `json:"actor,omitempty"`
	Text    string          `json:"text"`
	Right   string          `json:"right,omitempty"` // "+1 -1"
	acts    []string        // that Text joins
	style   term.Style
	heading bool
}

// Columns of a timeline.
const (
	actorColumns = 11
	textColumns  = 36
)

// LineText lays a line out in the columns of a writer.
func LineText(w *term.Writer, l Line) string {
	width := min(w.Width(), 100)
	indent := strings.Repeat("  ", max(min(l.Depth, 10)-1, 0))
	if l.heading {
		return term.Clip(indent+"  "+l.Label+"  "+term.Line(l.Text, width), width)
	}
	label := term.Pad(l.Label, 3)
	version := "  "
	if l.Version > 0 {
		version = fmt.Sprintf("%2d", l.Version)
	}
	if !strings.HasSuffix(label, " ") && !strings.HasPrefix(version, " ") {
		label += " "
	}
	left := indent + label + version + " "
	actor := term.Pad(term.Line(l.Actor, 24), actorColumns)
	room := width - term.Width(left) - term.Width(actor) - 1
	text := l.did(room)
	if l.Right != "" {
		right := term.Line(l.Right, room/2)
		wide := max(min(textColumns-len(indent), room-term.Width(right)-1), 0)
		text = term.Pad(l.did(wide), wide)
		return left + actor + " " + w.Paint(l.style, text) + " " + right
	}
	return left + actor + " " + w.Paint(l.style, text)
}

// did returns the text on one line of a width. The line has room for two calls with their
// outcomes.
func (l *Line) did(width int) string {
	if len(l.acts) < 2 || term.Width(term.Line(l.Text, width+1)) <= width {
		return didLine(l.Text, width)
	}
	acts := make([]string, len(l.acts))
	for i, act := range l.acts {
		if acts[i] = didLine(act, width/2-1); strings.HasSuffix(acts[i], "…") { // the cut text has no outcome
			acts[i] = act
		}
	}
	return term.Line(strings.Join(acts, ", "), width)
}

// didLine returns the action of a record on one line of a width, with its outcome.
func didLine(s string, width int) string {
	return lineage.Shorten(term.Line(s, max(8*width, 1000)), width, term.Width, term.Clip)
}
