package api

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/notes"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// What clients ask of memories: queries read them, and control requests change them in the
// name of a user, whom a note has as its origin.

func (a answerer) memory(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	if q.Memory == "" {
		names, err := notes.Names(ctx, a.c.Streams, t)
		if err != nil {
			return nil, err
		}
		slices.Sort(names)
		var out wire.Memory
		out.Memories, out.More = namesAfter(names, q.AfterNote, q.Limit)
		return out, nil
	}
	r := remembering{Op: memoryList, URI: q.URI, Key: q.AfterNote, Limit: q.Limit}
	if r.URI == "" {
		r.URI = "memory://"
	}
	if q.All {
		r.Op = memoryNotes
	}
	return a.remembered(ctx, t, q, r)
}

func (a answerer) note(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	if q.URI == "" {
		return nil, missing("uri", "send the name of a note")
	}
	return a.remembered(ctx, t, q, remembering{Op: memoryRead, URI: q.URI, Level: q.Level})
}

func (a answerer) recall(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	if q.Text == "" {
		return nil, missing("text", "send what to look for")
	}
	return a.remembered(ctx, t, q, remembering{Op: memoryFind, Query: memory.Query{Text: q.Text, Under: q.URI, Limit: q.Limit, Scores: q.Scores}})
}

func (a answerer) remembered(ctx context.Context, t session.Tenant, q wire.Query, r remembering) (any, error) {
	if q.Memory == "" {
		return nil, missing("memory", "send the name of a memory")
	}
	r.Memory = q.Memory
	out, err := a.Memories.perform(ctx, a.c, t, &r)
	return out.Memory, withCode(err)
}

// withCode gives an error of package memory the code that clients know it by.
func withCode(err error) error {
	if name := faultOf(err); name != "" {
		return &fault{err.Error(), []error{faults[name].code, err}}
	}
	return err
}

// controlMemory writes or forgets notes for a client.
func (c *controls) controlMemory(ctx context.Context, of wire.Controlled, body []byte, all Memories) error {
	r := remembering{Memory: of.ID, Op: memoryWrite, Origin: memory.Origin{User: of.User}}
	switch of.Verb {
	case messages.VerbMemoryWrite:
	case messages.VerbMemoryForget:
		r.Op = memoryDelete
	default:
		return fmt.Errorf("verb %q: %w: memories take %s and %s", of.Verb, run.ErrMalformed, messages.VerbMemoryWrite, messages.VerbMemoryForget)
	}
	b, err := messages.DecodeControl(body)
	if err != nil {
		return err
	}
	if r.URI, r.Text, err = b.Note(of.Verb); err != nil {
		return err
	}
	_, err = all.perform(ctx, c.all, of.Tenant, &r)
	return withCode(err)
}

// Memory returns a memory of a tenant as a client has it. Of the origin of what is written
// nodes keep the user alone, as they know it.
func (c *Requests) Memory(t session.Tenant, name string) (*RemoteMemory, error) {
	if err := session.ValidID("memory", name); err != nil {
		return nil, err
	}
	return &RemoteMemory{name, func(ctx context.Context, r *remembering) (remembered, error) {
		out, err := c.remember(ctx, t, r)
		for _, f := range faults {
			if err != nil && errors.Is(err, f.code) {
				return out, &fault{err.Error(), []error{f.is, err}}
			}
		}
		return out, err
	}}, nil
}

// Memories returns the names of a tenant's memories, sorted.
func (c *Requests) Memories(ctx context.Context, t session.Tenant) (all []string, err error) {
	for q := (wire.Query{}); ; q.AfterNote = all[len(all)-1] {
		var page wire.Memory
		if err := ask(ctx, c, t, messages.QueryMemory, q, &page); err != nil {
			return all, fmt.Errorf("nats/api: list memories: %w", err)
		}
		if all = append(all, page.Memories...); !page.More || len(page.Memories) == 0 {
			return all, nil
		}
	}
}

// Each calls fn with each note at and below a name, sorted by their own, until it returns
// an error. Notes that are written meanwhile may be left out. Those that no answer holds
// are named by the error that comes after all others.
func (m *RemoteMemory) Each(ctx context.Context, under string, limit int, fn func(n wire.Note) error) error {
	var large []string
	for r := (remembering{Op: memoryNotes, URI: under}); ; {
		r.Limit = limit
		page, err := m.ask(ctx, r)
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
		return tooLarge(m.name, large...)
	}
	return nil
}

// remember asks something of a memory as a client.
func (c *Requests) remember(ctx context.Context, t session.Tenant, r *remembering) (out remembered, err error) {
	q := wire.Query{Memory: r.Memory, URI: r.URI, AfterNote: r.Key, Limit: r.Limit}
	switch r.Op {
	case memoryWrite:
		return out, c.change(ctx, t, r, messages.VerbMemoryWrite)
	case memoryDelete:
		return out, c.change(ctx, t, r, messages.VerbMemoryForget)
	case memoryRead:
		q.Level = r.Level
		return out, ask(ctx, c, t, messages.QueryNote, q, &out.Memory)
	case memoryFind:
		if r.Query.Text == "" {
			return out, nil // no word, no hit
		}
		q.URI, q.Text, q.Scores, q.Limit = r.Query.Under, r.Query.Text, r.Query.Scores, max(min(r.Query.Limit, memory.MaxLimit), 0)
		return out, ask(ctx, c, t, messages.QueryRecall, q, &out.Memory)
	}
	if r.URI == "" { // in a query that is the whole memory
		return out, fmt.Errorf("%w %q: want memory://<scope>/<name>", memory.ErrInvalidURI, "")
	}
	q.All = r.Op == memoryNotes
	return out, ask(ctx, c, t, messages.QueryMemory, q, &out.Memory)
}

// change asks for a change of a memory. It may be made twice. While a node has too much
// under way the request is sent again.
func (c *Requests) change(ctx context.Context, t session.Tenant, r *remembering, verb string) error {
	body, err := messages.Encode(messages.Control{URI: r.URI, Text: r.Text})
	if err != nil {
		return err
	}
	user, err := c.conn.User(ctx, t)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, conn.RetryBudget)
	defer cancel()
	for wait := conn.NewBackoff(); ; {
		_, err := answered(ctx, func(ctx context.Context) ([]byte, error) {
			return c.question(ctx, messages.MemorySubject(t, user, r.Memory, verb), body, controlElse)
		})
		if !errors.Is(err, run.ErrBusy) || wait.Sleep(ctx) != nil {
			return err
		}
	}
}
