package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// remembering is the body of storeMemory: what a bound node has done with a memory of its
// tenant. Op says which of the other fields count.
type remembering struct {
	Memory string        `json:"memory"`
	Op     string        `json:"op"`
	URI    string        `json:"uri,omitempty"`
	Text   string        `json:"text,omitempty"`
	Origin memory.Origin `json:"origin,omitzero"`
	Query  memory.Query  `json:"query,omitzero"`
	// Level is that of a read; "" is the note as it is.
	Level string `json:"level,omitempty"`
	// Limit bounds the rows of a page; 0 is what an answer holds.
	Limit int `json:"limit,omitempty"`
	// Of an archive, whose messages are in a blob of the tenant.
	Session  string      `json:"session,omitempty"`
	Key      string      `json:"key,omitempty"`
	Messages blob.Digest `json:"messages,omitzero"`
}

// The operations of remembering.
const (
	memoryWrite   = "write"
	memoryRead    = "read"
	memoryFind    = "find"
	memoryList    = "list"
	memoryNotes   = "notes"
	memoryDelete  = "delete"
	memoryArchive = "archive"
)

// remembered is the answer to storeMemory.
type remembered struct {
	wire.Memory
	URI string `json:"uri,omitempty"`
	// Fault is the name of an error of package memory, and Why its text.
	Fault string `json:"fault,omitempty"`
	Why   string `json:"why,omitempty"`
}

// faults are the errors of package memory that callers tell apart, each with the one that
// has a code on the wire.
var faults = map[string]struct{ is, code error }{
	"invalid_uri": {memory.ErrInvalidURI, run.ErrMalformed},
	"not_found":   {memory.ErrNotFound, session.ErrNotFound},
	"too_large":   {memory.ErrTooLarge, session.ErrTooLarge},
	"full":        {memory.ErrFull, run.ErrState},
	"unsupported": {errors.ErrUnsupported, run.ErrNotSupported},
}

// fault is such an error that has come over the network, or goes there.
type fault struct {
	text string
	is   []error
}

// Error returns the text of the error.
func (f *fault) Error() string { return f.text }

// Unwrap returns the one of package memory, among others.
func (f *fault) Unwrap() []error { return f.is }

// faultOf returns the name of the error of package memory that err is; "" if it is none.
func faultOf(err error) string {
	for name, f := range faults {
		if errors.Is(err, f.is) {
			return name
		}
	}
	return ""
}

// remember does what a bound node asks of a memory.
func (t *tenantStore) remember(ctx context.Context, of session.Tenant, body []byte) (*nats.Msg, error) {
	var r remembering
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("memory: %w: %w", run.ErrMalformed, err)
	}
	out, err := t.memories.perform(ctx, t.c, of, &r)
	if name := faultOf(err); name != "" {
		return encoded(remembered{Fault: name, Why: messages.Text(err)})
	}
	if err != nil {
		return nil, err
	}
	return encoded(out)
}

// perform does what is asked of a memory.
func (all Memories) perform(ctx context.Context, c *Conn, of session.Tenant, r *remembering) (out remembered, err error) {
	if all == nil {
		return out, fmt.Errorf("memory %s: %w: this node has none", r.Memory, run.ErrNotSupported)
	}
	m, err := all(ctx, of, r.Memory)
	if err != nil {
		return out, err
	}
	switch r.Op {
	case memoryWrite:
		err = m.Write(ctx, r.URI, r.Text, r.Origin)
	case memoryRead:
		if r.Level == "" {
			out.Text, err = m.Read(ctx, r.URI)
		} else {
			out.Text, err = memory.ReadLevel(ctx, m, r.URI, r.Level)
		}
		if err == nil && notebook.JSONSize(out.Text) > messages.MaxReply-(16<<10) {
			out.Text, err = "", tooLarge(r.Memory, r.URI)
		}
	case memoryFind:
		if out.Hits, err = m.Find(ctx, r.Query); errors.Is(err, memory.ErrWordsOnly) {
			out.WordsOnly, err = messages.Text(err), nil
		}
	case memoryList:
		out.URIs, err = m.List(ctx, r.URI)
		out.URIs, out.More = namesAfter(out.URIs, r.Key, r.Limit)
	case memoryNotes:
		var page []notebook.Note
		page, out.More, err = notesAfter(ctx, m, r)
		for _, n := range page {
			if n.Size() > pageRoom { // it is alone in its page
				out.TooLarge = append(out.TooLarge, n.URI)
				continue
			}
			out.Notes = append(out.Notes, wire.Note{URI: n.URI, Text: n.Text, Origin: n.Origin})
		}
	case memoryDelete:
		err = m.Delete(ctx, r.URI)
	case memoryArchive:
		out.URI, err = c.archive(ctx, of, m, r)
	default:
		err = fmt.Errorf("memory: %q: %w: nodes of this release do not know it", r.Op, run.ErrNotSupported)
	}
	return out, err
}

