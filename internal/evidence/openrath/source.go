package openrath

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/session"
)

// MaxSource is the maximum size of a source in bytes.
const MaxSource = 256 << 10

// sourced is a record of a source.
type sourced struct {
	Line string `json:"line"` // of the file, without its end
	Rows int    `json:"rows"` // number of rows before it
	Type string `json:"type"` // of the record, as JSON
}

// Source returns the data of the file that are not in its chunks, for [Restore]: its
// header and trailer, records of unknown types, and rows with more data than their chunk.
// left is the number of records omitted because of MaxSource. Source fails with
// ErrFormat if the header does not fit.
func (f *File) Source() (source string, left int, err error) {
	all := []sourced{{f.Header.record(), 0, typeHeader}}
	if f.Trailer != nil {
		all = append(all, sourced{f.Trailer.record(len(f.Rows)), len(f.Rows), typeTrailer})
	}
	for _, o := range f.Other {
		all = append(all, sourced{o.JSON, o.Rows, text(o.Type)})
	}
	for i, r := range f.Rows {
		if line := r.record(i); line != (Row{Chunk: r.Chunk}).record(i) {
			all = append(all, sourced{line, i, typeChunk})
		}
	}
	var b strings.Builder
	for _, r := range all {
		line, err := json.Marshal(r)
		if err != nil {
			return "", 0, fmt.Errorf("openrath: %w", err)
		}
		if b.Len()+len(line) >= MaxSource {
			if r.Type == typeHeader {
				return "", 0, fmt.Errorf("%w: a header of %d bytes, at most %d are kept", ErrFormat, len(r.Line), MaxSource)
			}
			left++
			continue
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String(), left, nil
}

// Restore returns the file that a source and the chunks of s came from, byte for byte if
// it was complete and had the separators of the format. Later chunks become further rows;
// the file then has no trailer, because the session was continued.
func Restore(source string, s session.Session) ([]byte, error) {
	var header, trailer string
	var others []sourced
	rows := map[int]string{}
	for line := range strings.Lines(source) {
		var r sourced
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("openrath: source of session %s: %w", s.Key(), err)
		}
		switch r.Type {
		case typeHeader:
			header = r.Line
		case typeTrailer:
			if r.Rows == s.Len() {
				trailer = r.Line
			}
		case typeChunk:
			rows[r.Rows] = r.Line
		default:
			others = append(others, r)
		}
	}
	if header == "" {
		return nil, fmt.Errorf("openrath: source of session %s: %w: no header", s.Key(), ErrFormat)
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, header)
	for i, c := range s.Chunks() {
		for len(others) > 0 && others[0].Rows <= i {
			fmt.Fprintln(&b, others[0].Line)
			others = others[1:]
		}
		line, ok := rows[i]
		if !ok {
			line = Row{Chunk: c}.record(i)
		}
		fmt.Fprintln(&b, line)
	}
	for _, o := range others {
		fmt.Fprintln(&b, o.Line)
	}
	if trailer != "" {
		fmt.Fprintln(&b, trailer)
	}
	return b.Bytes(), nil
}
