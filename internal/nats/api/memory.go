package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// remember carries out a bound node's request about a memory.
func (t *tenantStore) remember(ctx context.Context, of session.Tenant, body []byte) (*nats.Msg, error) {
	var r requests.MemoryRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("memory: %w: %w", run.ErrMalformed, err)
	}
	out, err := t.memories.perform(ctx, t.c, of, &r)
	if name := requests.FaultOf(err); name != "" {
		return encoded(requests.MemoryAnswer{Fault: name, Why: messages.Text(err)})
	}
	if err != nil {
		return nil, err
	}
	return encoded(out)
}

// perform carries out a request about a memory.
func (all Memories) perform(ctx context.Context, c *Conn, of session.Tenant, r *requests.MemoryRequest) (out requests.MemoryAnswer, err error) {
	if all == nil {
		return out, fmt.Errorf("memory %s: %w: this node has none", r.Memory, run.ErrNotSupported)
	}
	m, err := all(ctx, of, r.Memory)
	if err != nil {
		return out, err
	}
	switch r.Op {
	case requests.MemoryWrite:
		err = m.Write(ctx, r.URI, r.Text, r.Origin)
	case requests.MemoryRead:
		if r.Level == "" {
			out.Text, err = m.Read(ctx, r.URI)
		} else {
			out.Text, err = memory.ReadLevel(ctx, m, r.URI, r.Level)
		}
		if err == nil && notebook.JSONSize(out.Text) > messages.MaxReply-(16<<10) {
			out.Text, err = "", requests.TooLarge(r.Memory, r.URI)
		}
	case requests.MemoryFind:
		if out.Hits, err = m.Find(ctx, r.Query); errors.Is(err, memory.ErrWordsOnly) {
			out.WordsOnly, err = messages.Text(err), nil
		}
	case requests.MemoryList:
		out.URIs, err = m.List(ctx, r.URI)
		out.URIs, out.More = namesAfter(out.URIs, r.Key, r.Limit)
	case requests.MemoryNotes:
		var page []notebook.Note
		page, out.More, err = notesAfter(ctx, m, r)
		for _, n := range page {
			if n.Size() > pageRoom { // it is alone in its page
				out.TooLarge = append(out.TooLarge, n.URI)
				continue
			}
			out.Notes = append(out.Notes, wire.Note{URI: n.URI, Text: n.Text, Origin: n.Origin})
		}
	case requests.MemoryDelete:
		err = m.Delete(ctx, r.URI)
	case requests.MemoryArchive:
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

// notesAfter returns a page of notes with their texts and, if the store has them, origins.
func notesAfter(ctx context.Context, m memory.Store, r *requests.MemoryRequest) (page []notebook.Note, more bool, err error) {
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
			continue // it was deleted meanwhile
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

func (c *Conn) archive(ctx context.Context, of session.Tenant, m memory.Store, r *requests.MemoryRequest) (string, error) {
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

// BoundMemory is a memory of a bound node's tenant.
type BoundMemory struct {
	*requests.RemoteMemory
	b *Bound
}

var (
	_ memory.Store    = (*BoundMemory)(nil)
	_ memory.Archiver = (*BoundMemory)(nil)
)

// Memory returns a memory of a tenant; it returns an error for another tenant.
func (b *Bound) Memory(t session.Tenant, name string) (*BoundMemory, error) {
	if t != b.tenant {
		return nil, fmt.Errorf("nats/api: memory of tenant %s, on a node of tenant %s: %w", t, b.tenant, session.ErrTenant)
	}
	return &BoundMemory{requests.NewMemory(name, b.remember), b}, nil
}

// remember sends a request about a memory of the node's tenant.
func (b *Bound) remember(ctx context.Context, r *requests.MemoryRequest) (out requests.MemoryAnswer, err error) {
	body, err := messages.Encode(r)
	if err != nil {
		return out, err
	}
	answer, err := b.patiently(ctx, storeMemory, nil, body)
	if err == nil {
		err = json.Unmarshal(answer.Data, &out)
	}
	if f, ok := requests.Faults[out.Fault]; err == nil && ok {
		err = requests.NewFault(out.Why, f.Is)
	}
	return out, err
}

// Archive implements memory.Archiver.
func (m *BoundMemory) Archive(ctx context.Context, session, key string, all []memory.Message, from memory.Origin) (string, error) {
	// A transcript that every archive would reject is not sent.
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
	out, err := m.Ask(ctx, requests.MemoryRequest{Op: requests.MemoryArchive, Session: session, Key: key, Messages: ref.Digest, Origin: from})
	return out.URI, err
}