// namesAfter is a page of sorted names.
func namesAfter(all []string, after string, limit int) (page []string, more bool) {
	room := pageRoom
	for _, uri := range all {
		if uri <= after {
			continue
		}
		if room -= len(uri) + 16; room < 0 || limit > 0 && len(page) == limit {
			return page, true
		}
		page = append(page, uri)
	}
	return page, false
}

// tooLarge is the error for notes that no answer holds.
func tooLarge(name string, uris ...string) error {
	return fmt.Errorf("%w: memory %s: no answer holds the text of %s: remove that (rath memory forget), and write it again in several notes", memory.ErrTooLarge, name, strings.Join(uris, ", "))
}

// notesAfter is a page of notes with their texts and, where the store tells it, origins.
func notesAfter(ctx context.Context, m memory.Store, r *remembering) (page []notebook.Note, more bool, err error) {
	if paged, ok := m.(interface {
		Page(ctx context.Context, under, after string, limit, room int) ([]notebook.Note, bool, error)
	}); ok {
		return paged.Page(ctx, r.URI, r.Key, r.Limit, pageRoom)
	}
	all, err := m.List(ctx, r.URI)
	if err != nil {
		return nil, false, err
	}
	names, more := namesAfter(all, r.Key, r.Limit)
	room := pageRoom
	for _, uri := range names {
		text, err := m.Read(ctx, uri)
		if errors.Is(err, memory.ErrNotFound) {
			continue // it was forgotten meanwhile
		}
		if err != nil {
			return nil, false, err
		}
		n := notebook.Note{URI: uri, Text: text}
		if room -= n.Size(); room < 0 && len(page) > 0 {
			return page, true, nil
		}
		page = append(page, n)
	}
	return page, more, nil
}

func (c *Conn) archive(ctx context.Context, of session.Tenant, m memory.Store, r *remembering) (string, error) {
	a, ok := m.(memory.Archiver)
	if !ok {
		return "", fmt.Errorf("memory %s: %w: it keeps no archives", r.Memory, run.ErrNotSupported)
	}
	in, err := c.Logs.Blobs(of).Get(ctx, r.Messages)
	if err != nil {
		return "", err
	}
	defer in.Close()
	var all []memory.Message
	if err := json.NewDecoder(io.LimitReader(in, 8*memory.MaxArchive)).Decode(&all); err != nil {
		return "", fmt.Errorf("messages of an archive: %w: %w", run.ErrMalformed, err)
	}
	return a.Archive(ctx, r.Session, r.Key, all, r.Origin)
}

// RemoteMemory is a memory that the nodes for all tenants have, by requests.
type RemoteMemory struct {
	name string
	send func(ctx context.Context, r *remembering) (remembered, error)
}

// BoundMemory is a memory of a bound node's tenant.
type BoundMemory struct {
	RemoteMemory
	b *Bound
}

