package exchange

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// errFrameSize is returned for an event beyond the limit.
var errFrameSize = errors.New("an event of the stream is too large")

var done = []byte("[DONE]")

// events reads a stream of server-sent events as servers write them. It accepts
// comments, other fields, byte order marks and all line ends, and joins several data
// lines. It separates events without a blank line between them at the end of their
// JSON. A last event without a line end counts if it is complete.
type events struct {
	r   *bufio.Reader
	max int

	out    []byte // events read and not yet returned, each with a line end
	store  []byte // whose end out is
	line   []byte
	data   []byte
	event  string
	begun  bool
	has    bool // data is a partial event
	depth  int  // of the open objects and lists in data
	quoted bool // data ends within a string, escaped behind a backslash in it
	escape bool
	broken bool // data is no event, whatever lines follow
	skipLF bool // the last line ended in CR
	err    error
}

func newEvents(src io.Reader, limit int) *events {
	return &events{r: bufio.NewReaderSize(src, 16<<10), max: limit}
}

// Next returns the data of the next event, which has no line end. The data are valid
// until the next call of Next.
func (s *events) Next() ([]byte, error) {
	for len(s.out) == 0 {
		if s.err != nil {
			return nil, s.err
		}
		s.out = s.store[:0]
		s.next()
		s.store = s.out[:0]
	}
	raw, rest, _ := bytes.Cut(s.out, []byte("\n"))
	s.out = rest
	return raw, nil
}

// next reads one line.
func (s *events) next() {
	err := s.readLine()
	if err == nil || len(s.line) > 0 {
		s.take(s.line)
	}
	if err == nil {
		return
	}
	if s.has && !s.whole() && err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if s.has && s.whole() {
		s.dispatch()
	}
	s.err = err
}

// readLine reads up to CR, LF or CRLF into s.line.
func (s *events) readLine() error {
	s.line = s.line[:0]
	for {
		if _, err := s.r.Peek(1); err != nil {
			return err
		}
		chunk, _ := s.r.Peek(s.r.Buffered())
		if s.skipLF {
			s.skipLF = false
			if chunk[0] == '\n' {
				_, _ = s.r.Discard(1)
				continue
			}
		}
		i := bytes.IndexAny(chunk, "\r\n")
		end := i >= 0
		if !end {
			i = len(chunk)
		}
		if len(s.line)+i+len(s.data) > s.max {
			return errFrameSize
		}
		s.line = append(s.line, chunk[:i]...)
		if end {
			s.skipLF = chunk[i] == '\r'
			i++
		}
		_, _ = s.r.Discard(i)
		if end {
			return nil
		}
	}
}

func (s *events) take(line []byte) {
	if !s.begun {
		s.begun = true
		line = bytes.TrimPrefix(line, []byte("\uFEFF"))
	}
	if len(line) == 0 {
		s.dispatch()
		return
	}
	if line[0] == '{' {
		// A server or proxy wrote an error into the stream, without "data:".
		s.add(line)
		return
	}
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "data":
		s.add(value)
	case "event":
		s.event = string(value)
	}
}

func (s *events) add(value []byte) {
	if s.has {
		if s.whole() {
			s.dispatch()
		} else {
			// A line break is white space between JSON tokens, and an error
			// inside a string in any case.
			s.append([]byte{' '})
		}
	}
	s.has = true
	s.append(value)
}

// append adds value to the data and tracks the open parts of its JSON.
func (s *events) append(value []byte) {
	s.data = append(s.data, value...)
	for _, c := range value {
		switch {
		case s.escape:
			s.escape = false
		case s.quoted:
			s.escape, s.quoted = c == '\\', c != '"'
		case c == '"':
			s.quoted = true
		case c == '{' || c == '[':
			s.depth++
		case c == '}' || c == ']':
			s.depth--
		}
	}
}

// whole reports whether the data could be an event. Data of many lines is checked once,
// when no part of its JSON is open any more: if it is no event then, it never becomes
// one.
func (s *events) whole() bool {
	if s.broken || s.depth > 0 || s.quoted {
		return false
	}
	d := bytes.TrimSpace(s.data)
	s.broken = len(d) > 0 && !bytes.Equal(d, done) && !json.Valid(d)
	return len(d) > 0 && !s.broken
}

func (s *events) dispatch() {
	d := bytes.TrimSpace(s.data)
	if s.has && len(d) > 0 {
		if s.event == "error" && !bytes.Equal(d, done) {
			s.out = append(s.out, `{"error": `...)
			if json.Valid(d) {
				s.out = append(s.out, d...)
			} else if text, err := json.Marshal(string(d)); err == nil {
				s.out = append(s.out, text...)
			}
			s.out = append(s.out, '}')
		} else {
			s.out = append(s.out, d...)
		}
		s.out = append(s.out, '\n')
	}
	s.has, s.data, s.event = false, s.data[:0], ""
	s.depth, s.quoted, s.escape, s.broken = 0, false, false, false
}
