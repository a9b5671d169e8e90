// Package openrath reads and writes the session files of OpenRath: JSON lines
// with a header, one record per chunk, and a trailer once the session was
// closed (schema 1).
//
// Reading is more lenient than OpenRath's own loader: lines end at a line feed
// only, a second header after a crash is accepted, a truncated last line is
// dropped, and unknown records, kinds and fields are kept. Writing is strict:
// the fields of the format in their order, with the same separators. Line
// separators inside texts are escaped, because OpenRath's loader would break a
// line at them.
//
// The package handles files and values. It neither opens sandboxes nor writes to
// a log: to import a file, record the chunks of [File.Session] and, beside them,
// the [File.Source], from which [Restore] makes the file again.
package openrath

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/rathcluster/rath/session"
)

// Schema is the schema of the files that this package reads and writes.
const Schema = 1

// Partial is the suffix of the name of a file that is not closed.
const Partial = ".__partial__"

var (
	// ErrNewer is returned for a file of a later schema.
	ErrNewer = errors.New("openrath: file of a later schema")
	// ErrFormat is returned for a file that is not a session file, or is damaged
	// in its middle.
	ErrFormat = errors.New("openrath: not a session file")
)

// File is a session file.
type File struct {
	Header  Header
	Rows    []Row
	Trailer *Trailer // nil while the session was not closed
	Other   []Other  // records of unknown types
	// Reopened counts further headers: the number of times the session was
	// reopened after a crash.
	Reopened int
	// Torn reports that the last line was truncated and dropped.
	Torn bool
}

// Header is the first record of a file.
type Header struct {
	ID        string
	CreatedAt string // as written: ISO 8601
	Parents   []string
	Operator  string
	Kind      string // of the lineage, such as op_fork
	Extras    []Extra
	Backend   *string         // of the sandbox; nil for none
	Spec      json.RawMessage // of the sandbox; nil for none
	Handle    *string         // of the sandbox; nil for none
	unknown   []field
}

// Extra is one pair of a header's lineage extras.
type Extra struct {
	Key   string
	Value json.RawMessage
}

// Row is a chunk in a file. A row that was read is written unchanged, including
// unknown fields; a row made from a chunk is written from the chunk.
type Row struct {
	Chunk   session.Chunk
	payload string
	unknown []field
}

// Other is a record of an unknown type.
type Other struct {
	Type string
	Rows int    // number of rows before it
	JSON string // the whole record
}

// Trailer is the last record of a file that was closed.
type Trailer struct {
	ClosedAt string // as written: ISO 8601
	Chunks   int    // as counted by the writer
	Usage    *Usage
	unknown  []field
}

// Usage is the usage of a session in tokens.
type Usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
}

// field is a field of a record, with its value as JSON.
type field struct{ name, value string }

// Closed reports whether the writer closed the session.
func (f *File) Closed() bool { return f.Trailer != nil }

// Session returns the file's chunks as a session that is not in a log yet. Rows of
// unknown kinds become chunks of that kind, without text and with the payload as
// opaque data. The session has no placement; it is in the header.
func (f *File) Session() session.Session {
	chunks := make([]session.Chunk, len(f.Rows))
	for i, r := range f.Rows {
		chunks[i] = r.Chunk
	}
	return session.New(chunks...)
}

// stamp is the layout of times in the format.
const stamp = "2006-01-02T15:04:05.000000+00:00"

// Timestamp returns t in the layout of the format.
func Timestamp(t time.Time) string { return t.UTC().Format(stamp) }