var (
	_ memory.Store    = (*RemoteMemory)(nil)
	_ memory.Store    = (*BoundMemory)(nil)
	_ memory.Archiver = (*BoundMemory)(nil)
)

// Memory returns a memory of a tenant; one of another tenant is refused.
func (b *Bound) Memory(t session.Tenant, name string) (*BoundMemory, error) {
	if t != b.tenant {
		return nil, fmt.Errorf("nats/api: memory of tenant %s, on a node of tenant %s: %w", t, b.tenant, session.ErrTenant)
	}
	return &BoundMemory{RemoteMemory{name, b.remember}, b}, nil
}

// Close does nothing: the memory is open at the nodes that are asked.
func (m *RemoteMemory) Close() error { return nil }

func (m *RemoteMemory) ask(ctx context.Context, r remembering) (out remembered, err error) {
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
	if faultOf(err) != "" {
		return out, err
	}
	return out, fmt.Errorf("nats/api: memory %s: %w", m.name, err)
}

// remember asks something of a memory of the node's tenant.
func (b *Bound) remember(ctx context.Context, r *remembering) (out remembered, err error) {
	body, err := messages.Encode(r)
	if err != nil {
		return out, err
	}
	answer, err := b.patiently(ctx, storeMemory, nil, body)
	if err == nil {
		err = json.Unmarshal(answer.Data, &out)
	}
	if f, ok := faults[out.Fault]; err == nil && ok {
		err = &fault{out.Why, []error{f.is}}
	}
	return out, err
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
	_, err = m.ask(ctx, remembering{Op: memoryWrite, URI: n.URI, Text: n.Text, Origin: from})
	return err
}

// Read implements memory.Store.
func (m *RemoteMemory) Read(ctx context.Context, uri string) (string, error) {
	out, err := m.ask(ctx, remembering{Op: memoryRead, URI: uri})
	return out.Text, err
}

// ReadLevel is memory.ReadLevel where the notes are. A full text may be more than one answer
// holds, and comes note by note.
func (m *RemoteMemory) ReadLevel(ctx context.Context, uri, level string) (string, error) {
	if level == memory.LevelFull {
		return memory.ReadLevel(ctx, struct{ memory.Store }{m}, uri, level)
	}
	out, err := m.ask(ctx, remembering{Op: memoryRead, URI: uri, Level: level})
	return out.Text, err
}

// Find implements memory.Store.
func (m *RemoteMemory) Find(ctx context.Context, q memory.Query) ([]memory.Hit, error) {
	out, err := m.ask(ctx, remembering{Op: memoryFind, Query: q})
	if err == nil && out.WordsOnly != "" {
		err = &fault{out.WordsOnly, []error{memory.ErrWordsOnly}}
	}
	return out.Hits, err
}

// List implements memory.Store.
func (m *RemoteMemory) List(ctx context.Context, uri string) (all []string, err error) {
	for r := (remembering{Op: memoryList, URI: uri}); ; r.Key = all[len(all)-1] {
		out, err := m.ask(ctx, r)
		all = append(all, out.URIs...)
		if err != nil || !out.More || len(out.URIs) == 0 {
			return all, err
		}
	}
}

// Delete implements memory.Store.
func (m *RemoteMemory) Delete(ctx context.Context, uri string) error {
	_, err := m.ask(ctx, remembering{Op: memoryDelete, URI: uri})
	return err
}

// Archive implements memory.Archiver.
func (m *BoundMemory) Archive(ctx context.Context, session, key string, all []memory.Message, from memory.Origin) (string, error) {
	// What no archive takes is not sent.
	dir, err := notebook.ArchiveURI(session, key)
	if err == nil {
		_, err = notebook.Transcript(dir, all, from)
	}
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(all)
	if err != nil {
		return "", err
	}
	ref, err := m.b.Blobs(m.b.tenant).Put(ctx, bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	out, err := m.ask(ctx, remembering{Op: memoryArchive, Session: session, Key: key, Messages: ref.Digest, Origin: from})
	return out.URI, err
}
