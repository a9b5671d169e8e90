// Package memory stores the knowledge that agents keep between runs: short notes
// under readable names, and a search over them.
//
// A note is a text under a URI such as
//
//	memory://user/memories/preferences/4be2c1d09f7a3e55
//
// whose first part is one of the scopes user, agent, session and resources.
// Writing to a URI replaces its note, so repeating a durable step with the same URI
// creates no duplicates. [Store.Find] ranks notes with BM25 over words of any script
// and never returns a note that shares no word with the query. A store with an
// embedding model also compares vectors of the texts' meaning.
//
//	err := m.Write(ctx, "memory://user/preferences/colours", "Prefers a dark theme.", memory.Origin{Session: "s1"})
//	hits, err := m.Find(ctx, memory.Query{Text: "which theme?", Limit: 4})
//
// A store belongs to one tenant.
//
// A note carries its [Origin], so that a caller can skip the notes of a
// quarantined session.
//
// The package calls neither the network nor a model, and it does not choose the
// contents of a prompt: hits are facts that the caller records and renders.
package memory

import (
	"context"
	"errors"
)

var (
	// ErrInvalidURI is wrapped by errors for names that are not memory URIs.
	ErrInvalidURI = errors.New("memory: invalid uri")
	// ErrNotFound is wrapped by Read if no note has the name.
	ErrNotFound = errors.New("memory: not found")
	// ErrTooLarge is wrapped if a text or an archive exceeds its limit.
	ErrTooLarge = errors.New("memory: too large")
	// ErrFull is wrapped when a new note would exceed the store's limit.
	ErrFull = errors.New("memory: store is full")
	// ErrClosed is returned by every method of a closed store.
	ErrClosed = errors.New("memory: store is closed")
	// ErrWordsOnly is wrapped by Find beside valid hits if a store that compares vectors has
	// no vector for the query: the hits match by words alone.
	ErrWordsOnly = errors.New("memory: found by words alone")
)

// The limits of every store.
const (
	MaxText      = 256 << 10 // bytes in one note
	MaxJSON      = 480 << 10 // bytes of that text as JSON
	MaxMessages  = 10_000    // messages in one archive
	MaxArchive   = 16 << 20  // bytes of all texts in one archive
	DefaultLimit = 8         // hits of a Query without a limit
	MaxLimit     = 100       // hits of any Query
)

// Store stores the notes of one tenant and searches them. Its methods may be called
// concurrently.
//
// Each method returns the error of ctx if ctx is done when it begins, and ErrInvalidURI for
// a name that is not a memory URI. Changes are atomic: other calls see a change completely
// or not at all. A change that returned nil is visible to all later calls and survives the
// failures that the store promises to survive. A change that returned an error may be
// repeated.
type Store interface {
	// Write stores text under uri and replaces the previous note with its Origin. Writing the
	// same note again has no effect. Bytes that are not UTF-8 become U+FFFD. A text over
	// MaxText, or over MaxJSON as JSON, is ErrTooLarge; a new note in a full store is
	// ErrFull. A store may reject an empty text.
	Write(ctx context.Context, uri, text string, from Origin) error
	// Read returns the text under uri, or ErrNotFound.
	Read(ctx context.Context, uri string) (string, error)
	// Find returns the best matches, at most q.Limit, in descending order of score and then
	// in order of their URIs. No match is an empty result, not an error. The same notes
	// always produce the same hits, in any order of writing. The caller owns the slice. The
	// hits are valid if the error wraps ErrWordsOnly.
	Find(ctx context.Context, q Query) ([]Hit, error)
	// List returns the URIs of the notes at and below uri, sorted. The bare
	// scope ("memory://user") and the root ("memory://") may be listed too. The
	// caller owns the slice.
	List(ctx context.Context, uri string) ([]string, error)
	// Delete removes the notes at and below uri; an absent note is not an error. A store may
	// keep the bytes on its medium until it compacts.
	Delete(ctx context.Context, uri string) error
}

// Archiver is an optional interface of a Store that archives transcripts, so that Find can
// return their messages. The contract of Store applies to it, too.
type Archiver interface {
	// Archive stores the messages below memory://session/<session>/archives/ in one change
	// and returns the URI under which they are listed. A call with the same session and key
	// replaces the archive, so a repeated step creates no duplicates. Blank messages are
	// skipped. A search also finds a message by the words of its neighbours. More than
	// MaxMessages, or MaxArchive bytes, or a message that is too large for a note, is
	// ErrTooLarge. Archive does not retain messages.
	Archive(ctx context.Context, session, key string, messages []Message, from Origin) (uri string, err error)
}

// Origin is the source of a note: a step of a run, or the user of a client. The zero Origin
// is a program's own note, or a note of a release without origins.
type Origin struct {
	Session string `json:"session,omitempty"` // the session whose log holds the step that wrote it
	Version uint64 `json:"version,omitempty"` // of that session, as the step saw it
	Run     string `json:"run,omitempty"`
	Step    string `json:"step,omitempty"` // its path in the run
	User    string `json:"user,omitempty"` // whose credentials a client wrote it with
}

// Message is one entry of a transcript to archive.
type Message struct {
	Role string // "user", "assistant", "system"
	Text string
}

// Query is a search for Find.
type Query struct {
	Text  string // any text; the search uses its words
	Under string // only notes at and below this URI; "" is the whole store
	Limit int    // maximum number of hits; 0 is DefaultLimit, above MaxLimit is MaxLimit
	// Scores selects the scoring: "" is the store's own, ScoresOpenRath that of OpenRath's
	// local memory, if the store supports it. Any other value is an error that wraps
	// errors.ErrUnsupported.
	Scores string
}

// ScoresOpenRath searches like the local memory of OpenRath: BM25 over runs of ASCII
// letters and digits, in the notes at and below Query.Under. Notes that share no word
// follow with score 0, notes of equal score in the order of their files, and a snippet is
// the first 200 characters. Each search reads all notes.
const ScoresOpenRath = "openrath"

// Hit is one matching note. It has no floating-point numbers, so that it can be recorded as
// an event.
type Hit struct {
	URI     string `json:"uri"`
	Snippet string `json:"snippet"`           // the best matching passage, white space collapsed, at most 240 characters
	Session string `json:"session,omitempty"` // the session the note belongs to, for notes of scope session
	Origin  Origin `json:"origin,omitzero"`   // as it was written
	Score   int64  `json:"score"`             // BM25 in millionths, or the fused rank with vectors; positive without Query.Scores
}
