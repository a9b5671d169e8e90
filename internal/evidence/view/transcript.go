package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
)

// WriteTranscript writes the rows of a session below its numbers. Without full, long
// texts are cut.
func WriteTranscript(w *term.Writer, v *messages.Session, full bool) {
	w.Printf("session  %s:%d  %s, %s", v.Session, v.Version, Counted(int64(v.Total), "row"), UsageText(v.Usage))
	if v.Closed != "" {
		w.Printf(", %s", v.Closed)
		if v.Reason != "" {
			w.Printf(" %q", term.Line(v.Reason, 100))
		}
	}
	w.Println()
	for _, p := range v.Parents {
		w.Printf("from     %s:%d\n", p.Session, p.Version)
	}
	if !v.Placement.Head.IsZero() {
		w.Printf("files    %s in %s", v.Placement.Head.Short(), v.Placement.Backend)
		if v.Placement.Isolation != "" {
			w.Printf(" (%s)", v.Placement.Isolation)
		}
		w.Println()
		if list, err := sandbox.ParseServices(v.Placement.Services); err == nil && len(list) > 0 {
			w.Printf("services")
			for _, s := range list {
				w.Printf(" %s", s.Name)
			}
			w.Println()
		}
	}
	if full || len(v.Chunks) <= mostRows {
		WriteRows(w, v, full)
		return
	}
	first, last := *v, *v
	first.Chunks, last.Chunks = v.Chunks[:firstRows], v.Chunks[len(v.Chunks)-lastRows:]
	WriteRows(w, &first, full)
	w.Println()
	w.Println(w.Dim("... " + Counted(int64(len(v.Chunks)-firstRows-lastRows), "more row") + "; --full shows all, --steps 1.. lists the steps"))
	WriteRows(w, &last, full)
}

// A transcript with more than mostRows rows shows only its first and last ones.
const (
	mostRows  = 40
	firstRows = 3
	lastRows  = 17
)

// WriteRows writes the rows of a session alone.
func WriteRows(w *term.Writer, v *messages.Session, full bool) {
	for i := range v.Chunks {
		row(w, &v.Chunks[i], v.Session, full)
	}
}

// row writes one row of a transcript.
func row(w *term.Writer, c *messages.Chunk, in session.ID, full bool) {
	who := string(c.Kind)
	switch {
	case c.Kind == session.ToolResult:
		who = cmp.Or(c.Name, "tool") + " answers"
	case c.Agent != "":
		who = c.Agent
		if c.Kind == session.User && who != journal.ByWorkspace && who != journal.ByHook {
			who += " sums up"
		}
	}
	at := ""
	if c.Version > 0 {
		at = fmt.Sprintf("%d", c.Version)
		if c.Session != "" && c.Session != in {
			at = lineage.Short(c.Session) + ":" + at
		}
	}
	w.Println()
	w.Println(w.Paint(term.Bold, who) + w.Dim("  "+strings.TrimSpace(at+"  "+when(c))))
	width := w.Width() - 2
	lines := term.Wrap(term.Clean(c.Text), width)
	if c.Text == "" {
		lines = nil
	}
	const shown = 12
	left := 0
	if !full && len(lines) > shown {
		left = len(lines) - shown
		lines = lines[:shown]
	}
	for _, l := range lines {
		w.Println(strings.TrimRight("  "+l, " "))
	}
	if left > 0 {
		w.Println(w.Dim("  ... " + Counted(int64(left), "more line") + "; --full shows them"))
	}
	if c.Truncated {
		w.Println(w.Dim("  ... the text goes on"))
	}
	for _, i := range c.Images {
		for _, l := range term.Wrap("image: "+term.Clean(i.String()), width) {
			w.Println("  " + l)
		}
	}
	for _, call := range c.Calls {
		args := term.Line(call.Args, width-len(call.Name)-4)
		if full {
			args = term.Clean(call.Args)
		}
		w.Println("  " + w.Paint(term.Cyan, "> "+term.Line(call.Name, 60)) + " " + args)
	}
}

// when returns the time and the step of a row.
func when(c *messages.Chunk) string {
	var parts []string
	if c.Time > 0 {
		parts = append(parts, Clock(time.UnixMilli(c.Time)))
	}
	if c.Step != "" {
		parts = append(parts, "step "+c.Step)
	}
	if n := c.Usage.Tokens(); n > 0 {
		parts = append(parts, Counted(n, "token"))
	}
	if c.Failed {
		parts = append(parts, "an error")
	}
	return strings.Join(parts, ", ")
}
