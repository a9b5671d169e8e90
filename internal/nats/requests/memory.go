package requests

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// MemoryRequest is a request about a memory, as a bound node sends it. Op determines the
// other fields that apply.
type MemoryRequest struct {
	Memory string        `json:"memory"`
	Op     string        `json:"op"`
	URI    string        `json:"uri,omitempty"`
	Text   string        `json:"text,omitempty"`
	Origin memory.Origin `json:"origin,omitzero"`
	Query  memory.Query  `json:"query,omitzero"`
	// Level is the level of a read; "" is the note as it is.
	Level string `json:"level,omitempty"`
	// Limit bounds the rows of a page; 0 is as many as fit into an answer.
	Limit int `json:"limit,omitempty"`
	// Of an archive, whose messages are in a blob of the tenant.
	Session  string      `json:"session,omitempty"`
	Key      string      `json:"key,omitempty"`
	Messages blob.Digest `json:"messages,omitzero"`
}

// The operations of a MemoryRequest.
const (
	MemoryWrite   = "write"
	MemoryRead    = "read"
	MemoryFind    = "find"
	MemoryList    = "list"
	MemoryNotes   = "notes"
	MemoryDelete  = "delete"
	MemoryArchive = "archive"
)

// MemoryAnswer is the answer to a MemoryRequest.
type MemoryAnswer struct {
	wire.Memory
	URI string `json:"uri,omitempty"`
	// Fault is the name of an error of package memory, and Why its text.
	Fault string `json:"fault,omitempty"`
	Why   string `json:"why,omitempty"`
}

// Faults are the errors of package memory that callers distinguish, each with the error
// that has its code on the wire.
var Faults = map[string]struct{ Is, Code error }{
	"invalid_uri": {memory.ErrInvalidURI, run.ErrMalformed},
	"not_found":   {memory.ErrNotFound, session.ErrNotFound},
	"too_large":   {memory.ErrTooLarge, session.ErrTooLarge},
	"full":        {memory.ErrFull, run.ErrState},
	"unsupported": {errors.ErrUnsupported, run.ErrNotSupported},
}

// fault is an error of Faults that travels over the network.
type fault struct {
	text string
	is   []error
}

// Error returns the text of the error.
func (f *fault) Error() string { return f.text }

// Unwrap returns the wrapped errors, among them the one of package memory.
func (f *fault) Unwrap() []error { return f.is }

// NewFault returns an error with a text of its own that matches other errors.
func NewFault(text string, is ...error) error { return &fault{text, is} }

// FaultOf returns the name of the error of package memory that err is; "" if it is none.
func FaultOf(err error) string {
	for name, f := range Faults {
		if errors.Is(err, f.Is) {
			return name
		}
	}
	return ""
}

// TooLarge is the error for notes that no answer holds.
func TooLarge(name string, uris ...string) error {
	return fmt.Errorf("%w: memory %s: no answer holds the text of %s: remove that (rath memory forget), and write it again in several notes", memory.ErrTooLarge, name, strings.Join(uris, ", "))
}

// RemoteMemory is a memory that the nodes for all tenants have, by requests.
type RemoteMemory struct {
	name string
	send func(ctx context.Context, r *MemoryRequest) (MemoryAnswer, error)
}

var _ memory.Store = (*RemoteMemory)(nil)

// NewMemory returns a memory of a name whose requests go by send.
func NewMemory(name string, send func(ctx context.Context, r *MemoryRequest) (MemoryAnswer, error)) *RemoteMemory {
	return &RemoteMemory{name, send}
}

// Close is a no-op: the nodes hold the memory open.
func (m *RemoteMemory) Close() error { return nil }

// Ask sends a request about the memory.
func (m *RemoteMemory) Ask(ctx context.Context, r MemoryRequest) (out MemoryAnswer, err error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	for _, name := range []string{r.URI, r.Query.Under, r.Session} {
		if !utf8.ValidString(name) { // JSON would make it another one
			return out, fmt.Errorf("%w %q: not valid UTF-8", memory.ErrInvalidURI, name)
		}
	}
	r.Memory = m.name
	out, err = m.send(ctx, &r)
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return out, ctx.Err()
	case errors.Is(err, nats.ErrMaxPayload):
		err = fmt.Errorf("%w: %w", memory.ErrTooLarge, err)
	}
	if FaultOf(err) != "" {
		return out, err
	}
	return out, fmt.Errorf("nats/requests: memory %s: %w", m.name, err)
}

// Write implements memory.Store.
func (m *RemoteMemory) Write(ctx context.Context, uri, text string, from memory.Origin) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n, err := notebook.NewNote(uri, text, from)
	if err != nil {
		return err
	}
	_, err = m.Ask(ctx, MemoryRequest{Op: MemoryWrite, URI: n.URI, Text: n.Text, Origin: from})
	return err
}

// Read implements memory.Store.
func (m *RemoteMemory) Read(ctx context.Context, uri string) (string, error) {
	out, err := m.Ask(ctx, MemoryRequest{Op: MemoryRead, URI: uri})
	return out.Text, err
}

// ReadLevel is memory.ReadLevel at the nodes. A full text may exceed one answer, and is
// read note by note.
func (m *RemoteMemory) ReadLevel(ctx context.Context, uri, level string) (string, error) {
	if level == memory.LevelFull {
		return memory.ReadLevel(ctx, struct{ memory.Store }{m}, uri, level)
	}
	out, err := m.Ask(ctx, MemoryRequest{Op: MemoryRead, URI: uri, Level: level})
	return out.Text, err
}

