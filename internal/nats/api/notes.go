package api

import (
	"context"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/internal/nats/notes"
	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Requests of clients about memories: queries read memories, and control requests change
// them in the name of a user, who becomes the origin of a note.

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
	r := requests.MemoryRequest{Op: requests.MemoryList, URI: q.URI, Key: q.AfterNote, Limit: q.Limit}
	if r.URI == "" {
		r.URI = "memory://"
	}
	if q.All {
		r.Op = requests.MemoryNotes
	}
	return a.remembered(ctx, t, q, r)
}

func (a answerer) note(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	if q.URI == "" {
		return nil, missing("uri", "send the name of a note")
	}
	return a.remembered(ctx, t, q, requests.MemoryRequest{Op: requests.MemoryRead, URI: q.URI, Level: q.Level})
}

func (a answerer) recall(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	if q.Text == "" {
		return nil, missing("text", "send the text to search")
	}
	return a.remembered(ctx, t, q, requests.MemoryRequest{Op: requests.MemoryFind, Query: memory.Query{Text: q.Text, Under: q.URI, Limit: q.Limit, Scores: q.Scores}})
}

func (a answerer) remembered(ctx context.Context, t session.Tenant, q wire.Query, r requests.MemoryRequest) (any, error) {
	if q.Memory == "" {
		return nil, missing("memory", "send the name of a memory")
	}
	r.Memory = q.Memory
	out, err := a.Memories.perform(ctx, a.c, t, &r)
	return out.Memory, withCode(err)
}

// withCode adds to an error of package memory its code for clients.
func withCode(err error) error {
	if name := requests.FaultOf(err); name != "" {
		return requests.NewFault(err.Error(), requests.Faults[name].Code, err)
	}
	return err
}

// controlMemory writes or forgets notes for a client.
func (c *controls) controlMemory(ctx context.Context, of wire.Controlled, body []byte, all Memories) error {
	r := requests.MemoryRequest{Memory: of.ID, Op: requests.MemoryWrite, Origin: memory.Origin{User: of.User}}
	switch of.Verb {
	case messages.VerbMemoryWrite:
	case messages.VerbMemoryForget:
		r.Op = requests.MemoryDelete
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
