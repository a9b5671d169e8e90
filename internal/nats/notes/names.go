package notes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

// markToken is the last token of the subject that marks an existing memory.
const markToken = "name"

// mark returns the message that marks a memory of this name as existing. It is stored
// before its first note.
func (s *Store) mark() *nats.Msg {
	data, err := json.Marshal(map[string]string{"name": s.name})
	if err != nil {
		panic(err) // it is a string
	}
	return &nats.Msg{Subject: s.of + markToken, Data: data}
}

// Names returns the names of a tenant's memories that have or had a note, in the order
// in which they got their first ones.
func Names(ctx context.Context, s *streams.Streams, t session.Tenant) ([]string, error) {
	if err := session.ValidID("tenant", string(t)); err != nil {
		return nil, err
	}
	end, err := s.Messages.LastSequence(ctx, streams.StreamMemory)
	if err != nil {
		return nil, err
	}
	names := []string{}
	of := streams.PrefixMemory + string(t) + "."
	for m, err := range s.Messages.UpTo(ctx, streams.StreamMemory, of+"*."+markToken, 0, end) {
		if err != nil {
			return nil, fmt.Errorf("nats/notes: memories of tenant %s: %w", t, err)
		}
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(m.Subject, of), "."+markToken))
	}
	return names, nil
}