// Find implements memory.Store.
func (m *RemoteMemory) Find(ctx context.Context, q memory.Query) ([]memory.Hit, error) {
	out, err := m.Ask(ctx, MemoryRequest{Op: MemoryFind, Query: q})
	if err == nil && out.WordsOnly != "" {
		err = NewFault(out.WordsOnly, memory.ErrWordsOnly)
	}
	return out.Hits, err
}

// List implements memory.Store.
func (m *RemoteMemory) List(ctx context.Context, uri string) (all []string, err error) {
	for r := (MemoryRequest{Op: MemoryList, URI: uri}); ; r.Key = all[len(all)-1] {
		out, err := m.Ask(ctx, r)
		all = append(all, out.URIs...)
		if err != nil || !out.More || len(out.URIs) == 0 {
			return all, err
		}
	}
}

// Delete implements memory.Store.
func (m *RemoteMemory) Delete(ctx context.Context, uri string) error {
	_, err := m.Ask(ctx, MemoryRequest{Op: MemoryDelete, URI: uri})
	return err
}

// Memory returns a memory of a tenant with a client's access. Of the origin of a written
// note, nodes keep only the user, whom they authenticate.
func (c *Requests) Memory(t session.Tenant, name string) (*RemoteMemory, error) {
	if err := session.ValidID("memory", name); err != nil {
		return nil, err
	}
	return &RemoteMemory{name, func(ctx context.Context, r *MemoryRequest) (MemoryAnswer, error) {
		out, err := c.remember(ctx, t, r)
		for _, f := range Faults {
			if err != nil && errors.Is(err, f.Code) {
				return out, NewFault(err.Error(), f.Is, err)
			}
		}
		return out, err
	}}, nil
}

// Memories returns the names of a tenant's memories, sorted.
func (c *Requests) Memories(ctx context.Context, t session.Tenant) (all []string, err error) {
	for q := (wire.Query{}); ; q.AfterNote = all[len(all)-1] {
		var page wire.Memory
		if err := c.Ask(ctx, t, messages.QueryMemory, q, &page); err != nil {
			return all, fmt.Errorf("nats/requests: list memories: %w", err)
		}
		if all = append(all, page.Memories...); !page.More || len(page.Memories) == 0 {
			return all, nil
		}
	}
}

// Each calls fn with each note at and below a name, sorted by their own, until it returns
// an error. It may omit notes written meanwhile. After all others it returns an error that
// names the notes too large for an answer.
func (m *RemoteMemory) Each(ctx context.Context, under string, limit int, fn func(n wire.Note) error) error {
	var large []string
	for r := (MemoryRequest{Op: MemoryNotes, URI: under}); ; {
		r.Limit = limit
		page, err := m.Ask(ctx, r)
		if err != nil {
			return err
		}
		for _, n := range page.Notes {
			if err := fn(n); err != nil {
				return err
			}
			r.Key = n.URI
		}
		for _, uri := range page.TooLarge {
			large, r.Key = append(large, uri), max(r.Key, uri)
		}
		got := len(page.Notes) + len(page.TooLarge)
		if limit -= got; !page.More || got == 0 || limit == 0 {
			break
		}
		limit = max(limit, 0)
	}
	if len(large) > 0 {
		return TooLarge(m.name, large...)
	}
	return nil
}

// remember sends a client's request about a memory.
func (c *Requests) remember(ctx context.Context, t session.Tenant, r *MemoryRequest) (out MemoryAnswer, err error) {
	q := wire.Query{Memory: r.Memory, URI: r.URI, AfterNote: r.Key, Limit: r.Limit}
	switch r.Op {
	case MemoryWrite:
		return out, c.change(ctx, t, r, messages.VerbMemoryWrite)
	case MemoryDelete:
		return out, c.change(ctx, t, r, messages.VerbMemoryForget)
	case MemoryRead:
		q.Level = r.Level
		return out, c.Ask(ctx, t, messages.QueryNote, q, &out.Memory)
	case MemoryFind:
		if r.Query.Text == "" {
			return out, nil // no word, no hit
		}
		q.URI, q.Text, q.Scores, q.Limit = r.Query.Under, r.Query.Text, r.Query.Scores, max(min(r.Query.Limit, memory.MaxLimit), 0)
		return out, c.Ask(ctx, t, messages.QueryRecall, q, &out.Memory)
	}
	if r.URI == "" { // in a query that is the whole memory
		return out, fmt.Errorf("%w %q: want memory://<scope>/<name>", memory.ErrInvalidURI, "")
	}
	q.All = r.Op == MemoryNotes
	return out, c.Ask(ctx, t, messages.QueryMemory, q, &out.Memory)
}

// change requests a change of a memory, which may be applied twice. While a node is busy
// the request is repeated.
func (c *Requests) change(ctx context.Context, t session.Tenant, r *MemoryRequest, verb string) error {
	body, err := messages.Encode(messages.Control{URI: r.URI, Text: r.Text})
	if err != nil {
		return err
	}
	user, err := c.user(ctx, t)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, conn.RetryBudget)
	defer cancel()
	for wait := conn.NewBackoff(); ; {
		_, err := answered(ctx, func(ctx context.Context) ([]byte, error) {
			return c.question(ctx, messages.MemorySubject(t, user, r.Memory, verb), nil, body, controlElse)
		})
		if !errors.Is(err, run.ErrBusy) || wait.Sleep(ctx) != nil {
			return err
		}
	}
}
