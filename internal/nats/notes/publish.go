package notes

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
)

const (
	// partBytes is the size of one message, well below the default limit of servers.
	partBytes = 512 << 10
	// clearing is how many messages are cleared concurrently.
	clearing = 16
)

// publish stores a change and returns when it is durable.
func (s *Store) publish(ctx context.Context, c change) error {
	data, err := c.encode()
	if err != nil {
		return err
	}
	if err := s.s.ReadyToStore(ctx); err != nil {
		return s.unavailable(ctx, err)
	}
	if c.Delete == "" {
		if err := s.s.Capacity.Grow(ctx, streams.StreamMemory, s.tenant, len(data)); err != nil {
			return s.unavailable(ctx, err)
		}
	}
	if s.m.Len() == 0 {
		if err := s.s.Messages.PublishAtLeastOnce(ctx, s.mark()); err != nil {
			return s.unavailable(ctx, err)
		}
	}
	key := c.key()
	messages := s.messages(key, data, s.partsOf(key))
	_, err = conn.Retry(ctx, func(ctx context.Context) (uint64, error) { return s.store(ctx, messages) })
	if err == nil {
		// A reconnect in between may have led to a server that stores otherwise.
		err = s.s.ReadyToStore(ctx)
	}
	return s.unavailable(ctx, err)
}

// importing and importBytes bound the notes that Import stores at once.
const (
	importing   = 256
	importBytes = 4 << 20
)

// Import writes the notes that all yields, many at a time, replacing notes of the same
// names, and returns their number.
func (s *Store) Import(ctx context.Context, all func(yield func(notebook.Note) error) error) (n int, err error) {
	if err := s.current(ctx); err != nil {
		return 0, err
	}
	if err := s.s.ReadyToStore(ctx); err != nil {
		return 0, s.unavailable(ctx, err)
	}
	batch, size := []*nats.Msg{s.mark()}, 0
	flush := func() error {
		some := batch
		bytes := size
		batch, size = nil, 0
		if len(some) == 0 {
			return nil
		}
		if err := s.s.Capacity.Grow(ctx, streams.StreamMemory, s.tenant, bytes); err != nil {
			return s.unavailable(ctx, err)
		}
		_, err := conn.Retry(ctx, func(ctx context.Context) (uint64, error) { return s.store(ctx, some) })
		return s.unavailable(ctx, err)
	}
	err = all(func(note notebook.Note) error {
		c := change{Note: &note}
		data, err := c.encode()
		if err != nil {
			return err
		}
		key := c.key()
		next := s.messages(key, data, s.partsOf(key))
		if len(batch)+len(next) > importing || size+len(data) > importBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		batch, size, n = append(batch, next...), size+len(data), n+1
		return nil
	})
	if err == nil {
		err = flush()
	}
	if err == nil {
		err = s.unavailable(ctx, s.s.ReadyToStore(ctx))
	}
	return n, err
}

// store stores messages in one batch. It does not modify them: they may be stored again.
func (s *Store) store(ctx context.Context, messages []*nats.Msg) (uint64, error) {
	if len(messages) == 1 {
		return s.s.Messages.Publish(ctx, messages[0])
	}
	batch := make([]*nats.Msg, len(messages))
	for i, m := range messages {
		batch[i] = &nats.Msg{Subject: m.Subject, Data: m.Data, Header: maps.Clone(m.Header)}
	}
	return s.s.Messages.PublishBatch(ctx, batch)
}

// partsOf is how many messages the change under a key has, if they are several.
func (s *Store) partsOf(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts[key]
}

// messages returns the messages of a change, and empty ones that replace its surplus
// earlier messages.
func (s *Store) messages(key string, data []byte, before int) []*nats.Msg {
	parts := (len(data) + partBytes - 1) / partBytes
	batch := make([]*nats.Msg, 0, max(parts, before))
	for i := range max(parts, before) {
		m := &nats.Msg{Subject: s.of + key + "." + strconv.Itoa(i)}
		if i < parts {
			m.Data = data[i*partBytes : min(len(data), (i+1)*partBytes)]
		}
		if i == 0 && parts > 1 {
			m.Header = nats.Header{headerParts: {strconv.Itoa(parts)}}
		}
		batch = append(batch, m)
	}
	return batch
}

// clear removes deleted notes from the stream: an empty message replaces each of their
// messages, unless there is a later one. Notes that are not cleared stay deleted.
func (s *Store) clear(ctx context.Context, dir string, gone []string) {
	var subjects []string
	add := func(key string) {
		for i := range max(s.partsOf(key), 1) {
			subjects = append(subjects, s.of+key+"."+strconv.Itoa(i))
		}
	}
	archives := map[string]bool{}
	for _, uri := range gone {
		add(noteKey(uri))
		a, below := archiveOver(uri)
		if below && !archives[a] && (a == dir || strings.HasPrefix(a, strings.TrimSuffix(dir, "/")+"/")) {
			archives[a] = true
			add(archiveKey(a))
		}
	}
	deleted, err := s.s.Messages.LeaderLast(ctx, streams.StreamMemory, s.of+keyOf("delete", dir)+".0")
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, clearing)
	for len(subjects) > 0 {
		some := subjects[:min(len(subjects), conn.PageMessages)]
		subjects = subjects[len(some):]
		found, err := s.s.Messages.Lasts(ctx, streams.StreamMemory, some)
		if err != nil {
			return
		}
		for subject, m := range found {
			if len(m.Data) == 0 || m.Seq > deleted.Seq {
				continue
			}
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				_, _ = s.s.Messages.PublishExpecting(ctx, subject, m.Seq, nil, nil)
			})
		}
	}
}

// makeRoom handles a full stream, which has no room for a delete: it replaces each deleted
// note, and each deleted archive, with a smaller delete.
func (s *Store) makeRoom(ctx context.Context, dir string, gone []string) error {
	done := map[string]bool{}
	for _, uri := range gone {
		key := noteKey(uri)
		if a, below := archiveOver(uri); below {
			uri, key = a, archiveKey(a)
			if uri != dir && !strings.HasPrefix(uri, strings.TrimSuffix(dir, "/")+"/") {
				continue // the archive has other notes
			}
		}
		if done[key] {
			continue
		}
		done[key] = true
		data, err := (&change{Delete: uri}).encode()
		if err != nil {
			return err
		}
		messages := s.messages(key, data, s.partsOf(key))
		if _, err := conn.Retry(ctx, func(ctx context.Context) (uint64, error) { return s.store(ctx, messages) }); err != nil {
			return s.unavailable(ctx, err)
		}
	}
	return nil
}

// archiveOver returns the archive of a note, if it belongs to one.
func archiveOver(uri string) (string, bool) {
	u, err := notebook.ParseURI(uri)
	parts := strings.Split(u.Path, "/")
	if err != nil || u.Scope != notebook.Session || len(parts) != 4 || parts[1] != "archives" {
		return "", false
	}
	return strings.TrimSuffix(uri, "/"+parts[3]), true
}
