package term

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Screen draws repeatedly on the whole screen of a terminal. Close restores the previous
// contents. It is not safe for concurrent use.
type Screen struct{ w *Writer }

// Screen takes over the screen of a Writer to a terminal, which must print nothing else
// until Close.
func (w *Writer) Screen() *Screen {
	s := &Screen{w}
	s.put("\x1b[?1049h\x1b[?25l\x1b[2J")
	return s
}

// Draw writes a page in a single write, to avoid flicker. It queries the terminal's size
// each time and cuts the page to it.
func (s *Screen) Draw(page func(*Writer)) error {
	width, height := s.w.width, 24
	if f, ok := s.w.out.(*os.File); ok {
		if c, r, err := term.GetSize(int(f.Fd())); err == nil && c > 0 && r > 0 {
			width, height = c, r
		}
	}
	var text bytes.Buffer
	page(&Writer{out: &text, color: s.w.color, headers: s.w.headers, width: width, terminal: true})
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	if len(lines) > height {
		lines = append(lines[:height-1], fmt.Sprintf("and %d lines more", len(lines)-height+1))
	}
	s.put("\x1b[H" + strings.Join(lines, "\x1b[K\r\n") + "\x1b[K\x1b[J")
	return s.w.Err()
}

// Close gives the screen back.
func (s *Screen) Close() { s.put("\x1b[?25h\x1b[?1049l") }

func (s *Screen) put(text string) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	_, err := io.WriteString(s.w.out, text)
	s.w.keep(err)
}
