package view

import (
	"time"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
)

// RecordLine returns one record on a line, cut to the width of a terminal.
func RecordLine(w *term.Writer, r *messages.LineageRecord) string {
	rec := &r.Record
	line := time.UnixMilli(rec.Time).Local().Format("15:04:05.000") + "  " +
		term.Pad(lineage.Short(rec.Session), 9) + " " + term.Pad(string(rec.Kind), 11) + " "
	text := term.Line(rec.Summary, 200)
	if w.Terminal() {
		text = term.Clip(text, max(w.Width()-term.Width(line), 20))
	}
	return w.Dim(line) + text
}
