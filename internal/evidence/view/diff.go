package view

import (
	"strings"

	"github.com/rathcluster/rath/internal/platform/term"
)

// WriteDiff writes a diff: unchanged for programs, coloured and without control sequences
// on a terminal.
func WriteDiff(w *term.Writer, text string) {
	if !w.Terminal() {
		w.Printf("%s", text)
		return
	}
	for line := range strings.Lines(text) {
		line = term.Clean(strings.TrimSuffix(line, "\n"))
		style := term.Style("")
		switch {
		case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "diff "):
			style = term.Bold
		case strings.HasPrefix(line, "+"):
			style = term.Green
		case strings.HasPrefix(line, "-"):
			style = term.Red
		case strings.HasPrefix(line, "@@"):
			style = term.Cyan
		}
		w.Println(w.Paint(style, line))
	}
}
