package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// looker finds what lineage records do not carry.
type looker interface {
	// changed tells how files differ: "edits slug.sh" and "+1 -1".
	changed(ctx context.Context, t session.Tenant, before, after string) (text, right string)
	// printed tells how a command ended: its last line and exit code.
	printed(ctx context.Context, at session.Ref, step run.Path) string
}

// storyLine is one line of a story.
type storyLine struct {
	Depth   int             `json:"depth"`
	Label   string          `json:"label,omitempty"` // of the session, where it changes
	Session session.ID      `json:"session"`
	Version session.Version `json:"version,omitempty"`
	Actor   string          `json:"actor,omitempty"`
	Text    string          `json:"text"`
	Right   string          `json:"right,omitempty"` // "+1 -1"
	style   term.Style
	heading bool
}

// Columns of a story.
const (
	actorColumns = 11
	textColumns  = 36
)

// storyText lays a line out.
func storyText(w *term.Writer, l storyLine) string {
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
	text := term.Line(l.Text, room)
	if l.Right != "" {
		right := term.Line(l.Right, room/2)
		wide := max(min(textColumns-len(indent), room-term.Width(right)-1), 0)
		text = term.Pad(term.Clip(text, wide), wide)
		return left + actor + " " + w.Paint(l.style, text) + " " + right
	}
	return left + actor + " " + w.Paint(l.style, text)
}
