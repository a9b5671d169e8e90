// Package memory is what agents remember between runs: short notes under
// readable names, and a search over them.
//
// A note is a text under a URI such as
//
//	memory://user/memories/preferences/4be2c1d09f7a3e55
//
// whose first part is one of the scopes user, agent, session and resources.
// Writing to a URI replaces what was there, so a durable step that is repeated
// under the same URI doubles nothing. [Store.Find] ranks notes with BM25 over words
// of any script, and never returns a note that shares no word with the query. A store
// that has a model for it also compares vectors of what texts mean.
//
//	err := m.Write(ctx, "memory://user/preferences/colours", "Prefers a dark theme.", memory.Origin{Session: "s1"})
//	hits, err := m.Find(ctx, memory.Query{Text: "which theme?", Limit: 4})
//
// A store belongs to one tenant.
//
// A note carries its [Origin], so that a caller can leave out the notes of a
// quarantined session.
//
// The package fetches nothing and calls no model, and
// it does not decide what enters a prompt: hits are facts that the caller
// records and renders.
package memory

import (
	"context"
	"errors"
)

var (
	// ErrInvalidURI is wrapped by the errors for names that are no memory URI.
	ErrInvalidURI = errors.New("memory: invalid uri")
	// ErrNotFound is wrapped by Read when nothing is stored under the name.
	ErrNotFound = errors.New("memory: not found")
	// ErrTooLarge is wrapped when a text or an archive is over its limit.
	ErrTooLarge = errors.New("memory: too large")
	// ErrFull is wrapped when a new note would exceed the store's limit.
	ErrFull = errors.New("memory: store is full")
	// ErrClosed is returned by every method of a closed store.
	ErrClosed = errors.New("memory: store is closed")
	// ErrWordsOnly is wrapped by Find beside hits that are right, of a store that
	// compares vectors too, when the query got none: they were found by their words alone.
	ErrWordsOnly = errors.New("memory: found by words alone")
)

// Limits that every store keeps.
const (
	MaxText      = 256 << 10 // bytes in one note
	MaxJSON      = 480 << 10 // bytes of that text as JSON
	MaxMessages  = 10_000    // messages in one archive
	MaxArchive   = 16 << 20  // bytes of all texts in one archive
	DefaultLimit = 8         // hits of a Query without a limit
	MaxLimit     = 100       // hits of any Query
)

// Store keeps the notes of one tenant and finds them. Its methods may be called
// concurrently.
//
// Each method returns the error of ctx if ctx has ended when it begins, and
// ErrInvalidURI for a name that is no memory URI. A change is atomic: other calls
// see it whole or not at all. A change that returned nil is visible to all later
// calls and survives the failures that the store promises to survive; one that
// returned an error may be repeated.
type Store interface {
	// Write stores text under uri and replaces the note that was there, with its
	// Origin. Writing the same again changes nothing. Bytes that are not UTF-8
	// become U+FFFD. A text over MaxText, or over MaxJSON as JSON, is ErrTooLarge, a
	// new note in a full store is ErrFull. A store may refuse an empty text.
	Write(ctx context.Context, uri, text string, from Origin) error
	// Read returns the text under uri, or ErrNotFound.
	Read(ctx context.Context, uri string) (string, error)
	// Find returns the notes that match best, best first, those of equal score
	// in the order of their URIs, at most q.Limit. No match is an empty result
	// and no error. The same notes always give the same hits, in any order of
	// writing. The caller owns the slice. With an error that wraps ErrWordsOnly the
	// hits count.
	Find(ctx context.Context, q Query) ([]Hit, error)
	// List returns the URIs of the notes at and below uri, sorted. The bare
	// scope ("memory://user") and the root ("memory://") may be listed too. The
	// caller owns the slice.
	List(ctx context.Context, uri string) ([]string, error)
	// Delete removes the notes at and below uri; an absent one is no error.
	// A store may keep the bytes on its medium until it compacts.
	Delete(ctx context.Context, uri string) error
}

// Archiver is the optional second ability of a Store: it keeps a transcript
// so that Find can later return the messages of it. The contract of Store holds
// for it, too.
type Archiver interface {
	// Archive stores the messages below memory://session/<session>/archives/
	// in one change and returns the URI under which they are listed. The same
	// session and key again replace the archive, so that a repeated step doubles
	// nothing. Blank messages are left out. Each message is also found by the
	// words of its neighbours. More than MaxMessages, or MaxArchive bytes, or a
	// message that is too large for a note, is ErrTooLarge. Archive does not keep messages.
	Archive(ctx context.Context, session, key string, messages []Message, from Origin) (uri string, err error)
}

// Origin is where a note comes from: a step of a run, or the user of a client. The zero
// Origin is a note of a program's own, or of a release that did not keep it.
type Origin struct {
	Session string `json:"session,omitempty"` // whose log holds the step that wrote it
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

// Query is what Find looks for.
type Query struct {
	Text  string // any text; its words are what counts
	Under string // only notes at and below this URI; "" is the whole store
	Limit int    // at most so many hits; 0 is DefaultLimit, above MaxLimit is MaxLimit
	// Scores is how notes are scored: "" is as the store does, ScoresOpenRath as the local
	// memory of OpenRath, where a store can. Another one wraps errors.ErrUnsupported.
	Scores string
}

// ScoresOpenRath finds as the local memory of OpenRath does: BM25 over runs of ASCII letters
// and digits, in the notes at and below Query.Under. Notes that share no word follow with
// score 0, those of equal score in the order of their files, and a snippet is the first 200
// characters. Each search reads all notes.
const ScoresOpenRath = "openrath"

// Hit is one note that matched. It has no floating point numbers, so that it
// can be recorded as an event.
type Hit struct {
	URI     string `json:"uri"`
	Snippet string `json:"snippet"`           // the passage that matches best, white space collapsed, at most 240 characters
	Session string `json:"session,omitempty"` // the session the note belongs to, for notes of scope session
	Origin  Origin `json:"origin,omitzero"`   // as it was written
	Score   int64  `json:"score"`             // BM25 in millionths, or what ranks add up to where vectors count too; above zero but for Query.Scores
}
