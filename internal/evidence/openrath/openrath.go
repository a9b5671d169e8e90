// Package openrath reads and writes the session files of OpenRath: JSON lines
// with a header, one record for each chunk, and a trailer once the session was
// closed (schema 1).
//
// Reading is more lenient than OpenRath's own loader: lines end at a line feed
// only, a second header after a crash is accepted, a last line that was cut
// off is dropped, and records, kinds and fields that are not known are kept.
// Writing is strict: the fields of the format in their order, in the same
// separators, with the line separators inside texts escaped that OpenRath's
// loader would break a line at.
//
// The package knows files and values. It neither opens sandboxes nor writes to
// a log: what was read becomes a session of Rath by recording the chunks of
// [File.Session] and, beside them, the [File.Source], which [Restore] makes the file of
// again.
package openrath

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/rathcluster/rath/session"
)

// Schema is the schema of the files that this package reads and writes.
const Schema = 1

// Partial is what the name of a file that is not closed ends with.
const Partial = ".__partial__"

var (
	// ErrNewer is returned for a file of a later schema.
	ErrNewer = errors.New("openrath: file of a later schema")
	// ErrFormat is returned for a file that is no session file, or is damaged
	// in its middle.
	ErrFormat = errors.New("openrath: not a session file")
)

// File is a session file.
type File struct {
	Header  Header
	Rows    []Row
	Trailer *Trailer // nil while the session was not closed
	Other   []Other  // records of types that this package does not know
	// Reopened counts further headers: how often the session was taken up
	// again after a crash.
	Reopened int
	// Torn reports that the last line was cut off and dropped.
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

// Row is a chunk as a file holds it. A row that was read is written as it was,
// with fields that only the file knows; a row that is made of a chunk is
// written from it.
type Row struct {
	Chunk   session.Chunk
	payload string
	unknown []field
}

// Other is a record of an unknown type.
type Other struct {
	Type string
	Rows int    // how many rows come before it
	JSON string // the whole record
}

// Trailer is the last record of a file that was closed.
type Trailer struct {
	ClosedAt string // as written: ISO 8601
	Chunks   int    // what the writer counted
	Usage    *Usage
	unknown  []field
}

// Usage is what a session consumed, in tokens.
type Usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
}

// field is a field of a record that this package does not know.
type field struct{ name, value string }

// Closed reports whether the writer closed the session.
func (f *File) Closed() bool { return f.Trailer != nil }

// Session returns the file's chunks as an unborn session. Rows of unknown
// kinds are chunks of that kind, without text and with the payload as their
// opaque data. Where the session worked is not taken over: the header says it.
func (f *File) Session() session.Session {
	chunks := make([]session.Chunk, len(f.Rows))
	for i, r := range f.Rows {
		chunks[i] = r.Chunk
	}
	return session.New(chunks...)
}

// stamp is how the format writes times.
const stamp = "2006-01-02T15:04:05.000000+00:00"

// Timestamp returns t as the format writes it.
func Timestamp(t time.Time) string { return t.UTC().Format(stamp) }
