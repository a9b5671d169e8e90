package term

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestScreen: a page is one write that overwrites the previous one without clearing it
// first, cut to the terminal's size; Close restores the previous contents.
func TestScreen(t *testing.T) {
	var out bytes.Buffer
	w := New(&out, nil)
	w.terminal = true
	s := w.Screen()
	if got := out.String(); got != "\x1b[?1049h\x1b[?25l\x1b[2J" {
		t.Errorf("it begins with %q", got)
	}
	out.Reset()
	must.Do(t, s.Draw(func(w *Writer) {
		w.Rows(nil, [][]string{{"a", strings.Repeat("x", 100)}})
		for range 40 {
			w.Println("line")
		}
	}))
	text, ok := strings.CutPrefix(out.String(), "\x1b[H")
	text, end := strings.CutSuffix(text, "\x1b[K\x1b[J")
	lines := strings.Split(text, "\x1b[K\r\n")
	if !ok || !end || len(lines) != 24 || Width(lines[0]) != DefaultWidth || lines[23] != "and 18 lines more" {
		t.Errorf("%d lines: %q", len(lines), out.String())
	}
	out.Reset()
	s.Close()
	if got := out.String(); got != "\x1b[?25h\x1b[?1049l" {
		t.Errorf("it ends with %q", got)
	}
}
