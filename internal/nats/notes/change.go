package notes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/memory"
)

// schema is the schema number of changes. It is omitted while it is 1.
const schema = 1

// ErrFormat is wrapped by the errors for messages of a later release, or of another
// program. The memory is unchanged.
var ErrFormat = errors.New("nats/notes: unknown format")

// change is the effect of one call: one of its fields is set.
type change struct {
	Schema  int            `json:"schema,omitempty"`
	Note    *notebook.Note `json:"note,omitempty"`    // is written
	Archive *archive       `json:"archive,omitempty"` // replaces everything below its URI
	Delete  string         `json:"delete,omitempty"`  // the name whose notes, and those below, are removed

	notes []notebook.Note // that it writes
}

// archive holds the messages of a transcript.
type archive struct {
	URI      string        `json:"uri"`
	Messages []line        `json:"messages"`
	Origin   memory.Origin `json:"origin,omitzero"`
}

type line struct {
	Role string `json:"role,omitempty"`
	Text string `json:"text,omitempty"`
}

func archiveOf(dir notebook.URI, messages []memory.Message, from memory.Origin) *archive {
	a := &archive{URI: dir.String(), Messages: make([]line, len(messages)), Origin: from}
	for i, m := range messages {
		a.Messages[i] = line(m)
	}
	return a
}

// clears returns the name at and below which the change removes everything earlier; "" is
// none.
func (c *change) clears() string {
	if c.Archive != nil {
		return c.Archive.URI
	}
	return c.Delete
}

// key returns the token of a subject for a change: a later change under the same key
// replaces it in the stream.
func (c *change) key() string {
	switch {
	case c.Note != nil:
		return noteKey(c.Note.URI)
	case c.Archive != nil:
		return archiveKey(c.Archive.URI)
	}
	return keyOf("delete", c.Delete)
}

func noteKey(uri string) string { return keyOf("note", uri) }

func archiveKey(uri string) string { return keyOf("archive", uri) }

// keyOf is 128 bits of SHA-256: no two names meet.
func keyOf(kind, uri string) string {
	sum := sha256.Sum256([]byte(kind + "\x00" + uri))
	return hex.EncodeToString(sum[:16])
}

// encode writes the format that decode reads.
func (c *change) encode() ([]byte, error) {
	data, err := json.Marshal(c)
	return data, err
}

// decode reads a change and checks it.
func decode(data []byte) (change, error) {
	var c change
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if c.Schema > schema {
		return c, fmt.Errorf("%w: schema %d, this release knows %d: use the release that wrote it", ErrFormat, c.Schema, schema)
	}
	var err error
	switch {
	case c.Note != nil:
		_, err = notebook.ParseURI(c.Note.URI)
		c.notes = []notebook.Note{*c.Note}
	case c.Archive != nil:
		var dir notebook.URI
		messages := make([]memory.Message, len(c.Archive.Messages))
		for i, m := range c.Archive.Messages {
			messages[i] = memory.Message(m)
		}
		if dir, err = notebook.ParseURI(c.Archive.URI); err == nil {
			c.notes, err = notebook.Transcript(dir, messages, c.Archive.Origin)
		}
	case c.Delete != "":
		_, err = notebook.ParseDir(c.Delete)
	default:
		err = errors.New("no change that this release knows")
	}
	if err != nil {
		return c, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return c, nil
}
