// Package term writes text for users. It detects whether the output is a terminal, its
// width and whether to use colours, and it prevents external texts from controlling the
// terminal.
//
// A [Writer] adapts to its output: on a terminal it may use colours and redraw its last
// line, elsewhere it writes plain lines. The package does not depend on sessions and runs.
package term

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/term"
)

// DefaultWidth is the width, in columns, of an output that is not a terminal.
const DefaultWidth = 80

// Options configure a Writer; the zero Options detect the capabilities.
type Options struct {
	// Env looks up environment variables: NO_COLOR, CLICOLOR_FORCE, TERM and
	// COLUMNS. Nil is an empty environment.
	Env func(string) string
	// Color is "auto", "always" or "never"; "" is "auto": as the terminal and
	// the environment say.
	Color string
	// NoHeaders leaves the first line of tables out.
	NoHeaders bool
}

// Writer writes text for users. It is safe for concurrent use.
type Writer struct {
	out      io.Writer
	terminal bool
	color    bool
	headers  bool // tables have them
	wraps    bool // long messages
	width    int

	mu   sync.Mutex
	note string // shown below everything, without a line break
	err  error  // the first one
}

// New returns a Writer to out.
func New(out io.Writer, o *Options) *Writer {
	opt := Options{}
	if o != nil {
		opt = *o
	}
	if opt.Env == nil {
		opt.Env = func(string) string { return "" }
	}
	w := &Writer{out: out, headers: !opt.NoHeaders, width: DefaultWidth}
	dumb := opt.Env("TERM") == "dumb"
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		w.terminal, w.wraps = !dumb, true
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			w.width = n
		}
	} else if n, err := strconv.Atoi(opt.Env("COLUMNS")); err == nil && n > 0 {
		w.width, w.wraps = n, true
	}
	w.width = max(w.width, 40)
	switch opt.Color {
	case "always":
		w.color = true
	case "never":
	default:
		forced := opt.Env("CLICOLOR_FORCE") != "" && opt.Env("CLICOLOR_FORCE") != "0"
		w.color = opt.Env("NO_COLOR") == "" && (forced || w.terminal && opt.Env("CLICOLOR") != "0")
	}
	return w
}

// Terminal reports whether the output is a screen that can be redrawn.
func (w *Writer) Terminal() bool { return w.terminal }

// Width returns the number of columns, at least 40.
func (w *Writer) Width() int { return w.width }

// Message wraps a text to the width of a terminal, or to COLUMNS if it is set. Otherwise it
// returns the text unchanged, for programs.
func (w *Writer) Message(text string) string {
	if !w.wraps {
		return text
	}
	return strings.Join(Wrap(text, w.width), "\n")
}

// Write implements io.Writer. It writes above the note.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hide()
	n, err := w.out.Write(p)
	w.keep(err)
	if err == nil && len(p) > 0 && p[len(p)-1] == '\n' {
		w.show()
	}
	return n, err
}

// Printf writes a formatted text.
func (w *Writer) Printf(format string, args ...any) { fmt.Fprintf(w, format, args...) }

// Println writes its arguments as one line.
func (w *Writer) Println(args ...any) { fmt.Fprintln(w, args...) }

// Note shows some lines below all other output. It replaces the previous note, and ""
// removes it. Lines that are too wide are cut. Note does nothing without a terminal.
func (w *Writer) Note(text string) {
	if !w.terminal {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if text == w.note {
		return
	}
	w.hide()
	w.note = text
	w.show()
}

// Clear clears the screen, for a list that is redrawn. It does nothing without a terminal.
func (w *Writer) Clear() {
	if !w.terminal {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hide()
	_, err := io.WriteString(w.out, "\x1b[H\x1b[2J")
	w.keep(err)
}

// Err returns the first error of the underlying writer.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *Writer) keep(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *Writer) hide() {
	if w.note != "" {
		_, err := io.WriteString(w.out, "\r\x1b[K"+strings.Repeat("\x1b[1A\x1b[K", strings.Count(w.note, "\n")))
		w.keep(err)
	}
}

func (w *Writer) show() {
	if w.note != "" {
		lines := strings.Split(w.note, "\n")
		for i, l := range lines {
			lines[i] = w.Dim(Clip(l, w.width-1))
		}
		_, err := io.WriteString(w.out, strings.Join(lines, "\n"))
		w.keep(err)
	}
}

// Style is a way of drawing attention to a word.
type Style string

// The styles.
const (
	Bold   Style = "1"
	Faint  Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
	Cyan   Style = "36"
)

// Paint returns s in a style, or s itself if colours are off. Pad s before painting: the
// style's control characters have no width.
func (w *Writer) Paint(st Style, s string) string {
	if !w.color || s == "" || st == "" {
		return s
	}
	return "\x1b[" + string(st) + "m" + s + "\x1b[0m"
}

// Dim is Paint in Faint.
func (w *Writer) Dim(s string) string { return w.Paint(Faint, s) }

// Rows writes a table: columns as wide as their widest cell, separated by two spaces, the
// last column cut at the window's width on a terminal. It omits empty headers and those
// that the options exclude. A row with one cell is a line about the row above it, and does
// not affect column widths.
func (w *Writer) Rows(headers []string, rows [][]string) {
	widths := make([]int, 0, 8)
	measure := func(cells []string) {
		for i, c := range cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Width(c))
		}
	}
	if !w.headers {
		headers = nil
	}
	measure(headers)
	for _, r := range rows {
		if len(r) > 1 {
			measure(r)
		}
	}
	line := func(cells []string) string {
		var b strings.Builder
		for i, c := range cells {
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(c)
			if i < len(cells)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-Width(c)))
			}
		}
		text := strings.TrimRight(b.String(), " ")
		if w.terminal {
			text = Clip(text, w.width)
		}
		return text
	}
	if len(headers) > 0 {
		w.Println(w.Dim(line(headers)))
	}
	for _, r := range rows {
		w.Println(line(r))
	}
}
