package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

// dumpFormat is the version of dump files that this package writes.
const dumpFormat = 1

// maxLine is the maximum size of a line of a dump: a message of 64 MiB.
const maxLine = 96 << 20

// dumpHead is the first line of a dump.
type dumpHead struct {
	Dump int `json:"rath_dump"`
}

// dumpLine is one message of a dump. Data are base64 in the file.
type dumpLine struct {
	Stream  string              `json:"stream"`
	Seq     uint64              `json:"seq"`
	Subject string              `json:"subject"`
	Time    int64               `json:"time,omitempty"` // Unix microseconds
	Header  map[string][]string `json:"header,omitempty"`
	Data    []byte              `json:"data"`
}

// Writer writes a dump: JSON lines, the first of which identifies the format.
type Writer struct {
	w     *bufio.Writer
	e     *json.Encoder
	begun bool
}

// NewWriter returns a Writer of a dump.
func NewWriter(w io.Writer) *Writer {
	b := bufio.NewWriterSize(w, 256<<10)
	return &Writer{w: b, e: json.NewEncoder(b)}
}

// Write adds a message.
func (w *Writer) Write(m Message) error {
	err := w.begin()
	if err == nil {
		line := dumpLine{Stream: m.Stream, Seq: m.Seq, Subject: m.Subject, Header: m.Header, Data: m.Data}
		if !m.Time.IsZero() {
			line.Time = m.Time.UnixMicro()
		}
		err = w.e.Encode(line)
	}
	if err != nil {
		return fmt.Errorf("audit: write dump: %w", err)
	}
	return nil
}

func (w *Writer) begin() error {
	if w.begun {
		return nil
	}
	w.begun = true
	return w.e.Encode(dumpHead{dumpFormat})
}

// Flush writes buffered data. A dump is incomplete without it.
func (w *Writer) Flush() error {
	err := errors.Join(w.begin(), w.w.Flush())
	if err != nil {
		return fmt.Errorf("audit: write dump: %w", err)
	}
	return nil
}

// ReadDump yields the messages of a dump. It ends after the first error.
func ReadDump(r io.Reader) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		s := bufio.NewScanner(r)
		s.Buffer(make([]byte, 0, 256<<10), maxLine)
		n := 0
		for s.Scan() {
			if n++; n == 1 {
				var head dumpHead
				if err := json.Unmarshal(s.Bytes(), &head); err != nil || head.Dump != dumpFormat {
					yield(Message{}, fmt.Errorf("%w: line 1 is not {\"rath_dump\":%d}: this is no dump that this release reads", ErrInput, dumpFormat))
					return
				}
				continue
			}
			var l dumpLine
			if err := json.Unmarshal(s.Bytes(), &l); err != nil {
				yield(Message{}, fmt.Errorf("%w: dump, line %d: %w", ErrInput, n, err))
				return
			}
			m := Message{Stream: l.Stream, Seq: l.Seq, Subject: l.Subject, Header: l.Header, Data: l.Data}
			if l.Time != 0 {
				m.Time = time.UnixMicro(l.Time)
			}
			if !yield(m, nil) {
				return
			}
		}
		switch err := s.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			yield(Message{}, fmt.Errorf("%w: dump, line %d has more than %d bytes", ErrInput, n+1, maxLine))
		case err != nil:
			yield(Message{}, fmt.Errorf("audit: dump: %w", err))
		case n == 0:
			yield(Message{}, fmt.Errorf("%w: the file is empty: this is no dump", ErrInput))
		}
	}
}
